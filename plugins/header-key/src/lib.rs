//! The plain case: the key is what the client sent in its `Idempotency-Key` header.
//!
//! How a key may be *written* is decided here (`value`); what a key may *be* is decided by the
//! gateway, for every plugin alike. Anything that is not clearly one key is refused rather than
//! ignored: a request whose key went unnoticed would run unprotected, although its client was
//! promised otherwise.

mod settings;
mod value;

use oncegate_plugin_sdk::{
    Decision, KeySource, Manifest, Plugin, Problem, bad_request, export, manifest, request, track,
};
use settings::Settings;

struct HeaderKey(Settings);

impl Plugin for HeaderKey {
    fn configure(config: &str) -> Result<(Self, Manifest), Vec<Problem>> {
        let settings = Settings::read(config)?;
        Ok((Self(settings), manifest("header-key", env!("CARGO_PKG_VERSION"))))
    }

    fn derive(&self) -> Result<Decision, String> {
        Ok(decide(&self.0, &request::header_values(&self.0.header)))
    }
}

export!(HeaderKey);

/// The decision for the lines of the header, in the order they came.
fn decide(settings: &Settings, lines: &[Vec<u8>]) -> Decision {
    let name = &settings.header;
    match lines {
        [] if settings.required => {
            bad_request("key-missing", format!("this operation needs the header {name}"))
        }
        [] => Decision::Pass,
        [line] => match value::parse(line, settings.syntax, settings.max_bytes) {
            Ok(key) => track(KeySource::Client(key)),
            Err(why) => bad_request("key-invalid", format!("{name}: {why}")),
        },
        // Also when they are equal: some hop on the way may join them, others keep one, and the
        // same request would be known under two keys.
        _ => bad_request("key-invalid", format!("{name}: more than one line")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<Vec<u8>> {
        lines.iter().map(|line| line.as_bytes().to_vec()).collect()
    }

    fn refused(config: &str, sent: &[&str], code: &str) {
        let settings = Settings::read(config).expect("settings");
        let Decision::Reject(refusal) = decide(&settings, &lines(sent)) else {
            panic!("{sent:?} is not refused")
        };
        assert_eq!((refusal.status, refusal.code.as_str()), (400, code), "{sent:?}");
    }

    #[test]
    fn no_header_passes_unless_required() {
        let settings = Settings::read("{}").expect("settings");
        assert_eq!(decide(&settings, &[]), Decision::Pass);
        refused(r#"{"required":true}"#, &[], "key-missing");
    }

    #[test]
    fn an_unusable_header_is_refused_even_where_it_is_optional() {
        for sent in [&[""][..], &["\"\""], &["   "], &["a", "a"], &["a", "b"], &["\"a\", \"b\""]] {
            refused("{}", sent, "key-invalid");
        }
    }

    #[test]
    fn a_key_is_tracked_as_the_clients_own() {
        let settings = Settings::read("{}").expect("settings");
        let expected = track(KeySource::Client("8e03978e-40d5".into()));
        assert_eq!(decide(&settings, &lines(&["\"8e03978e-40d5\""])), expected);
        assert_eq!(decide(&settings, &lines(&["8e03978e-40d5"])), expected);
    }
}
