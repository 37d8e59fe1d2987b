//! What a plugin decides, checked on the way in: a [`Decision`] in the hands of the server obeys
//! every rule of the interface.

use std::time::Duration;

use oncegate_core::Key;

use crate::bindings::oncegate::plugin::types as wire;
use crate::error::DeriveError;
use crate::parts::Part;
use crate::plugin::Needs;

/// The longest detail of a refusal and reason of a bypass, in bytes.
const SENTENCE_BYTES_MAX: usize = 512;
const CODE_BYTES_MAX: usize = 64;

/// Parts of one decision: key, fingerprint and scope together.
const PARTS_MAX: usize = 64;
/// Those of them that are made from the body; each may cost as much as the body is long.
const BODY_PARTS_MAX: usize = 16;

/// What to do with one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Here is a key.
    Track(Tracking),
    /// No key here; ask the next plugin.
    Pass,
    /// Forward without protection, for this reason.
    Bypass(String),
    /// Answer the client now.
    Reject(Refusal),
}

/// A key and what goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracking {
    /// The key, or what it is made from.
    pub key: KeySource,
    /// What must be equal when the key is seen again. Empty: the route decides.
    pub fingerprint: Vec<Part>,
    /// Narrows the scope of the route. Empty: that scope as it is.
    pub scope: Vec<Part>,
    /// How long to keep the finished record; not yet clamped to the route's bounds.
    pub retention: Option<Duration>,
    /// Printable, for logs and traces.
    pub attributes: Vec<(String, String)>,
}

/// Where a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The client sent it.
    Client(Key),
    /// To be made from these parts; at least one.
    Derived(Vec<Part>),
}

/// An answer to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 400 to 499.
    pub status: u16,
    /// 1 to 64 characters of `a-z`, `0-9` and `-`.
    pub code: String,
    /// Printable, at most 512 bytes.
    pub detail: String,
}

/// Checks an answer of a guest. `bytes_max` bounds all of its text together.
pub(crate) fn accept(
    decision: wire::Decision,
    needs: Needs,
    bytes_max: usize,
) -> Result<Decision, DeriveError> {
    let bytes = size(&decision);
    if bytes > bytes_max {
        return refuse(format!("it has {bytes} bytes, at most {bytes_max} are allowed"));
    }
    match decision {
        wire::Decision::Pass => Ok(Decision::Pass),
        wire::Decision::Bypass(reason) => {
            sentence("the reason of the bypass", &reason)?;
            Ok(Decision::Bypass(reason))
        }
        wire::Decision::Reject(refusal) => accept_refusal(refusal).map(Decision::Reject),
        wire::Decision::Track(tracking) => accept_tracking(tracking, needs).map(Decision::Track),
    }
}

fn refuse<T>(rule: impl Into<String>) -> Result<T, DeriveError> {
    Err(DeriveError::InvalidOutput(rule.into()))
}

fn accept_refusal(refusal: wire::Refusal) -> Result<Refusal, DeriveError> {
    let wire::Refusal { status, code, detail } = refusal;
    if !(400..=499).contains(&status) {
        return refuse(format!("a refusal has status 400 to 499, not {status}"));
    }
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    if code.is_empty() || code.len() > CODE_BYTES_MAX || !code.bytes().all(allowed) {
        return refuse("the code of a refusal is 1 to 64 characters of a-z, 0-9 and -");
    }
    sentence("the detail of a refusal", &detail)?;
    Ok(Refusal { status, code, detail })
}

fn accept_tracking(tracking: wire::Tracking, needs: Needs) -> Result<Tracking, DeriveError> {
    let wire::Tracking { key, fingerprint, scope, retention_ms, attributes } = tracking;
    if retention_ms == Some(0) {
        return refuse("a retention of 0 keeps nothing");
    }
    for (name, value) in &attributes {
        sentence("the name of an attribute", name)?;
        sentence("the value of an attribute", value)?;
    }
    let tracking = Tracking {
        key: accept_key(key, needs)?,
        fingerprint: accept_parts(fingerprint, needs)?,
        scope: accept_parts(scope, needs)?,
        retention: retention_ms.map(Duration::from_millis),
        attributes,
    };
    bounded(&tracking)?;
    Ok(tracking)
}

/// Parts are resolved and hashed by the host, after the guest's own time is over, so their
/// number is what bounds that work.
fn bounded(tracking: &Tracking) -> Result<(), DeriveError> {
    let of_key: &[Part] = match &tracking.key {
        KeySource::Client(_) => &[],
        KeySource::Derived(parts) => parts,
    };
    let all = of_key.iter().chain(&tracking.fingerprint).chain(&tracking.scope);
    let (count, of_body) = all.fold((0, 0), |(count, of_body), part| {
        (count + 1, of_body + usize::from(part.reads_body()))
    });
    if count > PARTS_MAX {
        return refuse(format!("it names {count} parts, at most {PARTS_MAX} are allowed"));
    }
    if of_body > BODY_PARTS_MAX {
        return refuse(format!(
            "it names {of_body} parts made from the body, at most {BODY_PARTS_MAX} are allowed"
        ));
    }
    Ok(())
}

