//! The store that many gateways share: one standalone Redis, 7.0 or later.
//!
//! One identity is one string key, `<namespace>:{<identity>}`, with the bytes of
//! [`crate::record`] and the record's own end as its expiry. Each event is one script, which
//! touches that key alone: it reads Redis's clock and the record, takes the same transition as
//! `oncegate-core`, and writes with one `SET`, so that nothing is ever half written. A string
//! and not a hash, because record and expiry are then written by one call, at the same cost in
//! time and some 200 bytes less per record. A test drives scripts and core through the same
//! random histories.
//!
//! A first execution is two commands on the wire, a replay is one. All calls share one
//! connection and are pipelined on it. No call is sent twice, except when Redis had forgotten a
//! script (`NOSCRIPT`: nothing was run): then it is loaded and the call sent again.
//!
//! A foreign type under a record's name, or an answer that no script gives, is to a reservation
//! what unreadable bytes are (see [`crate::record`]), and to every other call an error,
//! [`ErrorKind::Corrupt`].
//!
//! # What Redis promises, and what it does not
//!
//! Redis acknowledges writes before they are on disk, unless it has `appendonly yes` and
//! `appendfsync always`, and before its replicas have them. A write lost that way lets its
//! operation run again. The checks at the start (see [`checks`]) refuse what loses
//! reservations in normal operation and warn of what loses them in a crash.
//!
//! # The user's rights
//!
//! `+evalsha +script|load +time +get +set +del +info +scan +getrange +select` on
//! `~<namespace>:*`; `scan` and `getrange` are for listing, `select` for a database other than 0.

mod checks;
mod heard;
mod keyspace;
mod link;
mod pause;
mod reply;
mod scripts;
mod target;

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use oncegate_core::{Identity, Next, Record, Timestamp};
use redis::{Cmd, Script, Value};
use tokio::runtime::Handle;

pub use self::checks::REDIS_VERSION_MIN;
use self::keyspace::Keyspace;
use self::link::{Link, Up};
use self::reply::{Failed, FromReply, classify, nonsense, read_peek};
use self::scripts::{Packed, SCRIPTS, Scripts, TEST_SCRIPTS};
use self::target::Target;
use crate::ask::events_by_ask;
use crate::record::{Stored, step};
use crate::{Answered, Certainty, Clock, Error, ErrorKind, Health, ScanFilter, Store};

/// How many names one step of a listing asks for.
const SCAN_STEP: usize = 256;

/// Settings of a [`RedisStore`]. `Debug` leaves the password out.
#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://host:port/database`, or `rediss://…` for TLS. No credentials in here.
    pub url: String,
    /// What the names of all records begin with. Gateways that share records share it.
    pub namespace: String,
    /// The ACL user; `None` for the default user.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// Who may sign the server's certificate, PEM; `None` for whom the machine trusts.
    pub ca_pem: Option<Vec<u8>>,
    /// How long one command may take.
    pub timeout: Duration,
    /// How long connecting may take, and then again logging in and the checks.
    pub connect_timeout: Duration,
    /// Accept a Redis that drops records when its memory runs short.
    pub allow_eviction: bool,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379/0".to_owned(),
            namespace: "oncegate".to_owned(),
            username: None,
            password: None,
            ca_pem: None,
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(1),
            allow_eviction: false,
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, namespace, username, password, ca_pem, .. } = self;
        f.debug_struct("RedisConfig")
            .field("url", url)
            .field("namespace", namespace)
            .field("username", username)
            .field("password", &password.as_ref().map(|_| "…"))
            .field("ca_pem", &ca_pem.as_ref().map(Vec::len))
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("allow_eviction", &self.allow_eviction)
            .finish()
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct RedisStore {
    link: Link,
    keyspace: Keyspace,
    scripts: &'static Scripts,
    /// The time that scripts are told, in tests; otherwise they ask Redis.
    clock: Option<Clock>,
}

impl RedisStore {
    /// Checks the settings and starts to connect; [`RedisStore::ready`] waits for that. Needs a
    /// tokio runtime around it.
    pub fn new(config: RedisConfig) -> Result<Self, Error> {
        Self::start(&config, &SCRIPTS, None)
    }

    /// The same scripts, driven by a test's clock.
    #[doc(hidden)]
    pub fn with_test_clock(config: RedisConfig, clock: Clock) -> Result<Self, Error> {
        Self::start(&config, &TEST_SCRIPTS, Some(clock))
    }

    fn start(
        config: &RedisConfig,
        scripts: &'static Scripts,
        clock: Option<Clock>,
    ) -> Result<Self, Error> {
        let misconfigured =
            |message: String| Error::new(ErrorKind::Misconfigured, Certainty::NotApplied, message);
        let keyspace = Keyspace::new(&config.namespace)
            .map_err(|what| misconfigured(format!("the namespace cannot be used: {what}")))?;
        let target = Target::new(config)?;
        if Handle::try_current().is_err() {
            return Err(misconfigured("the Redis store needs a tokio runtime".to_owned()));
        }
        Ok(Self { link: Link::start(target, scripts), keyspace, scripts, clock })
    }

    /// Waits until Redis is connected and fit, though no longer than this, and says how it is.
    pub async fn ready(&self, within: Duration) -> Health {
        self.link.ready(within).await
    }

