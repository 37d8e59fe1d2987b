//! Header names, patterns over them, and which headers a replay leaves out.

use std::fmt;

/// Headers of the recorded answer that a replay leaves out unless a route says otherwise.
///
/// - *Credentials* (`set-cookie`, `*-authenticate`, `authorization`, tokens): they belong to the
///   moment of the first answer, and must not be handed out a second time.
/// - *The transport's own* (`date`, `server`): the gateway sets them anew.
/// - *The first request's name* (request and trace ids): a replay is another request, and two
///   requests under one id make a trace unreadable.
/// - *Rate limits*: they were true then.
///
/// `retry-after` and `location` stay: they are part of what the upstream answered.
pub const REPLAY_DROP_DEFAULT: &[&str] = &[
    "set-cookie",
    "set-cookie2",
    "authorization",
    "proxy-authorization",
    "*-authenticate",
    "authentication-info",
    "proxy-authentication-info",
    "x-*-token",
    "date",
    "server",
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "traceparent",
    "tracestate",
    "x-b3-*",
    "ratelimit",
    "ratelimit-*",
    "x-ratelimit-*",
    "x-rate-limit-*",
];

/// Headers that belong to one connection or frame one message. The gateway handles them itself,
/// so no policy may name them as the carrier of a key or of a scope.
pub(crate) const CONNECTION_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The longest header name a policy may use.
const NAME_BYTES_MAX: usize = 256;

/// A header name in lower case, or a sentence about why the text is none.
pub(crate) fn header_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(is_token_byte) {
        return Err(format!("must be the name of a header, not {text:?}"));
    }
    Ok(text.to_ascii_lowercase())
}

/// A `tchar` of RFC 9110.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A header name in which one `*` stands for any text: `x-ratelimit-*`, `*-authenticate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderPattern {
    /// This name, in lower case.
    Exact(String),
    /// Every name that starts and ends like this, with anything in between.
    Around {
        /// What stands before the `*`.
        prefix: String,
        /// What stands after it.
        suffix: String,
    },
}

impl HeaderPattern {
    /// Reads a pattern; the error completes "must be …".
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused =
            || format!("must be the name of a header, with at most one `*`, not {text:?}");
        match text.split_once('*') {
            None => header_name(text).map(Self::Exact).map_err(|_| refused()),
            Some((prefix, suffix)) => {
                let part = |part: &str| !part.contains('*') && part.bytes().all(is_token_byte);
                if text.len() > NAME_BYTES_MAX || text == "*" || !part(prefix) || !part(suffix) {
                    return Err(refused());
                }
                let (prefix, suffix) = (prefix.to_ascii_lowercase(), suffix.to_ascii_lowercase());
                Ok(Self::Around { prefix, suffix })
            }
        }
    }

    /// Whether it covers a header name given in lower case.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => name == exact,
            Self::Around { prefix, suffix } => name
                .strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.ends_with(suffix.as_str())),
        }
    }
}

impl fmt::Display for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Around { prefix, suffix } => write!(f, "{prefix}*{suffix}"),
        }
    }
}

/// Which headers of a recorded answer a replay leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayDrop {
    /// The defaults and the route's `replay_drop`.
    pub patterns: Vec<HeaderPattern>,
    /// The route's `replay_keep`: names kept although a pattern covers them.
    pub keep: Vec<String>,
}

impl ReplayDrop {
    /// The default list, with a route's additions and exceptions. Additions never replace the
    /// list: a route that names one header of its own must not begin to replay cookies.
    pub fn new(add: Vec<HeaderPattern>, keep: Vec<String>) -> Self {
        let defaults =
            REPLAY_DROP_DEFAULT.iter().filter_map(|text| HeaderPattern::parse(text).ok());
        Self { patterns: defaults.chain(add).collect(), keep }
    }

    /// Whether a header, named in lower case, is left out.
    pub fn drops(&self, name: &str) -> bool {
        !self.keep.iter().any(|kept| kept == name)
            && self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_star_stands_for_any_text() {
        let check = |pattern: &str, name: &str, expected: bool| {
            let parsed = HeaderPattern::parse(pattern).expect("a pattern");
            assert_eq!(parsed.matches(name), expected, "{pattern} {name}");
            assert_eq!(parsed.to_string(), pattern.to_ascii_lowercase());
        };
        check("Date", "date", true);
        check("date", "last-date", false);
        check("x-ratelimit-*", "x-ratelimit-limit", true);
        check("x-ratelimit-*", "x-ratelimit", false);
        check("*-authenticate", "www-authenticate", true);
        check("x-*-token", "x-csrf-token", true);
        // The star may not count one byte twice.
        check("ab*ba", "aba", false);
        for bad in ["", "*", "a*b*", "a b", "é", "x:y"] {
            assert!(HeaderPattern::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_default_list_is_well_formed_and_drops_credentials() {
        let drop = ReplayDrop::new(Vec::new(), Vec::new());
        assert_eq!(drop.patterns.len(), REPLAY_DROP_DEFAULT.len());
        for name in ["set-cookie", "www-authenticate", "authorization", "x-auth-token", "date"] {
            assert!(drop.drops(name), "{name}");
        }
        for name in ["location", "retry-after", "content-type", "etag", "x-powered-by"] {
            assert!(!drop.drops(name), "{name}");
        }
    }

    #[test]
    fn a_route_adds_to_the_list_and_names_its_exceptions() {
        let add = vec![HeaderPattern::parse("x-shard").expect("a pattern")];
        let drop = ReplayDrop::new(add, vec!["date".to_owned()]);
        assert!(drop.drops("x-shard") && drop.drops("set-cookie"));
        assert!(!drop.drops("date"));
    }
}