fn accept_key(key: wire::KeySource, needs: Needs) -> Result<KeySource, DeriveError> {
    match key {
        wire::KeySource::Client(text) => match Key::parse(&text) {
            Ok(key) => Ok(KeySource::Client(key)),
            Err(error) => refuse(error.to_string()),
        },
        wire::KeySource::Derived(parts) if parts.is_empty() => {
            refuse("a key derived from no parts would be one key for all requests")
        }
        wire::KeySource::Derived(parts) => accept_parts(parts, needs).map(KeySource::Derived),
    }
}

fn accept_parts(parts: Vec<wire::Part>, needs: Needs) -> Result<Vec<Part>, DeriveError> {
    parts.into_iter().map(|part| accept_part(part, needs)).collect()
}

fn accept_part(part: wire::Part, needs: Needs) -> Result<Part, DeriveError> {
    let part = known_part(part)?;
    if reads_body(&part) && !needs.body {
        return refuse("a part of the body, which the manifest does not declare under `needs`");
    }
    if part == Part::Principal && !needs.principal {
        return refuse("the principal, which the manifest does not declare under `needs`");
    }
    match part.check() {
        Ok(()) => Ok(part),
        Err(error) => refuse(error.to_string()),
    }
}

fn known_part(part: wire::Part) -> Result<Part, DeriveError> {
    Ok(match part {
        wire::Part::Text(text) => Part::Text(text),
        wire::Part::Bytes(bytes) => Part::Bytes(bytes),
        wire::Part::Method => Part::Method,
        wire::Part::Route => Part::Route,
        wire::Part::Path => Part::Path,
        wire::Part::Query => Part::Query,
        wire::Part::Principal => Part::Principal,
        wire::Part::PathParam(name) => Part::PathParam(name),
        wire::Part::QueryParam(name) => Part::QueryParam(name),
        wire::Part::Header(name) => Part::Header(name),
        wire::Part::MediaType => Part::MediaType,
        wire::Part::BodyBytes => Part::BodyBytes,
        wire::Part::BodyJson => Part::BodyJson,
        wire::Part::JsonPointer(pointer) => Part::JsonPointer(pointer),
        wire::Part::JsonWithout(pointers) => Part::JsonWithout(pointers),
        wire::Part::BodyMultipart => Part::BodyMultipart,
        // Skipping it would make requests equal that the plugin tells apart.
        wire::Part::Other((kind, _)) => {
            return refuse(format!("a part of a kind that this gateway does not know: {kind:?}"));
        }
    })
}

fn reads_body(part: &Part) -> bool {
    matches!(
        part,
        Part::BodyBytes
            | Part::BodyJson
            | Part::BodyMultipart
            | Part::JsonPointer(_)
            | Part::JsonWithout(_)
    )
}

/// Shown to clients and written to logs, so one line of bounded length.
fn sentence(what: &str, text: &str) -> Result<(), DeriveError> {
    if text.len() > SENTENCE_BYTES_MAX || text.chars().any(char::is_control) {
        return refuse(format!(
            "{what} is at most {SENTENCE_BYTES_MAX} bytes without control characters"
        ));
    }
    Ok(())
}

/// Bytes of all text in an answer. A part counts for at least one, so that a list of a million
/// empty parts is not free.
fn size(decision: &wire::Decision) -> usize {
    match decision {
        wire::Decision::Pass => 0,
        wire::Decision::Bypass(reason) => reason.len(),
        wire::Decision::Reject(refusal) => refusal.code.len() + refusal.detail.len(),
        wire::Decision::Track(tracking) => {
            let key = match &tracking.key {
                wire::KeySource::Client(text) => text.len(),
                wire::KeySource::Derived(parts) => parts_size(parts),
            };
            let attributes: usize =
                tracking.attributes.iter().map(|(name, value)| 1 + name.len() + value.len()).sum();
            key + parts_size(&tracking.fingerprint) + parts_size(&tracking.scope) + attributes
        }
    }
}

