//! HTTP/1.1 by hand: exact bytes out, every header line in its order back.
//!
//! A library client would tidy up what these tests are about: two lines of one header, a name in
//! capitals, a body sent in two spellings, an upload that stops half-way. The upstream reads its
//! requests with the same [`Wire`].

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::answer::Answer;
use crate::wait::patiently;

/// Header lines in the order of the wire. Names keep their spelling, values their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, Vec<u8>)>);

impl Headers {
    /// Every value under this name, in order.
    pub fn all(&self, name: &str) -> Vec<&[u8]> {
        let same = |line: &&(String, Vec<u8>)| line.0.eq_ignore_ascii_case(name);
        self.0.iter().filter(same).map(|(_, value)| value.as_slice()).collect()
    }

    /// The one value under this name. Two lines are a finding of their own, so they panic.
    #[track_caller]
    pub fn one(&self, name: &str) -> Option<&str> {
        let values = self.all(name);
        assert!(values.len() <= 1, "{name} stands on {} lines: {self:?}", values.len());
        values.first().map(|value| std::str::from_utf8(value).expect("a header value in UTF-8"))
    }

    /// Whether any line has this name.
    pub fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    Empty,
    /// `Content-Length`.
    Length(usize),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// Until the connection closes.
    Close,
    /// HTTP/2 frames.
    Frames,
}

/// A request to be sent exactly so.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    target: String,
    headers: Headers,
    body: Vec<u8>,
    /// Chunk sizes; `None` sends a `Content-Length`.
    chunk: Option<usize>,
}

