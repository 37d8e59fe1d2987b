//! Sample requests that a plugin is tried out with before it may serve.
//!
//! They are not there to prove a plugin right, which only its author can, but to find at load
//! what would otherwise hit every request: a trap in the first call, an answer outside the
//! rules, two instances that disagree.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::request::Request;

/// What is tried, each with a name for messages.
pub(crate) fn requests() -> Vec<(&'static str, Arc<Request>)> {
    let key = HeaderName::from_static("idempotency-key");
    let json = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let quoted = HeaderValue::from_static("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"");
    let bare = HeaderValue::from_static("8e03978e-40d5-43dd-bc93-6894a57f9324");
    let token = (AUTHORIZATION, HeaderValue::from_static("Bearer sample"));
    vec![
        (
            "a POST with a quoted key and a JSON body",
            sample(
                "POST",
                [json.clone(), (key.clone(), quoted.clone())],
                r#"{"id":1,"n":[1.5,"ü"]}"#,
            ),
        ),
        (
            "a POST with a bare key and a body that is not JSON",
            sample("POST", [(key.clone(), bare), token.clone()], "not json \u{0}"),
        ),
        ("a PUT with neither key nor body", sample("PUT", [json.clone(), token], "")),
        (
            "a PATCH with two key lines",
            sample("PATCH", [(key.clone(), quoted.clone()), (key, quoted)], "{}"),
        ),
    ]
}

fn sample<const N: usize>(
    method: &str,
    headers: [(HeaderName, HeaderValue); N],
    body: &'static str,
) -> Arc<Request> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name, value);
    }
    Arc::new(Request {
        method: method.into(),
        route: "sample".into(),
        scheme: "https".into(),
        authority: "api.example.com".into(),
        path: "/v1/samples/a%20b".into(),
        path_params: vec![("id".into(), "a b".into())],
        query: Some("a=1&a=2&b".into()),
        headers: map,
        principal: Some("sample-principal".into()),
        body: Bytes::from_static(body.as_bytes()),
        ..Request::default()
    })
}
