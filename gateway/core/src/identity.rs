//! What a record is filed under, and what was asked: both only ever as digests.
//!
//! Hashing itself happens outside this crate; here live the framing of the identity tuple and
//! the opaque results.

use std::fmt;

use crate::frame::Framer;
use crate::key::{Key, Operation};

/// Version of the identity tuple. A change files every key under a new name, so it only
/// changes together with a migration.
pub const IDENTITY_VERSION: u8 = 1;

/// SHA-256 over the framed tuple (format version, namespace, operation, scope, key): the only
/// form in which a key reaches a store, a log or a metric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub [u8; 32]);

impl Identity {
    /// Feeds the identity tuple into `sink` (a SHA-256 hasher). `scope` is already framed or
    /// hashed by its source.
    pub fn frame(
        namespace: &str,
        operation: &Operation,
        scope: &[u8],
        key: &Key,
        sink: impl FnMut(&[u8]),
    ) {
        Framer::new(sink)
            .part("identity", Some(&[IDENTITY_VERSION]))
            .part("namespace", Some(namespace.as_bytes()))
            .part("operation", Some(operation.as_str().as_bytes()))
            .part("scope", Some(scope))
            .part("key", Some(key.expose().as_bytes()));
    }

    /// All 64 hexadecimal digits, as used in store keys.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// The first 12 hexadecimal digits, enough to follow one key through a log.
    pub fn short(self) -> String {
        hex(&self.0[..6])
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.short())
    }
}

/// Digest of what was asked under a key. Two fingerprints are equal only when version and
/// digest are: a digest made by other rules says nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Which rules and which algorithm made the digest.
    pub version: u8,
    /// The digest itself (SHA-256, or HMAC-SHA-256 where a secret is configured).
    pub digest: [u8; 32],
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(v{} {})", self.version, hex(&self.digest[..6]))
    }
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
        .map(char::from)
        .collect()
}

/// The reverse of [`hex`]; `None` for odd lengths or other characters. Either case is read.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_and_back() {
        assert_eq!(hex(&[0x00, 0xff, 0x1a]), "00ff1a");
        assert_eq!(unhex("00fF1a"), Some(vec![0x00, 0xff, 0x1a]));
        for bad in ["0", "0g", "é"] {
            assert_eq!(unhex(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_identity_tuple_keeps_its_members_apart() {
        let frame = |namespace: &str, operation: &str, scope: &[u8], key: &str| {
            let mut out = Vec::new();
            Identity::frame(
                namespace,
                &Operation::parse(operation).expect("operation"),
                scope,
                &Key::parse(key).expect("key"),
                |bytes| out.extend_from_slice(bytes),
            );
            out
        };
        let base = frame("n", "op", b"ab", "c");
        assert_ne!(base, frame("n", "op", b"a", "bc"));
        assert_ne!(base, frame("no", "p", b"ab", "c"));
        assert_eq!(base, frame("n", "op", b"ab", "c"));
    }
}
