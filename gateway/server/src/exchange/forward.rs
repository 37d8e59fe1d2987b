//! Step 5: the key goes upstream with the request, once, and what comes back is classified by
//! what is *known* about it.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use oncegate_core::{DispatchVerdict, TombstoneReason, UnknownReason};
use tokio::time::Instant;

use super::permit::Dispatched;
use super::reserve::Granted;
use super::stage::{Buffered, Exit, Keyed};
use crate::headers;
use crate::metrics::Violation;
use crate::problem::{Problem, Unreachable};
use crate::upstream::{CallError, chain, host_of};

/// After step 5: the upstream was asked, and this is what is known.
pub(crate) struct Called {
    pub(crate) permit: Dispatched,
    pub(crate) keyed: Keyed,
    pub(crate) outcome: CallOutcome,
}

/// What is known about one upstream call.
pub(crate) enum CallOutcome {
    /// Nothing left the gateway.
    NeverSent(Unreachable),
    /// It may have been processed; there is no whole answer.
    Ambiguous(UnknownReason),
    /// A whole answer.
    Whole { head: http::response::Parts, body: Bytes },
    /// An answer that cannot be kept; its rest is still on its way to the client.
    Unkeepable { head: http::response::Parts, body: Body, reason: TombstoneReason },
}

/// Checks the right to send once more, sends, and reads the answer as far as it can be kept.
pub(crate) async fn forward(granted: Granted) -> Result<Called, Exit> {
    let Granted { permit, keyed } = granted;
    let context = keyed.buffered.context.clone();
    let guard = context.guard();
    let mut lease_ends = permit.held().lease_ends;
    if guard.two_phase {
        let asked_at = Instant::now();
        match permit.announce(guard.lease).await {
            Ok(DispatchVerdict::Go) => lease_ends = asked_at + guard.lease,
            Ok(DispatchVerdict::Lost) => {
                permit.lost();
                let retry_after = Duration::from_secs(1);
                let status = guard.in_flight_status;
                return Err(context.problem(&Problem::InProgress { status, retry_after }).into());
            }
            Err(error) => {
                context.gateway.metrics.store_failed(error.code());
                permit.release().await;
                return Err(context.problem(&Problem::StoreUnavailable).into());
            }
        }
    }
    if Instant::now() >= lease_ends {
        // Stopped for longer than the lease (a suspended machine): others may already count
        // this reservation as lost, so it must not wake up and send.
        context.gateway.metrics.violation(Violation::LeaseRanOut);
        permit.release().await;
        return Err(context.problem(&Problem::StoreUnavailable).into());
    }
    let fence = guard.forward_fence.then(|| permit.held().claim.fence.0);
    let parts = outgoing(&keyed, fence);
    let permit = permit.dispatch(guard.lease, lease_ends);
    let outcome = permit.renewing(call(&keyed.buffered, parts)).await;
    Ok(Called { permit, keyed, outcome })
}

async fn call(buffered: &Buffered, parts: http::request::Parts) -> CallOutcome {
    let context = &buffered.context;
    let deadline = Instant::now() + context.route.upstream_timeout;
    let upstream = &context.route.upstream;
    let client = &context.gateway.upstream;
    match client.send_buffered(upstream, &parts, buffered.body(), deadline).await {
        Ok(response) => {
            let limit = context.guard().max_answer;
            tokio::time::timeout_at(deadline, read(response, limit))
                .await
                .unwrap_or(CallOutcome::Ambiguous(UnknownReason::UpstreamTimeout))
        }
        Err(CallError::NeverSent(why, cause)) => {
            tracing::warn!(operation = %context.operation(), cause, "the upstream was not reached");
            CallOutcome::NeverSent(why)
        }
        Err(CallError::Ambiguous(reason, cause)) => {
            tracing::warn!(operation = %context.operation(), cause, "the upstream's answer was lost");
            CallOutcome::Ambiguous(reason)
        }
    }
}

/// Reads an answer whole, or finds that it cannot be kept; then its first byte is not delayed
/// by more than the limit.
async fn read(response: Response<Incoming>, limit: usize) -> CallOutcome {
    let (mut head, body) = response.into_parts();
    if head.status.is_informational() {
        return CallOutcome::Ambiguous(UnknownReason::BrokenAnswer);
    }
    let announced = head.headers.get(header::TRAILER).cloned();
    headers::strip_hop_by_hop(&mut head.headers, None);
    let reason = if is_event_stream(&head.headers) {
        Some(TombstoneReason::Streamed)
    } else if body.size_hint().lower() > limit as u64 {
        Some(TombstoneReason::TooLarge)
    } else {
        announced.is_some().then_some(TombstoneReason::Trailers)
    };
    if let Some(announced) = announced {
        // Streamed on, the answer keeps its trailers; HTTP/1.1 wants them announced.
        head.headers.insert(header::TRAILER, announced);
    }
    match reason {
        Some(reason) => CallOutcome::Unkeepable { head, body: Body::new(body), reason },
        None => collect(head, body, limit).await,
    }
}

