//! Step 1: from the request's head to a route of the current policy snapshot.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request, Uri, header};
use oncegate_policy::path;

use super::head;
use super::stage::{Context, Open, Reply, Routed};
use crate::gateway::Gateway;
use crate::headers;
use crate::problem::Problem;

/// What the route step found.
pub(crate) enum Route {
    /// An operation to execute once.
    Guarded(Routed),
    /// Nothing to protect: stream it through.
    Open(Open),
    /// Answered here.
    Refused(Reply),
}

/// Finds the most specific route. What only a gateway may say is dropped from the request.
pub(crate) fn route(gateway: Arc<Gateway>, request: Request<Body>) -> Route {
    let (mut parts, body) = request.into_parts();
    headers::strip_gateway_only(&mut parts.headers);
    if let Err(problem) = head::check(&parts).and_then(|()| canonicalise(&mut parts)) {
        return Route::Refused(Reply::problem(&gateway, None, &problem));
    }
    let generation = gateway.generation.load_full();
    let host = host_name(&parts);
    let found = generation
        .policy
        .route(host.as_deref().unwrap_or(""), parts.method.as_str(), parts.uri.path())
        .map(|matched| (Arc::clone(matched.route), matched.params));
    let Some((route, params)) = found else {
        return Route::Refused(Reply::problem(&gateway, None, &Problem::NoRoute));
    };
    let context = Context { gateway, generation, route };
    if parts.method == Method::CONNECT {
        return Route::Refused(context.problem(&Problem::UpgradeRefused));
    }
    // Safe methods (RFC 9110, 9.2.1) are never reserved and never answered from a record.
    if context.route.guard_for(parts.method.as_str()).is_none() {
        return Route::Open(Open { context, parts, body });
    }
    if parts.headers.contains_key(header::UPGRADE) {
        return Route::Refused(context.problem(&Problem::UpgradeRefused));
    }
    if head::is_early_data(&parts.headers) {
        return Route::Refused(context.problem(&Problem::TooEarly));
    }
    // Before anything is derived: what does not go upstream must not count for key or scope.
    let keep = context.guard().forward_as.as_deref().and_then(|name| name.parse().ok());
    headers::strip_hop_by_hop(&mut parts.headers, keep.as_ref());
    Route::Guarded(Routed { context, parts, params, body })
}

/// The path that is matched is the path that is fingerprinted and forwarded: one spelling, and
/// none on which servers disagree.
pub(crate) fn canonicalise(parts: &mut http::request::Parts) -> Result<(), Problem> {
    let refuse = |rule: &dyn std::fmt::Display| Problem::BadRequest(format!("{rule}."));
    let path = match path::canonical(parts.uri.path()) {
        Ok(Cow::Borrowed(_)) => return Ok(()),
        Ok(Cow::Owned(path)) => path,
        Err(error) => return Err(refuse(&error)),
    };
    let target = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.path_and_query = Some(target.parse().map_err(|error| refuse(&error))?);
    parts.uri = Uri::from_parts(uri).map_err(|error| refuse(&error))?;
    Ok(())
}

/// The host the client asked for, without its port, in lower case.
pub(crate) fn host_name(parts: &http::request::Parts) -> Option<String> {
    let named = match parts.uri.authority() {
        Some(authority) => authority.host().to_owned(),
        None => {
            let host = parts.headers.get(header::HOST)?.to_str().ok()?;
            host.parse::<http::uri::Authority>().ok()?.host().to_owned()
        }
    };
    Some(named.to_ascii_lowercase())
}
