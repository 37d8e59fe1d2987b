//! What a request's head must be before anything is made of it. The library accepts more than
//! is safe to forward; where two servers could read a head differently, the answer is 400.

use http::{HeaderMap, HeaderValue, Version, header};

use crate::problem::Problem;

/// Checks method, authority and framing.
pub(crate) fn check(parts: &http::request::Parts) -> Result<(), Problem> {
    if oncegate_policy::method_is_ambiguous(parts.method.as_str()) {
        // `post` would miss a route for POST, and frameworks that fold case would run it.
        return refuse("A method is written in capitals.");
    }
    check_authority(parts)?;
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
    let only_chunked = codings
        .next()
        .is_none_or(|first| first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"));
    if !only_chunked || codings.next().is_some() {
        return refuse("The only transfer coding accepted is `chunked`, said once.");
    }
    Ok(())
}

/// One authority: the one that is matched, fingerprinted and forwarded.
fn check_authority(parts: &http::request::Parts) -> Result<(), Problem> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    if another.is_some() {
        return refuse("There is one Host line.");
    }
    let host = match host {
        Some(host) => Some(authority_of(host)?),
        None => None,
    };
    match (parts.uri.authority(), host) {
        (Some(target), _) if target.as_str().contains('@') => {
            refuse("An authority holds no user information.")
        }
        (Some(target), Some(host)) if !target.as_str().eq_ignore_ascii_case(host.as_str()) => {
            refuse("The target and the Host line name different hosts.")
        }
        (None, None) if parts.version == Version::HTTP_11 => refuse("The Host line is missing."),
        (Some(_) | None, _) => Ok(()),
    }
}

fn authority_of(host: &HeaderValue) -> Result<http::uri::Authority, Problem> {
    match host.to_str().ok().and_then(|text| text.parse::<http::uri::Authority>().ok()) {
        Some(authority) if !authority.as_str().contains('@') => Ok(authority),
        Some(_) | None => Err(Problem::BadRequest("The Host line is not a host and port.".into())),
    }
}

fn refuse(rule: &str) -> Result<(), Problem> {
    Err(Problem::BadRequest(rule.to_owned()))
}

/// Whether a front server took the request from TLS early data, which may be replayed by anyone
/// who saw it (RFC 8470).
pub(crate) fn is_early_data(headers: &HeaderMap) -> bool {
    headers.get("early-data").is_some_and(|value| value.as_bytes() == b"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_two_servers_could_read_differently_are_refused() {
        let refused = |method: &str, target: &str, lines: &[(&str, &str)]| {
            let mut request = http::Request::builder().method(method).uri(target);
            for (name, value) in lines {
                request = request.header(*name, *value);
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            check(&parts).is_err()
        };
        let host = ("host", "a.example:80");
        assert!(!refused("POST", "/", &[host]));
        assert!(!refused("POST", "http://A.example:80/", &[host]));
        assert!(!refused("POST", "/", &[host, ("transfer-encoding", "Chunked")]));
        for (method, target, lines) in [
            ("post", "/", vec![host]),
            ("POST", "/", vec![]),
            ("POST", "/", vec![host, host]),
            ("POST", "/", vec![("host", "")]),
            ("POST", "/", vec![("host", "a/../b")]),
            ("POST", "/", vec![("host", "user@a.example")]),
            ("POST", "http://b.example/", vec![host]),
            ("POST", "/", vec![host, ("transfer-encoding", "gzip, chunked")]),
            (
                "POST",
                "/",
                vec![host, ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            ),
        ] {
            assert!(refused(method, target, &lines), "{method} {target} {lines:?}");
        }
    }
}
