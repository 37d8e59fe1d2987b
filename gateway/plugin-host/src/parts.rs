//! Parts: the ingredients of keys, scopes and fingerprints.
//!
//! Whoever names them (a plugin, a route), their values are found, framed and hashed here and
//! nowhere else, so that no two callers can disagree about what "method and path" hashes to.
//!
//! A part has one or more *resolved* entries: a tag that says what it is, and its bytes if it is
//! there. A header with two lines has two entries, an absent one has one without bytes. What
//! `explain` shows is exactly what is hashed.

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderName;
use oncegate_core::{Framer, Key, hex};
use sha2::{Digest, Sha256};

use crate::canonical::{JsonError, Pointer};
use crate::multipart;
use crate::request::Request;

/// Changes when the same parts would hash differently.
const VERSION: u8 = 1;

/// One ingredient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A constant.
    Text(String),
    /// A constant.
    Bytes(Vec<u8>),
    /// The method, as sent.
    Method,
    /// The operation name of the route.
    Route,
    /// The path, still percent-encoded.
    Path,
    /// The query, as sent.
    Query,
    /// Whom the gateway authenticated.
    Principal,
    /// What the route's pattern captured under this name.
    PathParam(String),
    /// Every value of this query parameter, decoded, in order.
    QueryParam(String),
    /// Every line of this header, in order.
    Header(String),
    /// The body as it is.
    BodyBytes,
    /// The body as canonical JSON, or as it is (under another tag) when it is not JSON.
    BodyJson,
    /// The value at this JSON pointer in canonical form; absent when nothing is there. A body
    /// that is not JSON counts whole (under another tag), so that two broken bodies are never
    /// the same thing for want of a value.
    JsonPointer(String),
    /// As [`Part::BodyJson`], without the values at these pointers.
    JsonWithout(Vec<String>),
    /// The parts of a multipart form, whatever its boundary, or the body as it is (under
    /// another tag) when it is none.
    BodyMultipart,
    /// Type and subtype of every `Content-Type` line, in lower case. Parameters are left out: a
    /// boundary is drawn anew for each attempt, and `charset=utf-8` comes and goes between
    /// client versions without the bytes of the body changing.
    MediaType,
}

/// One entry of what is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// What it is: `path`, `header:x-tenant`, `unparsed:body-json`.
    pub tag: String,
    /// Its canonical bytes; `None` when the request does not have it.
    pub value: Option<Bytes>,
}

/// Why a part cannot be resolved: it is not well formed. Nothing in a request causes this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// Not a pointer of RFC 6901.
    #[error(
        "{0:?} is not a JSON pointer: it begins with / and writes ~ as ~0 and / in a name as ~1"
    )]
    BadPointer(String),
    /// Leaving out the whole body would make all bodies equal.
    #[error("the pointer \"\" leaves out the whole body")]
    LeavesOutEverything,
    /// Not a header name.
    #[error("{0:?} is not a header name")]
    BadHeaderName(String),
}

impl Part {
    /// Checks what can be checked without a request.
    pub fn check(&self) -> Result<(), PartError> {
        match self {
            Self::Header(name) => header_name(name).map(drop),
            Self::JsonPointer(text) => pointer(text).map(drop),
            Self::JsonWithout(texts) => pointers(texts).map(drop),
            Self::Text(_)
            | Self::Bytes(_)
            | Self::Method
            | Self::Route
            | Self::Path
            | Self::Query
            | Self::Principal
            | Self::PathParam(_)
            | Self::QueryParam(_)
            | Self::BodyBytes
            | Self::BodyJson
            | Self::BodyMultipart
            | Self::MediaType => Ok(()),
        }
    }

    /// Whether resolving it looks at the whole body.
    pub(crate) fn reads_body(&self) -> bool {
        match self {
            Self::BodyBytes
            | Self::BodyJson
            | Self::BodyMultipart
            | Self::JsonPointer(_)
            | Self::JsonWithout(_) => true,
            Self::Text(_)
            | Self::Bytes(_)
            | Self::Method
            | Self::Route
            | Self::Path
            | Self::Query
            | Self::Principal
            | Self::PathParam(_)
            | Self::QueryParam(_)
            | Self::Header(_)
            | Self::MediaType => false,
        }
    }

