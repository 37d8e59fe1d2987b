//! Sockets: accepting, telling HTTP/1.1 from HTTP/2, deadlines and draining.
//!
//! Built on hyper's connection builders instead of a ready-made server, because those leave a
//! connection open for ever on which a client sends nothing, or one byte. The first bytes are
//! only looked at, never consumed, so hyper parses them itself.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// What an HTTP/2 connection starts with (RFC 9113, 3.4). All of it is awaited under the first
/// deadline, because the library has none for the rest of it.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Between two looks at a connection that has sent a part of it.
const SNIFF_PAUSE: Duration = Duration::from_millis(5);

/// What one listener allows; every number is a setting with a default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// From accepting to the first bytes.
    pub(crate) first_byte: Duration,
    /// From the connection's first byte, or the end of the request before, to the end of a head.
    pub(crate) header: Duration,
    /// Open connections; more wait in the accept queue.
    pub(crate) connections: usize,
    /// Header lines of one request.
    pub(crate) header_lines: usize,
    /// Bytes of one request head.
    pub(crate) head_bytes: usize,
    /// Concurrent HTTP/2 streams of one connection.
    pub(crate) streams: u32,
}

impl Limits {
    /// For the small service behind `oncegate demo`.
    pub(crate) fn for_a_demo() -> Self {
        Self {
            first_byte: Duration::from_secs(60),
            header: Duration::from_secs(10),
            connections: 256,
            header_lines: 64,
            head_bytes: 32 * 1024,
            streams: 100,
        }
    }
}

/// Serves `router` until `stop` fires, then finishes what is under way: HTTP/1.1 connections
/// close after their current answer, HTTP/2 ones get GOAWAY, idle ones close at once.
pub(crate) async fn serve(
    tcp: TcpListener,
    router: Router,
    limits: Limits,
    open: Gauge,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    loop {
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            () = stop.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = tcp.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _peer)) => stream,
            Err(error) => {
                // Out of descriptors, or a client that left in between: both pass.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let watcher = graceful.watcher();
        let (router, open, stop) = (router.clone(), open.clone(), stop.clone());
        tokio::spawn(async move {
            open.inc();
            connection(stream, router, limits, watcher, stop).await;
            open.dec();
            drop(slot);
        });
    }
    drop(tcp);
    graceful.shutdown().await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    watcher: hyper_util::server::graceful::Watcher,
    stop: CancellationToken,
) {
    let first = tokio::select! {
        first = tokio::time::timeout(limits.first_byte, sniff(&stream)) => first,
        () = stop.cancelled() => return,
    };
    let Ok(Some(protocol)) = first else { return };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let service = TowerToHyperService::new(router.into_service::<Incoming>());
    let io = TokioIo::new(stream);
    let ended = match protocol {
        Protocol::Http1 => {
            let connection = http1(limits).serve_connection(io, service);
            watcher.watch(connection).await
        }
        Protocol::Http2 => {
            let connection = http2(limits).serve_connection(io, service);
            watcher.watch(connection).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = crate::upstream::chain(&error), "a connection ended early");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Looks at the first bytes without consuming them. `None` when the client has left.
async fn sniff(stream: &TcpStream) -> Option<Protocol> {
    let mut start = [0; HTTP2_PREFACE.len()];
    loop {
        let seen = stream.peek(&mut start).await.ok().filter(|seen| *seen > 0)?;
        let start = start.get(..seen)?;
        if start == HTTP2_PREFACE {
            return Some(Protocol::Http2);
        }
        if !HTTP2_PREFACE.starts_with(start) {
            return Some(Protocol::Http1);
        }
        tokio::time::sleep(SNIFF_PAUSE).await;
    }
}

fn http1(limits: Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_headers(limits.header_lines)
        .max_buf_size(limits.head_bytes.max(8192))
        .half_close(false);
    builder
}

fn http2(limits: Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .max_header_list_size(16 * 1024)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(1024)
        .keep_alive_interval(Duration::from_secs(20));
    builder
}
