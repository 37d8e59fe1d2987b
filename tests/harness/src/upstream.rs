//! An upstream that does as it is told and counts what it was made to do.
//!
//! It is written on the bare socket, because most of what it must do is forbidden to a decent
//! server: die in the middle of a head, promise ten bytes and send five, answer nothing.
//!
//! A call is *executed* the moment its request has been read whole, before the first byte of the
//! answer, and is then in the ledger for good. That is the hardest kind of upstream: whatever
//! happens to the answer, the charge has been made.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::http1::{self, Head, Headers, Wire};
use crate::wait::{Gate, patiently, until};

/// One execution, as the upstream saw it.
#[derive(Clone, Debug)]
pub struct Execution {
    /// Counts from one: the how-manieth execution of this upstream.
    pub run: usize,
    /// The method.
    pub method: String,
    /// Path and query, as received.
    pub target: String,
    /// Every header line, as received.
    pub headers: Headers,
    /// The body, without framing.
    pub body: Vec<u8>,
    /// Lines after a chunked body.
    pub trailers: Headers,
    /// Which connection it came on, counting from one.
    pub connection: usize,
    /// When it was executed.
    pub at: Instant,
}

impl Execution {
    /// The path, without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The query, without the question mark.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The key this execution came with, in the bytes of the wire.
    #[track_caller]
    pub fn key(&self) -> Option<&str> {
        self.headers.one("Idempotency-Key")
    }

    /// The fence this execution came with.
    #[track_caller]
    pub fn fence(&self) -> Option<&str> {
        self.headers.one("Idempotency-Fence")
    }
}

/// Everything the upstream has seen so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Connections accepted.
    pub connections: usize,
    /// Request heads read whole.
    pub heads: usize,
    /// Bytes of request bodies read, of finished and unfinished requests.
    pub body_bytes: usize,
    /// The ledger.
    pub executions: Vec<Execution>,
    /// Requests that were no HTTP: always a fault of the gateway.
    pub garbled: Vec<String>,
}

/// What happens to the connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It stays open for the next request.
    Keep,
    /// It is closed in good order.
    Close,
    /// It is reset.
    Reset,
}

/// One scripted reply.
#[derive(Clone, Debug)]
pub struct Reply {
    before: Option<Gate>,
    informational: Vec<u16>,
    status: u16,
    headers: Headers,
    /// Pieces of the body; each waits for its gate first, and is a chunk where it is chunked.
    parts: Vec<(Option<Gate>, Vec<u8>)>,
    chunked: bool,
    trailers: Headers,
    raw: Option<Vec<u8>>,
    cut_after: Option<usize>,
    end: End,
}

impl Reply {
    /// A reply of this status without a body.
    pub fn status(status: u16) -> Self {
        Self {
            before: None,
            informational: Vec::new(),
            status,
            headers: Headers::default(),
            parts: Vec::new(),
            chunked: false,
            trailers: Headers::default(),
            raw: None,
            cut_after: None,
            end: End::Keep,
        }
    }

    /// The reply of an unscripted upstream: it tells which execution it belongs to, so that a
    /// second execution can never pass for a replay.
    pub fn counted(run: usize) -> Self {
        Self::status(201).json(&format!("{{\"run\":{run}}}"))
    }