impl Request {
    /// A request without headers or body.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Headers::default(),
            body: Vec::new(),
            chunk: None,
        }
    }

    /// `GET target`.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// `POST target`.
    pub fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    /// Adds one header line, byte for byte.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.0.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Adds an `Idempotency-Key` line, byte for byte: quotes are the caller's business.
    pub fn key(self, key: impl AsRef<[u8]>) -> Self {
        self.header("Idempotency-Key", key)
    }

    /// Sets the body.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    /// Sets the body and says that it is JSON.
    pub fn json(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    /// Sends the body in chunks of this many bytes instead of with its length.
    pub fn chunked(mut self, size: usize) -> Self {
        self.chunk = Some(size);
        self
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The lines set so far, without `Host` and framing.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The body, without framing.
    pub fn content(&self) -> &[u8] {
        &self.body
    }

    /// The head alone, framing included: for a client that sends its body later, or never.
    pub fn head_bytes(&self, host: SocketAddr) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if !self.headers.has("Host") {
            bytes.extend_from_slice(format!("Host: {host}\r\n").as_bytes());
        }
        for (name, value) in &self.headers.0 {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(self.framing_line().as_bytes());
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    fn framing_line(&self) -> String {
        let bodiless = matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS");
        match self.chunk {
            Some(_) => "Transfer-Encoding: chunked\r\n".to_owned(),
            None if bodiless && self.body.is_empty() => String::new(),
            None => format!("Content-Length: {}\r\n", self.body.len()),
        }
    }

    /// The whole request.
    pub fn bytes(&self, host: SocketAddr) -> Vec<u8> {
        let mut bytes = self.head_bytes(host);
        match self.chunk {
            Some(size) => bytes.extend_from_slice(&chunked(&self.body, size, &Headers::default())),
            None => bytes.extend_from_slice(&self.body),
        }
        bytes
    }
}

/// `body` in chunks of `size` bytes, closed by `trailers`.
pub fn chunked(body: &[u8], size: usize, trailers: &Headers) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in body.chunks(size.max(1)) {
        bytes.extend_from_slice(&chunk_of(chunk));
    }
    bytes.extend_from_slice(b"0\r\n");
    for (name, value) in &trailers.0 {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// One chunk with its size line.
pub fn chunk_of(data: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// A connection to the gateway, kept open until dropped.
pub struct Connection {
    peer: SocketAddr,
    wire: Wire,
}

impl Connection {
    /// Connects, or says why not.
    pub async fn try_to(peer: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(peer).await?;
        stream.set_nodelay(true)?;
        Ok(Self { peer, wire: Wire::new(stream) })
    }

    /// Connects.
    pub async fn to(peer: SocketAddr) -> Self {
        Self::try_to(peer).await.unwrap_or_else(|error| panic!("cannot connect to {peer}: {error}"))
    }

    /// Sends the whole request.
    pub async fn send(&mut self, request: &Request) -> io::Result<()> {
        self.send_bytes(&request.bytes(self.peer)).await
    }

    /// Sends the head and keeps the body back.
    pub async fn send_head(&mut self, request: &Request) -> io::Result<()> {
        self.send_bytes(&request.head_bytes(self.peer)).await
    }

    /// Sends these bytes and nothing else.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.stream.write_all(bytes).await
    }

    /// Reads the answer to a request of this method, whole.
    pub async fn answer(&mut self, method: &str) -> io::Result<Answer> {
        let mut answer = self.answer_head(method).await?;
        (answer.body, answer.trailers) = self.wire.body(answer.framing, |_| ()).await?;
        Ok(answer)
    }

    /// Reads the answer up to its blank line; the body is empty and still on the wire.
    pub async fn answer_head(&mut self, method: &str) -> io::Result<Answer> {
        let mut informational = Vec::new();
        loop {
            let head = self.wire.head().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let status = status_of(&head.start)?;
            if (100..200).contains(&status) && status != 101 {
                informational.push(status);
                continue;
            }
            let framing = answer_framing(method, status, &head.headers)?;
            return Ok(Answer {
                status,
                headers: head.headers,
                body: Vec::new(),
                trailers: Headers::default(),
                framing,
                informational,
            });
        }
    }

    /// The next bytes of a body, whatever has arrived; empty at the end of the connection.
    pub async fn next_bytes(&mut self) -> io::Result<Vec<u8>> {
        self.wire.some().await
    }

    /// Sends and reads, within the patience of a test.
    #[track_caller]
    pub fn exchange(&mut self, request: &Request) -> impl Future<Output = Answer> {
        let what = format!("an answer to {} {}", request.method, request.target);
        patiently(&what, async move {
            // A gateway that refuses a request may answer and close before it has been sent
            // whole, so a failed write is not yet the end: the answer decides.
            let sent = self.send(request).await;
            match self.answer(&request.method).await {
                Ok(answer) => answer,
                Err(error) => panic!(
                    "no answer to {} {}: {error} (sent: {sent:?})",
                    request.method, request.target
                ),
            }
        })
    }
}

fn status_of(start: &str) -> io::Result<u16> {
    let status = start.split(' ').nth(1).and_then(|text| text.parse().ok());
    status.ok_or_else(|| io::Error::other(format!("not a status line: {start:?}")))
}

/// RFC 9112 section 6.3, from the client's side.
fn answer_framing(method: &str, status: u16, headers: &Headers) -> io::Result<Framing> {
    if method == "HEAD" || status < 200 || status == 204 || status == 304 {
        return Ok(Framing::Empty);
    }
    Ok(match framing(headers)? {
        Framing::Empty => Framing::Close,
        other @ (Framing::Length(_) | Framing::Chunked | Framing::Close | Framing::Frames) => other,
    })
}

/// The framing that the header lines announce; both at once are an error in either direction.
fn framing(headers: &Headers) -> io::Result<Framing> {
    let chunked = headers.has("Transfer-Encoding");
    let lengths = headers.all("Content-Length");
    match (chunked, lengths.as_slice()) {
        (true, []) => Ok(Framing::Chunked),
        (false, []) => Ok(Framing::Empty),
        (false, [one]) => {
            let length = std::str::from_utf8(one).ok().and_then(|text| text.parse().ok());
            let length = length.ok_or_else(|| io::Error::other("not a Content-Length"))?;
            Ok(Framing::Length(length))
        }
        (_, _) => Err(io::Error::other(format!("two framings in one message: {headers:?}"))),
    }
}

/// The head of a message: its first line and its header lines.
#[derive(Clone, Debug)]
pub struct Head {
    /// Request line or status line.
    pub start: String,
    /// The header lines.
    pub headers: Headers,
}

impl Head {
    /// How the body of a *request* with this head ends.
    pub fn framing(&self) -> io::Result<Framing> {
        framing(&self.headers)
    }
}

/// A socket with the bytes that were read too far.
pub struct Wire {
    /// The socket, for writing.
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    /// Wraps a socket.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// Reads up to the blank line. `None` when the peer closed before it began.
    pub async fn head(&mut self) -> io::Result<Option<Head>> {
        let Some(end) = self.find(b"\r\n\r\n").await? else { return Ok(None) };
        let bytes: Vec<u8> = self.unread.drain(..end + 4).collect();
        let mut lines = bytes[..end].split(|byte| *byte == b'\n').map(|line| {
            // Every line but the last still has its carriage return.
            line.strip_suffix(b"\r").unwrap_or(line)
        });
        let start = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
        Ok(Some(Head { start, headers: Headers(lines.map(header_line).collect()) }))
    }

    /// Reads a body. `seen` is told of every piece as it arrives.
    pub async fn body(
        &mut self,
        framing: Framing,
        mut seen: impl FnMut(usize),
    ) -> io::Result<(Vec<u8>, Headers)> {
        let mut body = Vec::new();
        match framing {
            Framing::Empty | Framing::Frames => {}
            Framing::Length(length) => {
                while body.len() < length {
                    let piece = self.at_most(length - body.len()).await?;
                    seen(piece.len());
                    body.extend_from_slice(&piece);
                }
            }
            Framing::Chunked => {
                while let Some(chunk) = self.chunk().await? {
                    seen(chunk.len());
                    body.extend_from_slice(&chunk);
                }
                return Ok((body, self.trailers().await?));
            }
            Framing::Close => loop {
                let piece = self.some().await?;
                if piece.is_empty() {
                    break;
                }
                seen(piece.len());
                body.extend_from_slice(&piece);
            },
        }
        Ok((body, Headers::default()))
    }

    /// The next chunk; `None` after the last one, with the trailers still unread.
    pub async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line().await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16)
            .map_err(|_| io::Error::other(format!("not a chunk size: {line:?}")))?;
        if size == 0 {
            return Ok(None);
        }
        let mut data = Vec::with_capacity(size);
        while data.len() < size {
            data.extend_from_slice(&self.at_most(size - data.len()).await?);
        }
        match self.line().await?.as_str() {
            "" => Ok(Some(data)),
            rest => Err(io::Error::other(format!("bytes after a chunk: {rest:?}"))),
        }
    }

    async fn trailers(&mut self) -> io::Result<Headers> {
        let mut trailers = Headers::default();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(trailers);
            }
            trailers.0.push(header_line(line.as_bytes()));
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        let end = self.find(b"\r\n").await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes: Vec<u8> = self.unread.drain(..end + 2).collect();
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Between one byte and `limit`; an end of the connection here is an error.
    async fn at_most(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        if self.unread.is_empty() && self.fill().await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let taken = limit.min(self.unread.len());
        Ok(self.unread.drain(..taken).collect())
    }

    async fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.unread.is_empty() {
            self.fill().await?;
        }
        Ok(std::mem::take(&mut self.unread))
    }

    /// Where `pattern` begins in what is unread. `None` when the peer closed with nothing begun.
    async fn find(&mut self, pattern: &[u8]) -> io::Result<Option<usize>> {
        let mut from = 0;
        loop {
            let found = self.unread[from..].windows(pattern.len()).position(|seen| seen == pattern);
            if let Some(at) = found {
                return Ok(Some(from + at));
            }
            from = self.unread.len().saturating_sub(pattern.len() - 1);
            if self.fill().await? == 0 {
                let begun = !self.unread.is_empty();
                return if begun { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
            }
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        let mut piece = vec![0; 64 * 1024];
        let count = self.stream.read(&mut piece).await?;
        self.unread.extend_from_slice(&piece[..count]);
        Ok(count)
    }
}

fn header_line(line: &[u8]) -> (String, Vec<u8>) {
    let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
    let value = line.get(colon + 1..).unwrap_or_default().trim_ascii().to_vec();
    (String::from_utf8_lossy(&line[..colon]).into_owned(), value)
}
