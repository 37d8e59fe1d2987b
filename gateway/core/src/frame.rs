//! Length framing, so that no two different tuples ever hash alike.
//!
//! Everything that is hashed (identities, fingerprints, derived keys) goes through here: each
//! part is written as its tag, whether it is present, its length and its bytes. `("/a", "bc")`
//! and `("/ab", "c")` therefore differ, and an absent part differs from an empty one.

/// Writes framed parts into a sink, usually a hasher.
pub struct Framer<S: FnMut(&[u8])> {
    sink: S,
}

impl<S: FnMut(&[u8])> Framer<S> {
    /// Frames everything that follows into `sink`.
    pub fn new(sink: S) -> Self {
        Self { sink }
    }

    /// One part: `tag` names what it is (`path`, `header:content-type`), `None` means absent.
    ///
    /// Written as: tag length (u32, big endian), tag, `0` or `1`, value length (u64, big
    /// endian), value.
    pub fn part(&mut self, tag: &str, value: Option<&[u8]>) -> &mut Self {
        let tag_len = u32::try_from(tag.len()).unwrap_or(u32::MAX);
        (self.sink)(&tag_len.to_be_bytes());
        (self.sink)(tag.as_bytes());
        match value {
            None => (self.sink)(&[0]),
            Some(bytes) => {
                (self.sink)(&[1]);
                (self.sink)(&(bytes.len() as u64).to_be_bytes());
                (self.sink)(bytes);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(parts: &[(String, Option<Vec<u8>>)]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut framer = Framer::new(|bytes| out.extend_from_slice(bytes));
        for (tag, value) in parts {
            framer.part(tag, value.as_deref());
        }
        out
    }

    proptest! {
        #[test]
        fn different_tuples_never_frame_alike(
            left in proptest::collection::vec(("[ab]{0,3}", proptest::option::of(proptest::collection::vec(0u8..3, 0..4))), 0..4),
            right in proptest::collection::vec(("[ab]{0,3}", proptest::option::of(proptest::collection::vec(0u8..3, 0..4))), 0..4),
        ) {
            prop_assert_eq!(left == right, framed(&left) == framed(&right));
        }
    }
}
