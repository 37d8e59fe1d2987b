//! Header names the gateway owns, and which headers end at a hop.

use http::{HeaderMap, HeaderName, header};

/// Answers: how the request ended, see [`crate::outcome::Outcome`].
pub(crate) const STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// Answers: until when the record is kept, as an HTTP date.
pub(crate) const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// Replays: `true`.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Replays: when the first execution finished, as an HTTP date.
pub(crate) const COMPLETED: HeaderName = HeaderName::from_static("idempotency-completed");
/// Upstream requests: the reservation's fence, where the route trusts its upstream with it.
pub(crate) const FENCE: HeaderName = HeaderName::from_static("idempotency-fence");
/// Upstream answers: `no` asks that the answer be used once and not kept.
pub(crate) const KEEP: HeaderName = HeaderName::from_static("idempotency-keep");

/// Said by the gateway only; what a client sends under these names is dropped.
const GATEWAY_ONLY: [HeaderName; 6] = [STATUS, EXPIRES, REPLAYED, COMPLETED, FENCE, KEEP];

/// RFC 9110 section 7.6.1, with the older names that still occur.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Naming one of these in `Connection` must not remove them: they carry the protection itself.
fn is_protected(name: &HeaderName) -> bool {
    name == "idempotency-key"
        || *name == header::AUTHORIZATION
        || *name == header::HOST
        || *name == header::CONTENT_LENGTH
        || *name == header::COOKIE
}

/// Removes hop-by-hop headers and what `Connection` names, save the protected ones and
/// `keep`, the name under which the key travels.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap, keep: Option<&HeaderName>) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| !is_protected(name) && Some(name) != keep)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Removes what only a gateway may say.
pub(crate) fn strip_gateway_only(headers: &mut HeaderMap) {
    for name in &GATEWAY_ONLY {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_cannot_strip_the_key() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop, idempotency-key, x-my-key"),
            ("x-hop", "1"),
            ("idempotency-key", "k"),
            ("x-my-key", "k"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ] {
            headers.insert(HeaderName::from_static(name), value.parse().expect("value"));
        }
        strip_hop_by_hop(&mut headers, Some(&HeaderName::from_static("x-my-key")));
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "idempotency-key", "x-my-key"]);
    }

    #[test]
    fn only_a_gateway_says_replayed() {
        let mut headers = HeaderMap::new();
        headers.insert(REPLAYED, "true".parse().expect("value"));
        headers.insert(STATUS, "fresh".parse().expect("value"));
        strip_gateway_only(&mut headers);
        assert!(headers.is_empty());
    }
}