    fn resolve(&self, request: &Request, out: &mut Vec<Resolved>) -> Result<(), PartError> {
        let text = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
        let mut one = |tag: &str, value: Option<Bytes>| {
            out.push(Resolved { tag: tag.into(), value });
        };
        match self {
            Self::Text(constant) => one("text", text(constant)),
            Self::Bytes(constant) => one("bytes", Some(constant.clone().into())),
            Self::Method => one("method", text(&request.method)),
            Self::Route => one("route", text(&request.route)),
            Self::Path => one("path", text(&request.path)),
            Self::Query => one("query", request.query.as_deref().and_then(text)),
            Self::Principal => one("principal", request.principal.as_deref().and_then(text)),
            Self::PathParam(name) => {
                one(&format!("path-param:{name}"), request.path_param(name).and_then(text));
            }
            Self::QueryParam(name) => {
                each(out, &format!("query-param:{name}"), request.query_param(name));
            }
            Self::Header(name) => {
                let name = header_name(name)?;
                each(out, &format!("header:{name}"), request.header_values(name.as_str()));
            }
            Self::BodyBytes => one("body", Some(request.body.clone())),
            Self::BodyJson => out.push(json_or_raw("body-json", request, request.json_text())),
            Self::JsonPointer(at) => out.push(json_at(at, request)?),
            Self::JsonWithout(left_out) => out.push(json_without(left_out, request)?),
            Self::BodyMultipart => multipart(request, out),
            Self::MediaType => each(out, "media-type", media_types(request)),
        }
        Ok(())
    }
}

/// Finds the values. Their order is the order of the parts.
pub fn resolve(parts: &[Part], request: &Request) -> Result<Vec<Resolved>, PartError> {
    let mut out = Vec::with_capacity(parts.len());
    for part in parts {
        part.resolve(request, &mut out)?;
    }
    Ok(out)
}

/// Frames and hashes: SHA-256, or HMAC-SHA-256 with a secret. Use a secret where values are
/// easy to guess and the digests could be read by others.
pub fn digest(resolved: &[Resolved], secret: Option<&[u8]>) -> [u8; 32] {
    match secret {
        None => {
            let mut hash = Sha256::new();
            frame(resolved, |bytes| hash.update(bytes));
            hash.finalize().into()
        }
        Some(secret) => {
            let mut mac = keyed(secret);
            frame(resolved, |bytes| mac.update(bytes));
            mac.finalize().into_bytes().into()
        }
    }
}

/// The key that parts derive: `derived:` and 64 hexadecimal digits. The prefix keeps it apart
/// from what a client would send by chance, and shows in an upstream's log where it came from.
pub fn derived_key(resolved: &[Resolved], secret: Option<&[u8]>) -> Key {
    let text = format!("derived:{}", hex(&digest(resolved, secret)));
    Key::parse(&text).expect("a short text of printable ASCII is a key")
}

pub(crate) fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes a secret of any length")
}

fn frame(resolved: &[Resolved], sink: impl FnMut(&[u8])) {
    let mut framer = Framer::new(sink);
    framer.part("parts", Some(&[VERSION]));
    for entry in resolved {
        framer.part(&entry.tag, entry.value.as_deref());
    }
}

/// One entry per value, or one that says there is none.
fn each<V: AsRef<[u8]>>(out: &mut Vec<Resolved>, tag: &str, values: impl IntoIterator<Item = V>) {
    let before = out.len();
    for value in values {
        let value = Some(Bytes::copy_from_slice(value.as_ref()));
        out.push(Resolved { tag: tag.into(), value });
    }
    if out.len() == before {
        out.push(Resolved { tag: tag.into(), value: None });
    }
}

/// The body as it is, under a tag that no parsed form has.
fn unparsed(tag: &str, request: &Request) -> Resolved {
    Resolved { tag: format!("unparsed:{tag}"), value: Some(request.body.clone()) }
}

fn json_or_raw(tag: &str, request: &Request, json: Result<Bytes, JsonError>) -> Resolved {
    match json {
        Ok(text) => Resolved { tag: tag.into(), value: Some(text) },
        Err(_) => unparsed(tag, request),
    }
}

fn json_at(at: &str, request: &Request) -> Result<Resolved, PartError> {
    let pointer = pointer(at)?;
    let tag = format!("json:{at}");
    Ok(match request.json() {
        Ok(json) => {
            let value = json.at(&pointer).map(|value| value.to_text().into());
            Resolved { tag, value }
        }
        Err(_) => unparsed(&tag, request),
    })
}

/// What is left out is part of the tag: a fingerprint made with another list compares something
/// else. The order of the list is not.
fn json_without(left_out: &[String], request: &Request) -> Result<Resolved, PartError> {
    let pointers = pointers(left_out)?;
    let mut names: Vec<&str> = left_out.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let tag = format!("json-without:{names:?}");
    let json = request.json().map(|json| json.without(&pointers).to_text().into());
    Ok(json_or_raw(&tag, request, json))
}