fn parts_size(parts: &[wire::Part]) -> usize {
    let one = |part: &wire::Part| match part {
        wire::Part::Text(text)
        | wire::Part::PathParam(text)
        | wire::Part::QueryParam(text)
        | wire::Part::Header(text)
        | wire::Part::JsonPointer(text) => text.len(),
        wire::Part::Bytes(bytes) => bytes.len(),
        wire::Part::JsonWithout(texts) => texts.iter().map(|text| 1 + text.len()).sum(),
        wire::Part::Other((kind, argument)) => kind.len() + argument.len(),
        wire::Part::Method
        | wire::Part::Route
        | wire::Part::Path
        | wire::Part::Query
        | wire::Part::Principal
        | wire::Part::MediaType
        | wire::Part::BodyBytes
        | wire::Part::BodyJson
        | wire::Part::BodyMultipart => 0,
    };
    parts.iter().map(|part| 1 + one(part)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { body: true, principal: true };

    fn track(key: wire::KeySource) -> wire::Tracking {
        wire::Tracking {
            key,
            fingerprint: vec![],
            scope: vec![],
            retention_ms: None,
            attributes: vec![],
        }
    }

    fn client(key: &str) -> wire::Tracking {
        track(wire::KeySource::Client(key.into()))
    }

    fn derived(parts: Vec<wire::Part>) -> wire::Decision {
        wire::Decision::Track(track(wire::KeySource::Derived(parts)))
    }

    fn rejected(status: u16, code: &str, detail: &str) -> wire::Decision {
        let (code, detail) = (code.into(), detail.into());
        wire::Decision::Reject(wire::Refusal { status, code, detail })
    }

    fn good(decision: wire::Decision) {
        let text = format!("{decision:?}");
        assert!(accept(decision, NEEDS, 1024).is_ok(), "{text}");
    }

    fn bad(decision: wire::Decision) {
        let text = format!("{decision:?}");
        match accept(decision, NEEDS, 1024) {
            Err(DeriveError::InvalidOutput(_)) => {}
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_clients_key_obeys_the_rules_of_keys() {
        good(wire::Decision::Track(client(&"k".repeat(255))));
        for key in ["", "ключ", "a\nb", &"k".repeat(256)] {
            bad(wire::Decision::Track(client(key)));
        }
    }

    #[test]
    fn a_derived_key_has_well_formed_parts() {
        good(derived(vec![wire::Part::Method, wire::Part::Header("X-A".into())]));
        bad(derived(vec![]));
        bad(derived(vec![wire::Part::Header("a b".into())]));
        bad(derived(vec![wire::Part::JsonPointer("a".into())]));
        bad(derived(vec![wire::Part::JsonWithout(vec![String::new()])]));
        bad(derived(vec![wire::Part::Other(("weekday".into(), String::new()))]));
    }

    #[test]
    fn parts_must_be_declared() {
        let check = |part: wire::Part, needs: Needs, ok: bool| {
            let text = format!("{part:?}");
            assert_eq!(accept(derived(vec![part]), needs, 1024).is_ok(), ok, "{text}");
        };
        let none = Needs::default();
        check(wire::Part::BodyBytes, none, false);
        check(wire::Part::JsonPointer("/a".into()), none, false);
        check(wire::Part::Principal, none, false);
        check(wire::Part::Principal, Needs { principal: true, ..none }, true);
        check(wire::Part::BodyMultipart, Needs { body: true, ..none }, true);
        check(wire::Part::MediaType, none, true);
    }

    #[test]
    fn a_refusal_is_a_client_error_in_plain_words() {
        good(rejected(400, "key-missing", "Send a key."));
        good(rejected(499, &"a".repeat(64), &"d".repeat(512)));
        good(rejected(422, "a", ""));
        bad(rejected(399, "a", ""));
        bad(rejected(500, "a", ""));
        bad(rejected(400, "", ""));
        bad(rejected(400, "Not-Lower", ""));
        bad(rejected(400, &"a".repeat(65), ""));
        bad(rejected(400, "a", &"d".repeat(513)));
        bad(rejected(400, "a", "two\r\nlines"));
    }

    #[test]
    fn the_rest_is_bounded_too() {
        good(wire::Decision::Bypass("health check".into()));
        bad(wire::Decision::Bypass("a\nb".into()));
        bad(wire::Decision::Track(wire::Tracking { retention_ms: Some(0), ..client("k") }));
        let attributes = vec![("amount".into(), "12\n".into())];
        bad(wire::Decision::Track(wire::Tracking { attributes, ..client("k") }));
        good(derived(vec![wire::Part::Text("x".repeat(1023))]));
        bad(derived(vec![wire::Part::Text("x".repeat(1024))]));
        good(derived(vec![wire::Part::Method; PARTS_MAX]));
        bad(derived(vec![wire::Part::Method; PARTS_MAX + 1]));
        good(derived(vec![wire::Part::BodyBytes; BODY_PARTS_MAX]));
        bad(derived(vec![wire::Part::BodyBytes; BODY_PARTS_MAX + 1]));
    }
}
