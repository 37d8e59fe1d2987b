//! The request as plugins and parts see it.

use std::sync::OnceLock;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use percent_encoding::percent_decode;
use sha2::{Digest, Sha256};

use crate::canonical::{Json, JsonError};

/// Built by the server once per request, whole: the body is buffered before any plugin is
/// asked, so a slow client never holds an instance.
///
/// Build it with `Request { method, path, …, ..Request::default() }`.
#[derive(Default)]
pub struct Request {
    /// The method, as sent.
    pub method: String,
    /// The operation name of the matched route.
    pub route: String,
    /// `http` or `https`.
    pub scheme: String,
    /// Host and port the client asked for.
    pub authority: String,
    /// The path, still percent-encoded.
    pub path: String,
    /// What the route's pattern captured.
    pub path_params: Vec<(String, String)>,
    /// The query without its `?`.
    pub query: Option<String>,
    /// All header lines.
    pub headers: HeaderMap,
    /// Whom the gateway authenticated.
    pub principal: Option<String>,
    /// The whole body, transfer decoded.
    pub body: Bytes,
    /// What was worked out so far; starts empty.
    pub cache: Cache,
}

/// Several plugins and parts look at one body; what is costly is done once.
#[derive(Default)]
pub struct Cache {
    sha256: OnceLock<[u8; 32]>,
    json: OnceLock<Result<Json, JsonError>>,
    json_text: OnceLock<Bytes>,
}

impl Request {
    pub(crate) fn path_param(&self, name: &str) -> Option<&str> {
        self.path_params.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Values of a query parameter in order, decoded to bytes: `%XX` and `+` as in a form.
    /// Bytes, because a decoding to text would make different values alike.
    pub(crate) fn query_param(&self, name: &str) -> Vec<Vec<u8>> {
        let decode = |text: &str| percent_decode(text.replace('+', " ").as_bytes()).collect();
        self.query
            .iter()
            .flat_map(|query| query.split('&'))
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .filter(|(known, _)| {
                let known: Vec<u8> = decode(known);
                known == name.as_bytes()
            })
            .map(|(_, value)| decode(value))
            .collect()
    }

    pub(crate) fn header_values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.headers.get_all(name).iter().map(|value| value.as_bytes())
    }

    pub(crate) fn content_type(&self) -> Option<&str> {
        self.headers.get(CONTENT_TYPE)?.to_str().ok()
    }

    pub(crate) fn body_sha256(&self) -> &[u8; 32] {
        self.cache.sha256.get_or_init(|| Sha256::digest(&self.body).into())
    }

    pub(crate) fn json(&self) -> Result<&Json, JsonError> {
        let parsed = self.cache.json.get_or_init(|| Json::parse(&self.body));
        parsed.as_ref().map_err(|error| *error)
    }

    /// The body in canonical form.
    pub(crate) fn json_text(&self) -> Result<Bytes, JsonError> {
        let json = self.json()?;
        Ok(self.cache.json_text.get_or_init(|| json.to_text().into()).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_parameters_are_decoded_without_loss() {
        let check = |query: &str, name: &str, expected: &[&[u8]]| {
            let request = Request { query: Some(query.into()), ..Request::default() };
            assert_eq!(request.query_param(name), expected, "{query}");
        };
        check("a=1&b=2&a=3", "a", &[b"1", b"3"]);
        check("a=x+y%20z%2B", "a", &[b"x y z+"]);
        check("%61=1", "a", &[b"1"]);
        check("a", "a", &[b""]);
        check("a=b=c", "a", &[b"b=c"]);
        check("a=%FF&a=%FE&a=%zz", "a", &[b"\xff", b"\xfe", b"%zz"]);
        check("", "a", &[]);
    }
}