    /// Exactly these bytes, and then the end of the connection.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Self {
        Self { raw: Some(bytes.as_ref().to_vec()), end: End::Close, ..Self::status(0) }
    }

    /// Nothing at all: the connection just ends.
    pub fn nothing(end: End) -> Self {
        Self { end, ..Self::raw([]) }
    }

    /// Adds one header line.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.0.push((name.to_owned(), value.as_bytes().to_vec()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.parts = vec![(None, body.as_ref().to_vec())];
        self
    }

    /// Sets the body and says that it is JSON.
    pub fn json(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    /// Adds a piece of the body that is sent once the gate is open.
    pub fn then_after(mut self, gate: &Gate, body: impl AsRef<[u8]>) -> Self {
        self.parts.push((Some(gate.clone()), body.as_ref().to_vec()));
        self
    }

    /// Sends the pieces as chunks instead of with a length.
    pub fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    /// Adds a trailer line; the body is chunked then.
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.0.push((name.to_owned(), value.as_bytes().to_vec()));
        self.chunked()
    }

    /// Sends this informational status first.
    pub fn after_informational(mut self, status: u16) -> Self {
        self.informational.push(status);
        self
    }

    /// Executes at once and answers when the gate is open.
    pub fn held_by(mut self, gate: &Gate) -> Self {
        self.before = Some(gate.clone());
        self
    }

    /// Sends the first `bytes` bytes of the answer, head included, and then this end.
    pub fn cut_after(mut self, bytes: usize, end: End) -> Self {
        self.cut_after = Some(bytes);
        self.end = end;
        self
    }

    /// Ends the connection in good order after the answer.
    pub fn closing(mut self) -> Self {
        self.end = End::Close;
        self
    }

    fn head(&self) -> Vec<u8> {
        let mut text = String::new();
        for status in &self.informational {
            text.push_str(&format!("HTTP/1.1 {status} Informational\r\n\r\n"));
        }
        text.push_str(&format!("HTTP/1.1 {} Scripted\r\n", self.status));
        let mut bytes = text.into_bytes();
        for (name, value) in &self.headers.0 {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        let length: usize = self.parts.iter().map(|(_, part)| part.len()).sum();
        let bodiless =
            self.status == 204 || self.status == 304 || self.headers.has("Content-Length");
        let framing = match (self.chunked, bodiless) {
            (true, _) => "Transfer-Encoding: chunked\r\n".to_owned(),
            (false, true) => String::new(),
            (false, false) => format!("Content-Length: {length}\r\n"),
        };
        bytes.extend_from_slice(framing.as_bytes());
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// The reply in pieces, each with the gate to pass before it is sent.
    fn pieces(&self, head_only: bool) -> Vec<(Option<Gate>, Vec<u8>)> {
        if let Some(raw) = &self.raw {
            return vec![(self.before.clone(), raw.clone())];
        }
        let mut pieces = vec![(self.before.clone(), self.head())];
        if head_only {
            return pieces;
        }
        for (gate, part) in &self.parts {
            let bytes = if self.chunked { http1::chunk_of(part) } else { part.clone() };
            pieces.push((gate.clone(), bytes));
        }
        if self.chunked {
            pieces.push((None, http1::chunked(&[], 1, &self.trailers)));
        }
        pieces
    }

    async fn play(&self, stream: &mut TcpStream, head_only: bool) -> io::Result<End> {
        let mut left = self.cut_after.unwrap_or(usize::MAX);
        for (gate, bytes) in self.pieces(head_only) {
            if let Some(gate) = gate {
                gate.passed().await;
            }
            let sent = &bytes[..bytes.len().min(left)];
            stream.write_all(sent).await?;
            left -= sent.len();
            if left == 0 {
                break;
            }
        }
        match self.end {
            End::Keep => {}
            End::Close => stream.shutdown().await?,
            End::Reset => stream.set_zero_linger()?,
        }
        Ok(self.end)
    }
}

type Behaviour = Box<dyn Fn(&Execution) -> Reply + Send + Sync>;

struct Shared {
    seen: watch::Sender<Seen>,
    queue: Mutex<VecDeque<Reply>>,
    behaviour: Mutex<Behaviour>,
}

impl Shared {
    fn reply_to(&self, execution: &Execution) -> Reply {
        let queued = self.queue.lock().expect("no test panics while scripting").pop_front();
        queued.unwrap_or_else(|| (self.behaviour.lock().expect("no behaviour panics"))(execution))
    }
}

/// The upstream: a port, a script and a ledger. Without a script every call gets
/// [`Reply::counted`].
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The accepting task with all its connections, or the port held shut.
    door: Door,
}

enum Door {
    Open(JoinHandle<()>),
    /// Bound and not listening: connections are refused, and nobody else can take the port.
    Shut(TcpSocket),
}

impl Upstream {
    /// An upstream that takes calls.
    pub async fn start() -> Self {
        let mut upstream = Self::shut();
        upstream.open();
        upstream
    }