fn multipart(request: &Request, out: &mut Vec<Resolved>) {
    const TAG: &str = "body-multipart";
    let cut = request.content_type().and_then(|kind| multipart::parts(kind, &request.body));
    match cut {
        // How many there are comes first, so that a form of no parts is not an absent one.
        Some(parts) => {
            each(out, TAG, [parts.len().to_string()]);
            for part in parts {
                let value = Some(request.body.slice_ref(part));
                out.push(Resolved { tag: TAG.into(), value });
            }
        }
        None => out.push(unparsed(TAG, request)),
    }
}

/// Anything that is not a media type stands for itself.
fn media_types(request: &Request) -> impl Iterator<Item = Vec<u8>> {
    request.header_values("content-type").map(|line| {
        let parsed =
            std::str::from_utf8(line).ok().and_then(|text| text.parse::<mime::Mime>().ok());
        parsed.map_or_else(|| line.to_vec(), |media| media.essence_str().as_bytes().to_vec())
    })
}

fn header_name(name: &str) -> Result<HeaderName, PartError> {
    name.parse().map_err(|_| PartError::BadHeaderName(name.into()))
}

fn pointer(text: &str) -> Result<Pointer, PartError> {
    Pointer::parse(text).ok_or_else(|| PartError::BadPointer(text.into()))
}

