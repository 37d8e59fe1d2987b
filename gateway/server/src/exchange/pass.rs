//! Requests that are not guarded, or that the policy lets through unprotected.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use oncegate_core::UnknownReason;
use tokio::time::Instant;

use super::forward::clean;
use super::stage::{Buffered, Open, Reply};
use crate::headers;
use crate::outcome::Outcome;
use crate::problem::{Problem, Unreachable};
use crate::upstream::CallError;

/// Streams a request through, both ways, without buffering. The store is never asked.
pub(crate) async fn through(open: Open) -> Reply {
    let Open { context, mut parts, body } = open;
    let keep = forward_name(&context);
    // The framing follows from the body: a declared length stays, the rest goes chunked.
    clean(&mut parts, keep.as_ref());
    let upstream = context.route.upstream.clone();
    let deadline = Instant::now() + context.route.upstream_timeout;
    let request = Request::from_parts(parts, body);
    match context.gateway.upstream.send(&upstream, request, deadline).await {
        Ok(response) => Reply { outcome: Outcome::Passed, response: streamed(response) },
        Err(error) => Reply::problem(&context.gateway, None, &failed(&upstream.name, error)),
    }
}

/// Forwards a guarded request without protection, and says so in the answer and the metrics.
pub(crate) async fn unprotected(buffered: Buffered, why: &'static str) -> Reply {
    let context = buffered.context.clone();
    tracing::warn!(operation = %context.operation(), why, "forwarded unprotected");
    context.gateway.metrics.sent_unprotected(context.operation().as_str(), why);
    let mut parts = buffered.parts.clone();
    let keep = forward_name(&context);
    clean(&mut parts, keep.as_ref());
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(buffered.body().len()));
    let upstream = &context.route.upstream;
    let deadline = Instant::now() + context.route.upstream_timeout;
    let client = &context.gateway.upstream;
    match client.send_buffered(upstream, &parts, buffered.body(), deadline).await {
        Ok(response) => {
            let mut response = streamed(response);
            headers::strip_gateway_only(response.headers_mut());
            Reply::guarded(Outcome::Unprotected, response)
        }
        Err(CallError::NeverSent(why, cause)) => {
            tracing::warn!(operation = %context.operation(), cause, "the upstream was not reached");
            counted_unprotected(context.problem(&Problem::UpstreamUnreachable(why)))
        }
        Err(error @ CallError::Ambiguous(..)) => {
            counted_unprotected(context.problem(&failed(&upstream.name, error)))
        }
    }
}

/// Nothing is recorded here, so all that matters is what the client is told.
fn failed(upstream: &str, error: CallError) -> Problem {
    let (timeout, cause) = match error {
        CallError::NeverSent(why, cause) => (why == Unreachable::ConnectTimeout, cause),
        CallError::Ambiguous(reason, cause) => (reason == UnknownReason::UpstreamTimeout, cause),
    };
    tracing::warn!(upstream, cause, "the upstream did not answer");
    Problem::UpstreamFailed { timeout }
}

fn counted_unprotected(reply: Reply) -> Reply {
    Reply::guarded(Outcome::Unprotected, reply.response)
}

fn forward_name(context: &super::stage::Context) -> Option<http::HeaderName> {
    context.route.guard.as_ref()?.forward_as.as_deref()?.parse().ok()
}

/// What an inner gateway says about an unguarded route passes: it is that gateway's word.
fn streamed(response: Response<Incoming>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let trailer: HeaderMap = head
        .headers
        .get(header::TRAILER)
        .map(|value| HeaderMap::from_iter([(header::TRAILER, value.clone())]))
        .unwrap_or_default();
    headers::strip_hop_by_hop(&mut head.headers, None);
    head.headers.extend(trailer);
    Response::from_parts(head, Body::new(body))
}
