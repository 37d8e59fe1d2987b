//! Every Redis name, in this one place.

use oncegate_core::{Identity, hex, unhex};

/// The longest namespace, in bytes.
const NAMESPACE_LEN_MAX: usize = 64;

/// The names of one gateway group's records: `<namespace>:{<64 hexadecimal digits>}`. The braces
/// make the identity the part that a Redis Cluster distributes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keyspace {
    prefix: String,
}

impl Keyspace {
    /// `Err` holds what is wrong with the namespace. Characters that mean something in a key
    /// pattern or to a cluster are refused rather than escaped.
    pub(super) fn new(namespace: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        if namespace.is_empty() || namespace.len() > NAMESPACE_LEN_MAX {
            return Err(format!("it must have 1 to {NAMESPACE_LEN_MAX} characters"));
        }
        match namespace.chars().find(|c| !allowed(*c)) {
            Some(c) => Err(format!("it has {c:?}; letters, digits and - _ . : / are allowed")),
            None => Ok(Self { prefix: format!("{namespace}:{{") }),
        }
    }

    /// The name of an identity's record.
    pub(super) fn name(&self, id: &Identity) -> String {
        let mut name = String::with_capacity(self.prefix.len() + 65);
        name.push_str(&self.prefix);
        name.push_str(&hex(&id.0));
        name.push('}');
        name
    }

    /// Matches every record's name, and maybe more.
    pub(super) fn pattern(&self) -> String {
        format!("{}*}}", self.prefix)
    }

    /// The reverse of [`Keyspace::name`]; `None` for anything else.
    pub(super) fn identity(&self, name: &[u8]) -> Option<Identity> {
        let digits = name.strip_prefix(self.prefix.as_bytes())?.strip_suffix(b"}")?;
        Some(Identity(unhex(std::str::from_utf8(digits).ok()?)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_back() {
        let keyspace = Keyspace::new("shop:eu").expect("a good namespace");
        let id = Identity([0xab; 32]);
        let name = keyspace.name(&id);
        assert_eq!(name, format!("shop:eu:{{{}}}", "ab".repeat(32)));
        assert_eq!(keyspace.identity(name.as_bytes()), Some(id));
        for other in ["shop:eu:{ab}", "shop:eu:lock", "shop:us:{}", ""] {
            assert_eq!(keyspace.identity(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn namespaces_that_would_match_others_are_refused() {
        for bad in ["", "a*", "a?", "a[b]", "a{b}", "a b", "ä", &"a".repeat(65)] {
            assert!(Keyspace::new(bad).is_err(), "{bad:?}");
        }
        assert!(Keyspace::new(&"a".repeat(64)).is_ok());
    }
}
