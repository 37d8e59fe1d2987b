//! The one connection: made in the background, checked, watched, and made again.
//!
//! Calls never wait for it. While there is none they fail at once and surely without effect; a
//! caller that wants to wait has its own clock for that.
//!
//! A call that times out takes the connection with it only when nothing at all came back since
//! it was sent: the server is gone or hangs. While others are answered, or parts of answers
//! arrive, it is merely slow, and the connection stays everybody's. An answer can not be taken
//! for another call's all the same: the driver (redis 1.8, `PipelineSink::send_result`) keeps
//! one entry for each command it has written, hands each answer to the oldest entry, and throws
//! it away when nobody waits there any more; a command whose caller left before it was written
//! is not sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::checks::check;
use super::heard::{Heard, Listened};
use super::pause::Pause;
use super::reply::{Failed, classify};
use super::scripts::Scripts;
use super::target::Target;
use crate::{Certainty, Error, ErrorKind, Health};

/// How often a working connection is asked whether the server is still fit.
const RECHECK_EVERY: Duration = Duration::from_secs(10);
/// Calls that may queue in front of the socket; more of them wait for room, within their
/// time-out.
const QUEUE_MAX: usize = 1024;
/// How much is collected for one write to the socket.
const WRITE_BYTES: usize = 64 << 10;

/// How the connection is.
#[derive(Clone, Debug)]
enum Condition {
    Down(String),
    Up(Up),
    Closed,
}

/// A connection that passed the checks.
#[derive(Clone, Debug)]
pub(super) struct Up {
    connection: MultiplexedConnection,
    heard: Heard,
    /// Tells connections apart, so that a late complaint does not hit the next one.
    number: u64,
    warnings: Arc<Vec<String>>,
}

/// The connection's public side.
#[derive(Debug)]
pub(super) struct Link {
    condition: Arc<watch::Sender<Condition>>,
    keeper: JoinHandle<()>,
    /// For the log.
    server: String,
    timeout: Duration,
}

impl Link {
    /// Starts connecting, and does not wait for it.
    pub(super) fn start(target: Target, scripts: &'static Scripts) -> Self {
        let start = Condition::Down("not connected to Redis yet".to_owned());
        let condition = Arc::new(watch::Sender::new(start));
        let (server, timeout) = (target.to_string(), target.timeout);
        let keeper = Keeper { target, scripts, condition: condition.clone(), connections: 0 };
        Self { condition, keeper: tokio::spawn(keeper.keep()), server, timeout }
    }

    /// The connection, if there is one now.
    pub(super) fn up(&self) -> Result<Up, Error> {
        match &*self.condition.borrow() {
            Condition::Up(up) => Ok(up.clone()),
            Condition::Down(problem) => Err(Error::unavailable(problem.clone())),
            Condition::Closed => Err(Error::closed()),
        }
    }

    /// Sends one command and waits for its answer.
    pub(super) async fn send(&self, up: &mut Up, command: &Cmd) -> Result<Value, Failed> {
        let watched = Watched::from(&*up);
        let answer = up.connection.send_packed_command(command);
        self.within(watched, answer).await
    }

    /// Loads a script that Redis has forgotten.
    pub(super) async fn load(&self, up: &mut Up, script: &redis::Script) -> Result<(), Failed> {
        let watched = Watched::from(&*up);
        let load = script.load_async(&mut up.connection).map(|done| done.map(|_| Value::Nil));
        self.within(watched, load).await.map(|_| ())
    }

    async fn within(
        &self,
        watched: Watched,
        answer: impl Future<Output = RedisResult<Value>>,
    ) -> Result<Value, Failed> {
        let failed = match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(Value::ServerError(error))) => classify(error.into()),
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => classify(error),
            Err(_) => timed_out(self.timeout, watched.is_silent()),
        };
        if failed.ends_connection {
            self.drop_connection(watched.number, &failed.error);
        }
        Err(failed)
    }

    /// Throws a connection away, for the keeper to make a new one. Said here, and once: the
    /// keeper finds the problem known already.
    pub(super) fn drop_connection(&self, number: u64, why: &Error) {
        self.condition.send_if_modified(|condition| {
            let current = matches!(condition, Condition::Up(up) if up.number == number);
            if current {
                let problem = format!("the connection was given up: {why}");
                tracing::warn!(server = %self.server, problem, "Redis cannot be used");
                *condition = Condition::Down(problem);
            }
            current
        });
    }

    pub(super) async fn ready(&self, within: Duration) -> Health {
        let mut condition = self.condition.subscribe();
        let settled = condition.wait_for(|now| !matches!(now, Condition::Down(_)));
        // In time or not: what is known now is the answer.
        let _ = tokio::time::timeout(within, settled).await;
        self.health()
    }

    pub(super) fn health(&self) -> Health {
        match &*self.condition.borrow() {
            Condition::Up(up) => Health { warnings: (*up.warnings).clone(), ..Health::good() },
            Condition::Down(problem) => Health::bad(problem.clone()),
            Condition::Closed => Health::bad("the store is closed"),
        }
    }

    pub(super) fn close(&self) {
        self.keeper.abort();
        self.condition.send_replace(Condition::Closed);
    }
}

