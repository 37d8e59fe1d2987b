//! Keys, scopes and operation names: parsed once at the edge, never checked again.
//!
//! The rules for a key are those of section 5 of the design: 1 to 255 bytes of printable ASCII
//! (`0x20..=0x7e`). How a key is *written* in a header (quoted or bare) is a plugin's business;
//! what a key may *be* is decided here, for every plugin alike.

use std::fmt;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;
/// The longest operation name, in bytes.
pub const OPERATION_BYTES_MAX: usize = 64;

/// Names one intent of one client. The raw text never leaves the gateway except upstream.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

/// Why some text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// No bytes at all.
    Empty,
    /// More than [`KEY_BYTES_MAX`] bytes; holds how many.
    TooLong(usize),
    /// A byte outside `0x20..=0x7e`; holds its position.
    NotPrintableAscii(usize),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the key is empty"),
            Self::TooLong(n) => {
                write!(f, "the key has {n} bytes, at most {KEY_BYTES_MAX} are allowed")
            }
            Self::NotPrintableAscii(at) => {
                write!(f, "byte {at} of the key is not printable ASCII (0x20 to 0x7e)")
            }
        }
    }
}

impl std::error::Error for KeyError {}

impl Key {
    /// Checks the rules above; the text itself is kept byte for byte.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong(text.len()));
        }
        match text.bytes().position(|byte| !(0x20..=0x7e).contains(&byte)) {
            Some(at) => Err(KeyError::NotPrintableAscii(at)),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The raw text, for forwarding upstream and for hashing; never for a log.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Hides the text: a key in a log is a leak.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// The name a route gives to what it does, part of every identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(String);

impl Operation {
    /// Accepts 1 to 64 bytes of `a-z A-Z 0-9 . _ -`; the error is a sentence for an operator.
    pub fn parse(text: &str) -> Result<Self, String> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > OPERATION_BYTES_MAX || !text.bytes().all(allowed) {
            return Err(format!(
                "an operation is 1 to {OPERATION_BYTES_MAX} letters, digits, '.', '_' or '-'"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text, safe for logs and metric labels.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_1_to_255_bytes_of_printable_ascii() {
        let check = |text: &str, expected: Result<(), KeyError>| {
            assert_eq!(Key::parse(text).map(|_| ()), expected, "{text:?}");
        };
        check("a", Ok(()));
        check(&"k".repeat(255), Ok(()));
        check("with inner space", Ok(()));
        check("", Err(KeyError::Empty));
        check(&"k".repeat(256), Err(KeyError::TooLong(256)));
        check(&"é".repeat(128), Err(KeyError::TooLong(256)));
        check("tab\there", Err(KeyError::NotPrintableAscii(3)));
        check("ключ", Err(KeyError::NotPrintableAscii(0)));
        check("\u{7f}", Err(KeyError::NotPrintableAscii(0)));
    }

    #[test]
    fn a_key_does_not_print_itself() {
        let key = Key::parse("secret-key").expect("valid");
        assert_eq!(format!("{key:?}"), "Key(10 bytes)");
    }

    #[test]
    fn an_operation_is_a_short_label() {
        assert!(Operation::parse("create-payment_v1.2").is_ok());
        for bad in ["", "a b", "ü", &"o".repeat(65)] {
            assert!(Operation::parse(bad).is_err(), "{bad:?}");
        }
    }
}
