//! The configuration of this plugin.

use oncegate_plugin_sdk::{Config, Problem};

use crate::value::Syntax;

/// The gateway accepts no longer keys from anyone.
const KEY_BYTES_MAX: u64 = 255;

/// What may be set, with its defaults.
#[derive(Debug, PartialEq)]
pub(crate) struct Settings {
    /// Which header: `Idempotency-Key`.
    pub(crate) header: String,
    /// Whether a request without the header is refused: no.
    pub(crate) required: bool,
    /// How a key may be written: leniently.
    pub(crate) syntax: Syntax,
    /// The longest key, in bytes after unquoting: 255.
    pub(crate) max_bytes: usize,
}

impl Settings {
    /// Reads the JSON text, naming every mistake.
    pub(crate) fn read(config: &str) -> Result<Self, Vec<Problem>> {
        let mut config = Config::read(config)?;
        let header = config.text("header").unwrap_or_else(|| "Idempotency-Key".into());
        let required = config.boolean("required").unwrap_or(false);
        let syntax = config.text("syntax").unwrap_or_else(|| "lenient".into());
        let max_bytes = config.number("max_bytes").unwrap_or(KEY_BYTES_MAX);

        if !is_header_name(&header) {
            config.problem("/header", "is not a header name");
        }
        if !(1..=KEY_BYTES_MAX).contains(&max_bytes) {
            config.problem("/max_bytes", "must be 1 to 255");
        }
        let syntax = match syntax.as_str() {
            "lenient" => Syntax::Lenient,
            "strict" => Syntax::Strict,
            _ => {
                config.problem("/syntax", "must be \"lenient\" or \"strict\"");
                Syntax::Strict
            }
        };
        config.finish()?;
        // Checked above to be at most 255.
        Ok(Self { header, required, syntax, max_bytes: max_bytes as usize })
    }
}

/// A token of HTTP (RFC 9110, section 5.6.2).
fn is_header_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, expected: Result<(&str, bool, Syntax, usize), &[&str]>) {
        let found = Settings::read(config);
        let places: Result<_, Vec<_>> =
            found.map_err(|problems| problems.into_iter().map(|problem| problem.at).collect());
        let expected = expected
            .map(|(header, required, syntax, max_bytes)| Settings {
                header: header.into(),
                required,
                syntax,
                max_bytes,
            })
            .map_err(|places| places.iter().map(|place| (*place).to_owned()).collect());
        assert_eq!(places, expected, "{config}");
    }

    #[test]
    fn defaults_and_settings() {
        check("{}", Ok(("Idempotency-Key", false, Syntax::Lenient, 255)));
        check(
            r#"{"header":"X-Request-Id","required":true,"syntax":"strict","max_bytes":36}"#,
            Ok(("X-Request-Id", true, Syntax::Strict, 36)),
        );
        check(r#"{"max_bytes":1}"#, Ok(("Idempotency-Key", false, Syntax::Lenient, 1)));
    }

    #[test]
    fn mistakes_are_named() {
        check(r#"{"heder":"X"}"#, Err(&["/heder"]));
        check(r#"{"max_bytes":0}"#, Err(&["/max_bytes"]));
        check(
            r#"{"max_bytes":256,"header":"a b","syntax":"x"}"#,
            Err(&["/header", "/max_bytes", "/syntax"]),
        );
        check(r#"{"required":"yes"}"#, Err(&["/required"]));
        check("[]", Err(&[""]));
    }
}