    async fn ask<E: FromReply>(&self, id: &Identity, event: E) -> Result<E::Verdict, Error> {
        let mut up = self.link.up()?;
        let name = self.keyspace.name(id);
        match self.run(&mut up, E::script(self.scripts), &name, event.pack()).await {
            Ok(reply) => {
                E::read(reply).or_else(|reply| unless_corrupt::<E>(self.give_up(&up, &reply)))
            }
            Err(error) if error.kind() == ErrorKind::Refused => {
                self.without_writing(&name, event, error).await
            }
            Err(error) => unless_corrupt::<E>(error),
        }
    }

    /// A Redis that takes no writes, because it is full or lacks replicas, can still be read: what
    /// is finished is replayed.
    async fn without_writing<E: FromReply>(
        &self,
        name: &str,
        event: E,
        refused: Error,
    ) -> Result<E::Verdict, Error> {
        if !E::MAY_ONLY_READ {
            return Err(refused);
        }
        let (now, stored) = match self.look(name).await {
            Ok(looked) => looked,
            Err(error) if error.kind() == ErrorKind::Corrupt => return unless_corrupt::<E>(error),
            // Whatever else goes wrong here, the first refusal says more.
            Err(_) => return Err(refused),
        };
        match step(now, stored.as_ref(), &event.into_event()) {
            (Next::Keep, verdict) => Ok(E::verdict(verdict)),
            (Next::Write(_) | Next::Remove, _) => Err(refused),
        }
    }

    /// An answer that makes no sense may be another call's, so its connection goes.
    fn give_up(&self, up: &Up, reply: &Value) -> Error {
        let error = nonsense(reply);
        self.link.drop_connection(up.number(), &error);
        error
    }

    async fn run(
        &self,
        up: &mut Up,
        script: &Script,
        name: &str,
        asked: Packed,
    ) -> Result<Value, Error> {
        let command = self.command(script, name, &asked);
        match self.link.send(up, &command).await {
            Ok(reply) => Ok(reply),
            Err(failed) if failed.is_no_script() => {
                self.link.load(up, script).await.map_err(Failed::into_error)?;
                self.link.send(up, &command).await.map_err(Failed::into_error)
            }
            Err(failed) => Err(failed.error),
        }
    }

    fn command(&self, script: &Script, name: &str, asked: &Packed) -> Cmd {
        let size = 64 + name.len() + asked.head.len() + asked.answer.len();
        let mut command = Cmd::with_capacity(7, size);
        command.arg("EVALSHA").arg(script.get_hash()).arg(1).arg(name);
        command.arg(&asked.head).arg(&asked.answer);
        if let Some(clock) = &self.clock {
            command.arg(clock.manual_now().map_or(0, |now| now.0));
        }
        command
    }

    async fn look(&self, name: &str) -> Result<(Timestamp, Option<Stored>), Error> {
        let mut up = self.link.up()?;
        let reply = self.run(&mut up, &self.scripts.peek, name, Packed::default()).await?;
        read_peek(reply).map_err(|reply| self.give_up(&up, &reply))
    }

    async fn list(
        &self,
        limit: usize,
        filter: ScanFilter,
    ) -> Result<Vec<(Identity, Record)>, Error> {
        let mut found = Vec::new();
        let mut cursor = 0u64;
        while found.len() < limit {
            let (next, names) = self.scan_step(cursor).await?;
            for (id, name) in names {
                let (now, stored) = match self.look(&name).await {
                    Ok(looked) => looked,
                    // Somebody else's key among ours is not this listing's business.
                    Err(error) if error.kind() == ErrorKind::Corrupt => continue,
                    Err(error) => return Err(error),
                };
                let record = stored.map(Stored::into_record);
                found.extend(record.filter(|r| filter.admits(r, now)).map(|record| (id, record)));
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn scan_step(&self, cursor: u64) -> Result<(u64, Vec<(Identity, String)>), Error> {
        let mut up = self.link.up()?;
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(self.keyspace.pattern()).arg("COUNT").arg(SCAN_STEP);
        let reply = self.link.send(&mut up, &command).await.map_err(Failed::into_error)?;
        let (next, names): (u64, Vec<String>) =
            redis::from_redis_value(reply).map_err(|error| classify(error.into()).error)?;
        let ours = names
            .into_iter()
            .filter_map(|name| self.keyspace.identity(name.as_bytes()).map(|id| (id, name)));
        Ok((next, ours.collect()))
    }
}

/// The failure, or the verdict that stands for it when it is about what makes no sense.
fn unless_corrupt<E: FromReply>(error: Error) -> Result<E::Verdict, Error> {
    let verdict = E::on_corrupt().filter(|_| error.kind() == ErrorKind::Corrupt);
    let Some(verdict) = verdict else { return Err(error) };
    tracing::warn!(?error, "a reservation is told that its record cannot be read");
    Ok(verdict)
}

impl Store for RedisStore {
    events_by_ask!();

    fn peek<'a>(&'a self, id: &'a Identity) -> Answered<'a, Option<Record>> {
        Box::pin(async move {
            let (_, stored) = self.look(&self.keyspace.name(id)).await?;
            Ok(stored.map(Stored::into_record))
        })
    }

    fn scan<'a>(
        &'a self,
        limit: usize,
        filter: ScanFilter,
    ) -> Answered<'a, Vec<(Identity, Record)>> {
        Box::pin(self.list(limit, filter))
    }

    fn health(&self) -> Health {
        self.link.health()
    }

    fn close<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.link.close() })
    }
}
