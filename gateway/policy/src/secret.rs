//! Text that must not be seen.

use std::fmt;

/// A value that never prints itself. There is no `Display`, `Debug` shows a placeholder, and the
/// one way to the value has a name that stands out in review.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Hides a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself: for a key derivation or a login, never for a log.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print_itself() {
        let secret = Secret::new("hunter2".to_owned());
        assert!(!format!("{secret:?} {:?}", Some(&secret)).contains("hunter2"));
        assert_eq!(secret.expose(), "hunter2");
    }
}