fn pointers(texts: &[String]) -> Result<Vec<Pointer>, PartError> {
    let pointers: Vec<Pointer> =
        texts.iter().map(|text| pointer(text)).collect::<Result<_, _>>()?;
    if pointers.iter().any(Pointer::is_whole) {
        return Err(PartError::LeavesOutEverything);
    }
    Ok(pointers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(body: &str) -> Request {
        Request {
            method: "POST".into(),
            path: "/v1/payments".into(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            ..Request::default()
        }
    }

    fn with_headers(lines: &[(&'static str, &str)], body: &str) -> Request {
        let mut request = post(body);
        for (name, value) in lines {
            request.headers.append(*name, value.parse().expect("a header value"));
        }
        request
    }

    fn hash(parts: &[Part], request: &Request) -> [u8; 32] {
        digest(&resolve(parts, request).expect("parts"), None)
    }

    /// Whether two bodies count as the same.
    fn same(part: Part, left: &str, right: &str) -> bool {
        hash(std::slice::from_ref(&part), &post(left)) == hash(&[part], &post(right))
    }

    #[test]
    fn json_mode_sees_values_and_raw_mode_bytes() {
        let (left, right) = (r#"{"a":1,"b":2}"#, "{ \"b\":2, \"\\u0061\":1.0 }");
        assert!(same(Part::BodyJson, left, right));
        assert!(!same(Part::BodyBytes, left, right));
        assert!(!same(Part::BodyJson, "[1,2]", "[2,1]"));
        assert!(!same(Part::BodyJson, r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#));
    }

    #[test]
    fn a_body_that_is_not_json_counts_as_its_bytes() {
        for part in
            [Part::BodyJson, Part::JsonWithout(vec!["/a".into()]), Part::JsonPointer("/a".into())]
        {
            assert!(same(part.clone(), "not json", "not json"), "{part:?}");
            assert!(!same(part.clone(), "not json", "not json!"), "{part:?}");
            assert!(!same(part.clone(), r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#), "{part:?}");
        }
        // The same bytes, once as a value and once as bytes.
        let entry = |tag: &str| [Resolved { tag: tag.into(), value: Some("{}".into()) }];
        assert_ne!(digest(&entry("body-json"), None), digest(&entry("unparsed:body-json"), None));
    }

    #[test]
    fn values_can_be_left_out_or_picked() {
        let without = Part::JsonWithout(vec!["/sent_at".into()]);
        assert!(same(without.clone(), r#"{"a":1,"sent_at":1}"#, r#"{"sent_at":2,"a":1}"#));
        assert!(!same(without, r#"{"a":1,"sent_at":1}"#, r#"{"sent_at":1,"a":2}"#));
        let picked = Part::JsonPointer("/a".into());
        assert!(same(picked.clone(), r#"{"a":1,"b":1}"#, r#"{"b":2,"a":1.0}"#));
        assert!(!same(picked, r#"{"a":null}"#, "{}"));
    }

    #[test]
    fn the_list_of_what_is_left_out_is_part_of_the_digest_but_not_its_order() {
        let hash = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            hash(&[Part::JsonWithout(names)], &post("{}"))
        };
        assert_eq!(hash(&["/a", "/b"]), hash(&["/b", "/a", "/a"]));
        assert_ne!(hash(&["/a", "/b"]), hash(&["/a"]));
        assert_ne!(hash(&["/a, /b"]), hash(&["/a", "/b"]));
    }

    #[test]
    fn every_part_is_framed() {
        let request = |path: &str, body: &str, query: Option<&str>| Request {
            path: path.into(),
            query: query.map(Into::into),
            body: Bytes::copy_from_slice(body.as_bytes()),
            ..Request::default()
        };
        let all = [Part::Path, Part::Query, Part::BodyBytes];
        let hash = |path, body, query| hash(&all, &request(path, body, query));
        assert_ne!(hash("/a", "bc", None), hash("/ab", "c", None));
        assert_ne!(hash("/a", "", Some("")), hash("/a", "", None));
        assert_ne!(hash("/a", "b", Some("")), hash("/a", "", Some("b")));
    }

    #[test]
    fn repeated_values_stay_apart() {
        let part = [Part::Header("X-A".into())];
        let two = with_headers(&[("x-a", "1"), ("x-a", "2")], "");
        let joined = with_headers(&[("x-a", "1, 2")], "");
        let none = with_headers(&[], "");
        let empty = with_headers(&[("x-a", "")], "");
        let digests =
            [hash(&part, &two), hash(&part, &joined), hash(&part, &none), hash(&part, &empty)];
        for (index, left) in digests.iter().enumerate() {
            assert!(!digests[index + 1..].contains(left), "{index}");
        }

        let query = |text: &str| Request { query: Some(text.into()), ..Request::default() };
        let params = [Part::QueryParam("a".into()), Part::QueryParam("b".into())];
        assert_ne!(hash(&params, &query("a=&a=b&c=")), hash(&params, &query("a=&b=c&b=")),);
    }

    #[test]
    fn a_header_name_has_no_case() {
        let request = with_headers(&[("x-tenant", "t")], "");
        let parts = |name: &str| resolve(&[Part::Header(name.into())], &request);
        assert_eq!(parts("X-Tenant"), parts("x-tenant"));
        assert_eq!(parts("X-Tenant").expect("resolved")[0].tag, "header:x-tenant");
    }

    #[test]
    fn media_types_are_compared_without_parameters() {
        let hash =
            |kind: &str| hash(&[Part::MediaType], &with_headers(&[("content-type", kind)], ""));
        assert_eq!(hash("application/json"), hash("Application/JSON; charset=utf-8"));
        assert_ne!(hash("application/json"), hash("application/problem+json"));
        assert_ne!(hash("nonsense"), hash("Nonsense"));
    }

    #[test]
    fn a_form_is_compared_without_its_boundary() {
        let form = |boundary: &str, file: &str| {
            let body = format!("--{boundary}\r\nA: b\r\n\r\n{file}\r\n--{boundary}--\r\n");
            let kind = format!("multipart/form-data; boundary={boundary}");
            hash(&[Part::BodyMultipart], &with_headers(&[("content-type", &kind)], &body))
        };
        assert_eq!(form("one", "x"), form("two", "x"));
        assert_ne!(form("one", "x"), form("one", "y"));
        assert!(!same(Part::BodyMultipart, "a", "b"));
        assert!(same(Part::BodyMultipart, "a", "a"));
    }

    #[test]
    fn malformed_parts_are_errors() {
        let check = |part: Part, expected: PartError| {
            assert_eq!(part.check(), Err(expected.clone()));
            assert_eq!(resolve(&[part], &post("{}")), Err(expected));
        };
        check(Part::JsonPointer("a".into()), PartError::BadPointer("a".into()));
        check(Part::JsonWithout(vec!["/a".into(), "b".into()]), PartError::BadPointer("b".into()));
        check(Part::JsonWithout(vec![String::new()]), PartError::LeavesOutEverything);
        check(Part::Header("a b".into()), PartError::BadHeaderName("a b".into()));
    }

    #[test]
    fn a_secret_changes_the_digest() {
        let resolved = resolve(&[Part::BodyJson], &post(r#"{"pin":1234}"#)).expect("parts");
        let plain = digest(&resolved, None);
        assert_ne!(plain, digest(&resolved, Some(b"s1")));
        assert_ne!(digest(&resolved, Some(b"s1")), digest(&resolved, Some(b"s2")));
    }

    #[test]
    fn a_derived_key_is_stable_for_ever() {
        let parts = [Part::Method, Part::Path, Part::Query, Part::BodyJson];
        let resolved = resolve(&parts, &post(r#"{"amount":1}"#)).expect("parts");
        assert_eq!(
            derived_key(&resolved, None).expose(),
            "derived:9897ffc351827fb4de1928864b2de328d0c978df48eadf2448a485123b6d7e41"
        );
    }
}
