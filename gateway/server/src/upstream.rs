//! The upstream side: one pooled HTTP/1.1 client, and what is known when a call fails.
//!
//! The distinction that matters is whether the first byte can have left. The client library
//! tells it: a failed connect, a request cancelled while it waited for a pooled connection, and
//! a connection that was never ready were never sent; anything else may have been.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Request, Response, Uri, Version, header};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use oncegate_core::UnknownReason;
use oncegate_policy::{Endpoint, Upstream};
use tokio::time::Instant;

use crate::problem::Unreachable;

/// Idle connections are closed before common servers (60 to 75 s) close them, so that a request
/// rarely meets a connection that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Waits before the second and third attempt to connect.
const CONNECT_BACKOFF: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(150)];

/// See the module.
pub(crate) struct UpstreamClient {
    /// One client for each connect time-out that the policies name: the library sets it on the
    /// connector. There are as many as there are different values.
    clients: RwLock<HashMap<Duration, Client<HttpConnector, Body>>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// Nothing left the gateway: safe to give the key back.
    NeverSent(Unreachable, String),
    /// The request may have been processed.
    Ambiguous(UnknownReason, String),
}

impl UpstreamClient {
    pub(crate) fn new() -> Self {
        Self { clients: RwLock::default() }
    }

    fn client(&self, connect_timeout: Duration) -> Client<HttpConnector, Body> {
        let known = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(&connect_timeout) {
            return client.clone();
        }
        drop(known);
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.entry(connect_timeout).or_insert_with(|| new_client(connect_timeout)).clone()
    }

    /// Sends a request whose body is at hand. A failed connect is tried again, on the next
    /// endpoint if there is one; once a byte may have left, never. Past the deadline the answer
    /// depends on whether a connection had been found by then.
    pub(crate) async fn send_buffered(
        &self,
        upstream: &Upstream,
        parts: &http::request::Parts,
        body: &bytes::Bytes,
        deadline: Instant,
    ) -> Result<Response<Incoming>, CallError> {
        let mut attempt = 0;
        loop {
            let request = Request::from_parts(parts.clone(), Body::from(body.clone()));
            match self.send(upstream, request, deadline).await {
                Err(CallError::NeverSent(..)) if attempt < CONNECT_BACKOFF.len() => {
                    let again_at = Instant::now() + CONNECT_BACKOFF[attempt];
                    if again_at >= deadline {
                        let why = "no time is left to connect".to_owned();
                        return Err(CallError::NeverSent(Unreachable::ConnectTimeout, why));
                    }
                    tokio::time::sleep_until(again_at).await;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Sends a request once, to the next endpoint in turn.
    pub(crate) async fn send(
        &self,
        upstream: &Upstream,
        mut request: Request<Body>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, CallError> {
        let Some(endpoint) = upstream.next_endpoint() else {
            let why = format!("upstream {} has no endpoint", upstream.name);
            return Err(CallError::NeverSent(Unreachable::NoConnection, why));
        };
        match target(endpoint, request.uri()) {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => {
                return Err(CallError::NeverSent(Unreachable::NoConnection, error.to_string()));
            }
        }
        *request.version_mut() = Version::HTTP_11;
        if !request.headers().contains_key(header::HOST)
            && let Ok(host) = HeaderValue::from_str(&endpoint.authority())
        {
            request.headers_mut().insert(header::HOST, host);
        }
        // Filled in just before the request is handed to a connection.
        let connection = capture_connection(&mut request);
        let sent = self.client(upstream.connect_timeout).request(request);
        match tokio::time::timeout_at(deadline, sent).await {
            Ok(answered) => answered.map_err(classify),
            Err(_elapsed) if connection.connection_metadata().is_none() => {
                let why = "no connection in time".to_owned();
                Err(CallError::NeverSent(Unreachable::ConnectTimeout, why))
            }
            Err(_elapsed) => {
                let why = "no answer in time".to_owned();
                Err(CallError::Ambiguous(UnknownReason::UpstreamTimeout, why))
            }
        }
    }
}

fn new_client(connect_timeout: Duration) -> Client<HttpConnector, Body> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    connector.set_connect_timeout(Some(connect_timeout));
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .retry_canceled_requests(true)
        .set_host(false)
        .build(connector)
}

/// The endpoint's authority with the request's own path and query, byte for byte.
fn target(endpoint: &Endpoint, requested: &Uri) -> Result<Uri, http::Error> {
    let builder = Uri::builder().scheme("http").authority(endpoint.authority());
    let path = requested.path_and_query().map_or("/", |path| path.as_str());
    builder.path_and_query(path).build()
}

fn classify(error: Error) -> CallError {
    let cause = chain(&error);
    let of_hyper = |holds: fn(&hyper::Error) -> bool| {
        sources(&error).filter_map(|source| source.downcast_ref()).any(holds)
    };
    if error.is_connect() {
        let timed_out = sources(&error)
            .filter_map(|source| source.downcast_ref::<std::io::Error>())
            .any(|error| error.kind() == std::io::ErrorKind::TimedOut);
        let kind = if timed_out { Unreachable::ConnectTimeout } else { Unreachable::NoConnection };
        CallError::NeverSent(kind, cause)
    } else if of_hyper(hyper::Error::is_canceled) || error.connect_info().is_none() {
        // Cancelled while it waited, or no connection was ready to take it: the library names
        // the connection in every error after the request was handed over.
        CallError::NeverSent(Unreachable::NoConnection, cause)
    } else if of_hyper(hyper::Error::is_parse) {
        CallError::Ambiguous(UnknownReason::BrokenAnswer, cause)
    } else {
        CallError::Ambiguous(UnknownReason::ConnectionLost, cause)
    }
}

/// An error's causes, nearest first.
pub(crate) fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |error| error.source())
}

/// An error with all its sources, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The `Host` that goes upstream: the one the client named, in either HTTP version.
pub(crate) fn host_of(parts: &http::request::Parts) -> Option<HeaderValue> {
    match parts.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => parts.headers.get(header::HOST).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_goes_upstream_as_it_came() {
        let check = |requested: &str, expected: &str| {
            let endpoint = Endpoint { host: "10.0.0.1".to_owned(), port: 9001 };
            let uri = target(&endpoint, &requested.parse().expect("uri")).expect("target");
            assert_eq!(uri.to_string(), expected);
        };
        check("/a%2Fb?x=1&y=%20", "http://10.0.0.1:9001/a%2Fb?x=1&y=%20");
        check("http://other.example/a", "http://10.0.0.1:9001/a");
        check("/", "http://10.0.0.1:9001/");
    }
}
