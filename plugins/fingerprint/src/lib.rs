//! A key for clients that send none: made from the parts of the request that the operator says
//! mean "the same thing again".
//!
//! An ordinary plugin without privileges: it only names the parts. The gateway finds their
//! values, frames and hashes them, so a body never comes in here.

mod parts;
mod settings;

use oncegate_plugin_sdk::{
    Decision, KeySource, Manifest, Part, Plugin, Problem, Tracking, bad_request, body, export,
    manifest, request, tracking,
};
use settings::{Absent, Settings};

#[derive(Debug)]
struct Fingerprint(Settings);

impl Plugin for Fingerprint {
    fn configure(config: &str) -> Result<(Self, Manifest), Vec<Problem>> {
        let settings = Settings::read(config)?;
        let mut manifest = manifest("fingerprint", env!("CARGO_PKG_VERSION"));
        if settings.parts.iter().any(parts::reads_body) {
            manifest = manifest.reads_body();
        }
        if settings.parts.iter().any(parts::reads_principal) {
            manifest = manifest.reads_principal();
        }
        Ok((Self(settings), manifest))
    }

    fn derive(&self) -> Result<Decision, String> {
        Ok(decide(&self.0, is_absent))
    }
}

export!(Fingerprint);

/// The decision, given which parts the request lacks.
fn decide(settings: &Settings, is_absent: impl Fn(&Part) -> bool) -> Decision {
    let missing = || settings.parts.iter().any(&is_absent);
    match settings.absent {
        Absent::Pass if missing() => Decision::Pass,
        Absent::Reject if missing() => {
            bad_request("key-missing", "a value that identifies this operation is missing")
        }
        Absent::Pass | Absent::Reject | Absent::Include => tracked(settings),
    }
}

fn tracked(settings: &Settings) -> Decision {
    let key = KeySource::Derived(settings.parts.clone());
    Decision::Track(Tracking { retention_ms: settings.retention_ms, ..tracking(key) })
}

/// Whether the request lacks a part that was asked for *by name*. Parts that every request has,
/// if only as an empty one, are never absent.
fn is_absent(part: &Part) -> bool {
    match part {
        Part::Header(name) => request::header_values(name).is_empty(),
        Part::QueryParam(name) => request::query_param(name).is_empty(),
        Part::PathParam(name) => request::path_param(name).is_none(),
        Part::Principal => request::principal().is_none(),
        Part::JsonPointer(pointer) => match body::json(pointer) {
            // An id that is null identifies nothing.
            Ok(value) => value.is_none_or(|text| text == "null"),
            // Too large an answer for a guest is still there to be hashed.
            Err(body::BodyError::TooLarge) => false,
            Err(_) => true,
        },
        Part::Text(_)
        | Part::Bytes(_)
        | Part::Method
        | Part::Route
        | Part::Path
        | Part::Query
        | Part::MediaType
        | Part::BodyBytes
        | Part::BodyJson
        | Part::JsonWithout(_)
        | Part::BodyMultipart
        | Part::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncegate_plugin_sdk::track;

    fn settings(config: &str) -> Settings {
        Settings::read(config).expect("settings")
    }

    #[test]
    fn a_key_is_made_from_the_parts_as_listed() {
        let decision = decide(&settings(r#"{"parts":["method","path","body"]}"#), |_| false);
        let parts = vec![Part::Method, Part::Path, Part::BodyBytes];
        assert_eq!(decision, track(KeySource::Derived(parts)));
    }

    #[test]
    fn retention_is_handed_on() {
        let decision = decide(&settings(r#"{"parts":["body"],"retention_ms":60000}"#), |_| false);
        let Decision::Track(tracking) = decision else { panic!("{decision:?}") };
        assert_eq!(tracking.retention_ms, Some(60_000));
    }

    #[test]
    fn a_missing_part_means_no_key_unless_told_otherwise() {
        let check = |absent: &str, expected: fn(&Decision) -> bool| {
            let config = format!(r#"{{"parts":["header:X-Id"]{absent}}}"#);
            let decision = decide(&settings(&config), |_| true);
            assert!(expected(&decision), "{config}: {decision:?}");
        };
        check("", |decision| *decision == Decision::Pass);
        check(r#","absent":"pass""#, |decision| *decision == Decision::Pass);
        check(
            r#","absent":"reject""#,
            |decision| matches!(decision, Decision::Reject(refusal) if refusal.code == "key-missing"),
        );
        check(r#","absent":"include""#, |decision| matches!(decision, Decision::Track(_)));
    }

    #[test]
    fn needs_follow_from_the_parts() {
        let needs = |config: &str| {
            let (_, manifest) = Fingerprint::configure(config).expect("configured");
            manifest.needs
        };
        use oncegate_plugin_sdk::Needs;
        assert_eq!(needs(r#"{"parts":["method","header:a"]}"#), Needs::empty());
        assert_eq!(needs(r#"{"parts":["body-json"]}"#), Needs::BODY);
        assert_eq!(needs(r#"{"parts":["principal","json:/a"]}"#), Needs::BODY | Needs::PRINCIPAL);
    }
}