async fn collect(head: http::response::Parts, mut body: Incoming, limit: usize) -> CallOutcome {
    let mut kept = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                tracing::warn!(cause = chain(&error), "the upstream's answer broke off");
                return CallOutcome::Ambiguous(UnknownReason::BrokenAnswer);
            }
        };
        match frame.into_data() {
            Ok(data) if kept.is_empty() && data.len() <= limit && body.is_end_stream() => {
                return CallOutcome::Whole { head, body: data };
            }
            Ok(data) => kept.extend_from_slice(&data),
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    let body = with_trailers(kept.freeze(), trailers);
                    let reason = TombstoneReason::Trailers;
                    return CallOutcome::Unkeepable { head, body, reason };
                }
            }
        }
        if kept.len() > limit {
            let body = rest_of(kept.freeze(), body);
            return CallOutcome::Unkeepable { head, body, reason: TombstoneReason::TooLarge };
        }
    }
    CallOutcome::Whole { head, body: kept.freeze() }
}

fn rest_of(first: Bytes, rest: Incoming) -> Body {
    use futures::StreamExt;
    let first = futures::stream::once(async { Ok(hyper::body::Frame::data(first)) });
    let rest = http_body_util::BodyStream::new(rest);
    Body::new(http_body_util::StreamBody::new(first.chain(rest)))
}

fn with_trailers(data: Bytes, trailers: HeaderMap) -> Body {
    let frames = [hyper::body::Frame::data(data), hyper::body::Frame::trailers(trailers)];
    let frames = frames.map(Ok::<_, std::convert::Infallible>);
    Body::new(http_body_util::StreamBody::new(futures::stream::iter(frames)))
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
        value.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
    })
}

/// The request as it goes upstream: rebuilt with one length, one host and one key.
fn outgoing(keyed: &Keyed, fence: Option<u64>) -> http::request::Parts {
    let buffered = &keyed.buffered;
    let mut parts = buffered.parts.clone();
    let forward_as = buffered.context.guard().forward_as.as_deref();
    let key_header = forward_as.and_then(|name| name.parse::<HeaderName>().ok());
    clean(&mut parts, key_header.as_ref());
    // Said aloud also for an empty body, which some servers insist on.
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(buffered.body().len()));
    if let Some(name) = key_header {
        let already = sole_value(&parts.headers, &name)
            .is_some_and(|value| writes_key(value, keyed.key.expose()));
        if !already && let Ok(value) = HeaderValue::from_str(&quoted(keyed.key.expose())) {
            parts.headers.insert(name, value);
        }
    }
    if let Some(fence) = fence {
        parts.headers.insert(headers::FENCE, HeaderValue::from(fence));
    }
    parts
}

/// Removes what ends at this hop. The body is at hand, so its framing and `Expect` are ours.
pub(crate) fn clean(parts: &mut http::request::Parts, key_header: Option<&HeaderName>) {
    let host = host_of(parts);
    headers::strip_hop_by_hop(&mut parts.headers, key_header);
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::EXPECT);
    join_cookies(&mut parts.headers);
    match host {
        Some(host) => drop(parts.headers.insert(header::HOST, host)),
        None => drop(parts.headers.remove(header::HOST)),
    }
}

/// HTTP/2 may split `Cookie` into several lines; HTTP/1.1 knows one (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1
        && let Ok(mut joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..]))
    {
        joined.set_sensitive(true);
        headers.insert(header::COOKIE, joined);
    }
}

fn sole_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    first.filter(|_| values.next().is_none())
}

/// Whether what the client sent already names `key`: then it goes on byte for byte.
fn writes_key(value: &HeaderValue, key: &str) -> bool {
    let Ok(text) = value.to_str() else { return false };
    let text = text.trim_matches([' ', '\t']);
    let bare = text == key || text.split_once(';').is_some_and(|(bare, _)| bare.trim_end() == key);
    bare || text
        .strip_prefix(&quoted(key))
        .is_some_and(|rest| rest.is_empty() || rest.trim_start().starts_with(';'))
}

/// A structured-field string (RFC 8941, 3.3.3).
fn quoted(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_the_key_already_is_left_alone() {
        let check = |value: &str, key: &str, expected: bool| {
            let value = HeaderValue::from_str(value).expect("value");
            assert_eq!(writes_key(&value, key), expected, "{value:?} {key}");
        };
        check("\"abc\"", "abc", true);
        check("abc", "abc", true);
        check("  \"abc\";a=1", "abc", true);
        check("\"a\\\"b\"", "a\"b", true);
        check("\"abcd\"", "abc", false);
        check("abcd", "abc", false);
        check("\"abc\"x", "abc", false);
    }

    #[test]
    fn split_cookies_become_one_line() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=1".parse().expect("value"));
        headers.append(header::COOKIE, "b=2".parse().expect("value"));
        join_cookies(&mut headers);
        assert_eq!(headers.get_all(header::COOKIE).iter().count(), 1);
        assert_eq!(headers[header::COOKIE], "a=1; b=2");
    }
}
