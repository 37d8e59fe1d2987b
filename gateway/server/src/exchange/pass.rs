//! Requests that are not guarded, or that the policy lets through unprotected.

use axum::body::Body;
use http::{HeaderMap, Request, Response, header};
use hyper::body::Incoming;

use super::forward::clean;
use super::stage::{Buffered, Open, Reply};
use crate::headers;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::upstream::CallError;

/// Streams a request through, both ways, without buffering. The store is never asked.
pub(crate) async fn through(open: Open) -> Reply {
    let Open { context, mut parts, body } = open;
    let keep = forward_name(&context);
    // The framing follows from the body: a declared length stays, the rest goes chunked.
    clean(&mut parts, keep.as_ref());
    let upstream = context.route.upstream.clone();
    let send = context.gateway.upstream.send(&upstream, Request::from_parts(parts, body));
    match tokio::time::timeout(context.route.upstream_timeout, send).await {
        Ok(Ok(response)) => Reply { outcome: Outcome::Passed, response: streamed(response) },
        Ok(Err(CallError::NeverSent(_, cause) | CallError::Ambiguous(_, cause))) => {
            tracing::warn!(upstream = %upstream.name, cause, "the upstream did not answer");
            Reply::problem(&context.gateway, None, &Problem::UpstreamFailed { timeout: false })
        }
        Err(_elapsed) => {
            Reply::problem(&context.gateway, None, &Problem::UpstreamFailed { timeout: true })
        }
    }
}

/// Forwards a guarded request without protection, and says so in the answer and the metric.
pub(crate) async fn unprotected(buffered: Buffered, why: &'static str) -> Reply {
    let context = buffered.context.clone();
    tracing::warn!(operation = %context.operation(), why, "forwarded unprotected");
    let mut parts = buffered.parts.clone();
    let keep = forward_name(&context);
    clean(&mut parts, keep.as_ref());
    let send =
        context.gateway.upstream.send_buffered(&context.route.upstream, &parts, buffered.body());
    match tokio::time::timeout(context.route.upstream_timeout, send).await {
        Ok(Ok(response)) => {
            let mut response = streamed(response);
            headers::strip_gateway_only(response.headers_mut());
            Reply::guarded(Outcome::Unprotected, response)
        }
        Ok(Err(CallError::NeverSent(why, cause))) => {
            tracing::warn!(operation = %context.operation(), cause, "the upstream was not reached");
            counted_unprotected(context.problem(&Problem::UpstreamUnreachable(why)))
        }
        Ok(Err(CallError::Ambiguous(_, cause))) => {
            tracing::warn!(operation = %context.operation(), cause, "the upstream broke off");
            counted_unprotected(context.problem(&Problem::UpstreamFailed { timeout: false }))
        }
        Err(_elapsed) => {
            counted_unprotected(context.problem(&Problem::UpstreamFailed { timeout: true }))
        }
    }
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