impl Up {
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

/// A connection at the moment when a call goes out on it.
struct Watched {
    number: u64,
    heard: Heard,
    mark: u64,
}

impl Watched {
    fn from(up: &Up) -> Self {
        Self { number: up.number, heard: up.heard.clone(), mark: up.heard.mark() }
    }

    /// Whether nothing has come back since.
    fn is_silent(&self) -> bool {
        self.heard.mark() == self.mark
    }
}

fn timed_out(timeout: Duration, silent: bool) -> Failed {
    let message = format!("no answer from Redis within {timeout:?}");
    let error = Error::new(ErrorKind::TimedOut, Certainty::MaybeApplied, message);
    Failed { error, ends_connection: silent, no_script: false }
}

/// The background task that owns the connection.
struct Keeper {
    target: Target,
    scripts: &'static Scripts,
    condition: Arc<watch::Sender<Condition>>,
    connections: u64,
}

/// Reads and writes the socket; ends with it, and the socket ends with this.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Keeper {
    async fn keep(mut self) {
        let mut pause = Pause::default();
        loop {
            match self.connect().await {
                Ok((up, driver)) => {
                    tracing::info!(server = %self.target, "connected to Redis");
                    let since = Instant::now();
                    let problem = self.watch(up, driver).await;
                    pause.note_connection(since.elapsed());
                    self.down(problem);
                }
                Err(problem) => self.down(problem),
            }
            tokio::time::sleep(pause.next()).await;
        }
    }

    /// Makes a connection everybody's, unless the store has been closed meanwhile.
    fn announce(&self, up: Up) {
        self.condition.send_if_modified(|condition| {
            let open = !matches!(condition, Condition::Closed);
            if open {
                *condition = Condition::Up(up);
            }
            open
        });
    }

    /// Says each new problem once, however often it is met.
    fn down(&self, problem: String) {
        self.condition.send_if_modified(|condition| {
            match condition {
                Condition::Down(known) if *known == problem => return false,
                Condition::Closed => return false,
                Condition::Down(_) | Condition::Up(_) => {}
            }
            tracing::warn!(server = %self.target, problem, "Redis cannot be used");
            *condition = Condition::Down(problem);
            true
        });
    }

    async fn connect(&mut self) -> Result<(Up, Driver), String> {
        let patience = self.target.connect_timeout;
        let heard = Heard::default();
        let (mut connection, driver) =
            tokio::time::timeout(patience, self.open(&heard))
                .await
                .map_err(|_| format!("no connection to {} within {patience:?}", self.target))??;
        let readying = self.make_ready(&mut connection);
        let warnings = tokio::time::timeout(patience, readying)
            .await
            .map_err(|_| format!("{} did not answer within {patience:?}", self.target))??;
        self.connections += 1;
        let (number, warnings) = (self.connections, Arc::new(warnings));
        let up = Up { connection, heard, number, warnings };
        Ok((up, driver))
    }

    async fn open(&self, heard: &Heard) -> Result<(MultiplexedConnection, Driver), String> {
        let target = &self.target;
        let failed =
            |what: &str, error: &dyn std::fmt::Display| format!("{what} {target}: {error}");
        let stream = TcpStream::connect((target.host.as_str(), target.port))
            .await
            .map_err(|error| failed("cannot connect to", &error))?;
        stream.set_nodelay(true).map_err(|error| failed("cannot set up the socket to", &error))?;
        let greeted = match &target.tls {
            None => greet(&target.login, stream, heard).await,
            Some(tls) => {
                let connector = TlsConnector::from(tls.config.clone());
                let stream = connector
                    .connect(tls.name.clone(), stream)
                    .await
                    .map_err(|error| failed("TLS failed with", &error))?;
                greet(&target.login, stream, heard).await
            }
        };
        greeted.map_err(|error| failed("cannot log in to", &chain(&classify(error).error)))
    }