    /// An upstream whose port refuses connections until [`Upstream::open`].
    pub fn shut() -> Self {
        let socket = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = socket.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            seen: watch::Sender::new(Seen::default()),
            queue: Mutex::default(),
            behaviour: Mutex::new(Box::new(|execution| Reply::counted(execution.run))),
        });
        Self { address, shared, door: Door::Shut(socket) }
    }

    /// Starts taking calls.
    pub fn open(&mut self) {
        let Door::Shut(socket) = &mut self.door else { return };
        let socket = std::mem::replace(socket, unbound());
        let listener = socket.listen(1024).expect("the port is ours");
        self.door = Door::Open(tokio::spawn(accept(listener, self.shared.clone())));
    }

    /// Ends every connection and refuses new ones.
    pub async fn refuse(&mut self) {
        if let Door::Open(task) = &mut self.door {
            task.abort();
            let _ = task.await;
            // A process that another thread is just starting holds a copy of the listening
            // socket between its fork and its exec, so the port is free a moment later.
            let address = self.address;
            let socket = until("the port to be free again", async || try_bound(address).ok()).await;
            self.door = Door::Shut(socket);
        }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens, or would.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next call without a reply yet gets this one; several queue up.
    pub fn next(&self, reply: Reply) {
        self.shared.queue.lock().expect("no test panics while scripting").push_back(reply);
    }

    /// Every call that finds the queue empty is answered by this.
    pub fn always(&self, behaviour: impl Fn(&Execution) -> Reply + Send + Sync + 'static) {
        *self.shared.behaviour.lock().expect("no behaviour panics") = Box::new(behaviour);
    }

    /// What has been seen so far.
    pub fn seen(&self) -> Seen {
        self.shared.seen.borrow().clone()
    }

    /// The ledger.
    pub fn executions(&self) -> Vec<Execution> {
        self.seen().executions
    }

    /// How many executions there were.
    pub fn runs(&self) -> usize {
        self.shared.seen.borrow().executions.len()
    }

    /// The only execution; panics when there were none or several.
    #[track_caller]
    pub fn the_run(&self) -> Execution {
        let mut executions = self.executions();
        assert_eq!(executions.len(), 1, "one execution was expected: {executions:?}");
        executions.remove(0)
    }

    /// Waits until what was seen satisfies `condition`.
    #[track_caller]
    pub fn until<C: FnMut(&Seen) -> bool>(
        &self,
        what: &str,
        mut condition: C,
    ) -> impl Future<Output = ()> + use<C> {
        let mut changes = self.shared.seen.subscribe();
        patiently(what, async move {
            changes.wait_for(|seen| condition(seen)).await.expect("the upstream is still there");
        })
    }

    /// Waits until there were `runs` executions.
    #[track_caller]
    pub fn until_runs(&self, runs: usize) -> impl Future<Output = ()> + use<> {
        let what = format!("execution {runs} at the upstream");
        self.until(&what, move |seen| seen.executions.len() >= runs)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Door::Open(task) = &self.door {
            task.abort();
        }
        let garbled = self.shared.seen.borrow().garbled.clone();
        if !std::thread::panicking() {
            assert!(garbled.is_empty(), "the gateway sent what is not HTTP: {garbled:?}");
        }
    }
}

fn unbound() -> TcpSocket {
    TcpSocket::new_v4().expect("a socket can be made")
}

fn bound(address: SocketAddr) -> TcpSocket {
    try_bound(address).unwrap_or_else(|error| panic!("cannot bind {address}: {error}"))
}

fn try_bound(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = unbound();
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let mut number = 0;
        shared.seen.send_modify(|seen| {
            seen.connections += 1;
            number = seen.connections;
        });
        connections.spawn(serve(stream, number, shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, connection: usize, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut wire = Wire::new(stream);
    loop {
        match serve_one(&mut wire, connection, &shared).await {
            Ok(End::Keep) => {}
            Ok(End::Close | End::Reset) => return,
            // Ours are the errors that say what was wrong; the rest is a peer that left.
            Err(error) if error.kind() == io::ErrorKind::Other => {
                return shared.seen.send_modify(|seen| seen.garbled.push(error.to_string()));
            }
            Err(_) => return,
        }
    }
}

async fn serve_one(wire: &mut Wire, connection: usize, shared: &Shared) -> io::Result<End> {
    let Some(head) = wire.head().await? else { return Ok(End::Close) };
    shared.seen.send_modify(|seen| seen.heads += 1);
    let count = |bytes| shared.seen.send_modify(|seen| seen.body_bytes += bytes);
    let (body, trailers) = wire.body(head.framing()?, count).await?;
    let mut execution = execution(head, body, trailers, connection)?;
    shared.seen.send_modify(|seen| {
        execution.run = seen.executions.len() + 1;
        seen.executions.push(execution.clone());
    });
    let reply = shared.reply_to(&execution);
    reply.play(&mut wire.stream, execution.method == "HEAD").await
}

fn execution(
    head: Head,
    body: Vec<u8>,
    trailers: Headers,
    connection: usize,
) -> io::Result<Execution> {
    let mut words = head.start.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some("HTTP/1.1")) => Ok(Execution {
            run: 0,
            method: method.to_owned(),
            target: target.to_owned(),
            headers: head.headers,
            body,
            trailers,
            connection,
            at: Instant::now(),
        }),
        _ => Err(io::Error::other(format!("not a request line: {:?}", head.start))),
    }
}
