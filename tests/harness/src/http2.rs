//! HTTP/2 with prior knowledge, through hyper.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::answer::Answer;
use crate::http1::{Framing, Headers, Request};
use crate::wait::patiently;

/// Sends one request over a connection of its own and reads the answer whole.
///
/// Header names travel in lower case, as the version demands; a request that spells them
/// otherwise is still the same request.
#[track_caller]
pub fn send(peer: SocketAddr, request: &Request) -> impl Future<Output = Answer> {
    let what = format!("an HTTP/2 answer to {} {}", request.method(), request.target());
    patiently(&what, async move {
        exchange(peer, request).await.unwrap_or_else(|error| panic!("over HTTP/2: {error:#}"))
    })
}

async fn exchange(peer: SocketAddr, request: &Request) -> anyhow::Result<Answer> {
    let io = TokioIo::new(TcpStream::connect(peer).await?);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
    let driver = tokio::spawn(connection);
    let answer = read(sender.send_request(build(peer, request)?).await?).await;
    driver.abort();
    answer
}

fn build(peer: SocketAddr, request: &Request) -> anyhow::Result<http::Request<Full<Bytes>>> {
    let mut message = http::Request::builder()
        .method(request.method())
        .uri(format!("http://{peer}{}", request.target()));
    for (name, value) in &request.headers().0 {
        message = message.header(name, value.as_slice());
    }
    Ok(message.body(Full::new(Bytes::copy_from_slice(request.content())))?)
}

async fn read(response: http::Response<hyper::body::Incoming>) -> anyhow::Result<Answer> {
    let (head, body) = response.into_parts();
    let collected = body.collect().await?;
    let trailers = collected.trailers().map(lines).unwrap_or_default();
    Ok(Answer {
        status: head.status.as_u16(),
        headers: lines(&head.headers),
        body: collected.to_bytes().to_vec(),
        trailers,
        framing: Framing::Frames,
        informational: Vec::new(),
    })
}

fn lines(map: &http::HeaderMap) -> Headers {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    Headers(map.iter().map(line).collect())
}
