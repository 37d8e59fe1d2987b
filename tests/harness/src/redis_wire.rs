//! The wire between a gateway and its Redis, with a tap and a knife.
//!
//! The tap counts the commands that really travel, which the server's own statistics cannot tell
//! from those that a script calls inside. The knife loses one answer: the command arrives and is
//! carried out, and only the word about it is lost. That is the failure which no time-out can
//! tell from a command that never arrived.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A proxy in front of Redis. Transparent until told otherwise.
pub struct RedisWire {
    address: SocketAddr,
    tap: Arc<Tap>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Tap {
    commands: Mutex<BTreeMap<String, usize>>,
    armed: AtomicBool,
    lost: AtomicUsize,
}

impl RedisWire {
    /// Starts before the Redis server on this port.
    pub async fn before(redis_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let tap = Arc::new(Tap::default());
        let redis = SocketAddr::from(([127, 0, 0, 1], redis_port));
        let task = tokio::spawn(accept(listener, redis, tap.clone()));
        Self { address, tap, task }
    }

    /// The store URL of a gateway that goes through here.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The commands that have travelled so far, by name in capitals.
    pub fn commands(&self) -> BTreeMap<String, usize> {
        self.tap.commands.lock().expect("no tap panics").clone()
    }

    /// Starts counting anew.
    pub fn reset(&self) {
        self.tap.commands.lock().expect("no tap panics").clear();
    }

    /// The answer to the next script call is lost, and its connection with it.
    pub fn lose_next_answer(&self) {
        self.tap.armed.store(true, Ordering::SeqCst);
    }

    /// How many answers were lost.
    pub fn lost(&self) -> usize {
        self.tap.lost.load(Ordering::SeqCst)
    }
}

impl Drop for RedisWire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, redis: SocketAddr, tap: Arc<Tap>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(relay(client, redis, tap.clone()));
    }
}

async fn relay(client: TcpStream, redis: SocketAddr, tap: Arc<Tap>) {
    let Ok(server) = TcpStream::connect(redis).await else { return };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    // Set by the direction that sees the command, read by the one that carries its answer.
    let doomed = AtomicBool::new(false);
    // Whichever direction ends, ends both: a half-open connection to Redis is of no use.
    tokio::select! {
        _ = commands(BufReader::new(client_in), server_out, &tap, &doomed) => {}
        _ = answers(server_in, client_out, &tap, &doomed) => {}
    }
}

async fn commands(
    mut from: BufReader<OwnedReadHalf>,
    mut to: OwnedWriteHalf,
    tap: &Tap,
    doomed: &AtomicBool,
) -> io::Result<()> {
    loop {
        let (name, bytes) = command(&mut from).await?;
        *tap.commands.lock().expect("no tap panics").entry(name.clone()).or_default() += 1;
        // Only a script call touches a record; a ping may keep its answer.
        if name.starts_with("EVAL") && tap.armed.swap(false, Ordering::SeqCst) {
            doomed.store(true, Ordering::SeqCst);
        }
        to.write_all(&bytes).await?;
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    tap: &Tap,
    doomed: &AtomicBool,
) -> io::Result<()> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        if doomed.load(Ordering::SeqCst) {
            tap.lost.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        to.write_all(&piece[..count]).await?;
    }
}

/// One command: its name, and its bytes as they came. A command is an array of bulk strings:
/// `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`.
async fn command(from: &mut BufReader<OwnedReadHalf>) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut name = None;
    for _ in 0..length(from, b'*', &mut bytes).await? {
        let size = length(from, b'$', &mut bytes).await?;
        let begin = bytes.len();
        bytes.resize(begin + size + 2, 0);
        from.read_exact(&mut bytes[begin..]).await?;
        let text = || String::from_utf8_lossy(&bytes[begin..begin + size]).to_ascii_uppercase();
        name.get_or_insert_with(text);
    }
    Ok((name.unwrap_or_default(), bytes))
}

async fn length(
    from: &mut BufReader<OwnedReadHalf>,
    mark: u8,
    bytes: &mut Vec<u8>,
) -> io::Result<usize> {
    let begin = bytes.len();
    if from.read_until(b'\n', bytes).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = std::str::from_utf8(&bytes[begin..]).ok();
    let digits = line.and_then(|line| line.strip_prefix(char::from(mark)));
    let length = digits.and_then(|digits| digits.trim_end().parse().ok());
    length.ok_or_else(|| io::Error::other(format!("not a command: {line:?}")))
}