    /// Checks the server and gives it the scripts, so that no call has to.
    async fn make_ready(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Vec<String>, String> {
        let warnings = self.examine(connection).await?;
        for script in self.scripts.all() {
            script.load_async(connection).await.map_err(|error| {
                format!(
                    "cannot load scripts into {}: {}",
                    self.target,
                    chain(&classify(error).error)
                )
            })?;
        }
        Ok(warnings)
    }

    async fn examine(&self, connection: &mut MultiplexedConnection) -> Result<Vec<String>, String> {
        let info: String = redis::cmd("INFO").query_async(connection).await.map_err(|error| {
            format!("cannot ask {} for INFO: {}", self.target, chain(&classify(error).error))
        })?;
        check(&info, self.target.allow_eviction)
            .map_err(|problem| format!("{}: {problem}", self.target))
    }

    /// Returns when the connection has to be made again, and why.
    async fn watch(&self, up: Up, mut driver: Driver) -> String {
        let mut connection = up.connection.clone();
        let heard = up.heard.clone();
        self.announce(up);
        let mut changes = self.condition.subscribe();
        loop {
            let given_up = changes.wait_for(|now| !matches!(now, Condition::Up(_)));
            tokio::select! {
                _ = &mut driver.0 => return format!("{} closed the connection", self.target),
                now = given_up => return match now.as_deref() {
                    Ok(Condition::Down(problem)) => problem.clone(),
                    Ok(Condition::Up(_) | Condition::Closed) | Err(_) => "closed".to_owned(),
                },
                () = tokio::time::sleep(RECHECK_EVERY) => {}
            }
            let patience = self.target.connect_timeout;
            let mark = heard.mark();
            match tokio::time::timeout(patience, self.examine(&mut connection)).await {
                Ok(Ok(warnings)) => self.note(Arc::new(warnings)),
                Ok(Err(problem)) => return problem,
                // Slow, but there: calls are being answered.
                Err(_) if heard.mark() != mark => {}
                Err(_) => return format!("{} did not answer within {patience:?}", self.target),
            }
        }
    }

    fn note(&self, fresh: Arc<Vec<String>>) {
        self.condition.send_if_modified(|condition| match condition {
            Condition::Up(up) if up.warnings != fresh => {
                up.warnings = fresh;
                true
            }
            Condition::Up(_) | Condition::Down(_) | Condition::Closed => false,
        });
    }
}

async fn greet<S>(
    login: &RedisConnectionInfo,
    stream: S,
    heard: &Heard,
) -> RedisResult<(MultiplexedConnection, Driver)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The time-out of a call is ours, since it also has to give the connection up.
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE_MAX)
        .set_write_backpressure_boundary(WRITE_BYTES);
    let stream = Listened { stream, heard: heard.clone() };
    let (connection, driver) =
        MultiplexedConnection::new_with_config(login, stream, config).await?;
    Ok((connection, Driver(tokio::spawn(driver))))
}

fn chain(error: &Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(source) => format!("{error} ({source})"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::RedisConfig;
    use crate::redis::scripts::SCRIPTS;

    /// The keeper may be in the middle of something when the store is closed.
    #[tokio::test]
    async fn what_is_closed_stays_closed() {
        let target = Target::new(&RedisConfig::default()).expect("good settings");
        let condition = Arc::new(watch::Sender::new(Condition::Closed));
        let (stream, _server) = tokio::io::duplex(1 << 10);
        let heard = Heard::default();
        let (connection, _driver) =
            greet(&target.login, stream, &heard).await.expect("nothing is asked");
        let keeper =
            Keeper { target, scripts: &SCRIPTS, condition: condition.clone(), connections: 1 };
        keeper.announce(Up { connection, heard, number: 1, warnings: Arc::default() });
        assert!(matches!(*condition.borrow(), Condition::Closed));
        keeper.down("a problem".to_owned());
        assert!(matches!(*condition.borrow(), Condition::Closed));
    }
}
