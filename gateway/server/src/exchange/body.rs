//! Step 2: the whole body, up to the route's limit, before anything is reserved.

use std::error::Error;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::header;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use oncegate_plugin_host as plugin_host;

use super::stage::{Buffered, Exit, Routed};
use crate::problem::Problem;
use crate::upstream::{chain, host_of, sources};

/// Reads the body. Past the limit the answer is 413 whether the length was declared or not.
/// Trailers are dropped: they could smuggle a second key past the plugins.
pub(crate) async fn buffer(routed: Routed) -> Result<Buffered, Exit> {
    let Routed { context, parts, params, body } = routed;
    let limit = context.guard().max_body;
    if declared_length(&parts).is_some_and(|declared| declared > limit as u64) {
        return Err(context.problem(&Problem::BodyTooLarge(limit)).into());
    }
    let deadline = context.gateway.body_timeout;
    let body = match tokio::time::timeout(deadline, read(body, limit)).await {
        Ok(Ok(body)) => body,
        Ok(Err(problem)) => return Err(context.problem(&problem).into()),
        Err(_elapsed) => return Err(context.problem(&Problem::BodyTimeout).into()),
    };
    let view = view_of(context.operation().as_str(), &parts, params, body);
    Ok(Buffered { view: Arc::new(view), context, parts })
}

fn declared_length(parts: &http::request::Parts) -> Option<u64> {
    parts.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn read(body: Body, limit: usize) -> Result<Bytes, Problem> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if is_over_limit(error.as_ref()) => Err(Problem::BodyTooLarge(limit)),
        Err(error) => {
            let rule = format!("The request body broke off: {}.", chain(error.as_ref()));
            Err(Problem::BodyIncomplete(rule))
        }
    }
}

fn is_over_limit(error: &(dyn Error + 'static)) -> bool {
    error.is::<LengthLimitError>() || sources(error).any(|cause| cause.is::<LengthLimitError>())
}

/// The request as plugins see it.
pub(crate) fn view_of(
    route: &str,
    parts: &http::request::Parts,
    params: Vec<(String, String)>,
    body: Bytes,
) -> plugin_host::Request {
    let authority = host_of(parts)
        .and_then(|host| host.to_str().map(str::to_ascii_lowercase).ok())
        .unwrap_or_default();
    plugin_host::Request {
        method: parts.method.as_str().to_owned(),
        route: route.to_owned(),
        scheme: "http".to_owned(),
        authority,
        path: parts.uri.path().to_owned(),
        path_params: params,
        query: parts.uri.query().map(str::to_owned),
        headers: parts.headers.clone(),
        principal: None,
        body,
        ..plugin_host::Request::default()
    }
}
