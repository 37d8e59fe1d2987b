//! The store on this machine's disk: the default, for one gateway.
//!
//! **What is answered is on disk.** Every write is synced before its caller hears of it, and so
//! is what any caller is told about it: nobody learns of a record that a power cut could take
//! back. Writes that arrive together share one sync, see [`writer`].
//!
//! One process at a time: the directory is locked, and a second gateway is refused with the
//! path and the holder's process id.
//!
//! After a failed write the store refuses everything until the process is started again.
//! Whether that write is on disk can then not be told from within: the page cache may show what
//! the disk does not have. Starting again replays the journal, and callers had been told that
//! their call *may* have been applied.

mod disk;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use futures::future::BoxFuture;
use oncegate_core::{Identity, Record, Timestamp};
use tokio::sync::{oneshot, watch};

use self::disk::{Disk, Opened};
use self::writer::{Busy, Job, Message, Writer};
use crate::ask::events_by_ask;
use crate::clock::Steady;
use crate::record::Stored;
use crate::{Answered, Ask, Certainty, Clock, Error, ErrorKind, Health, ScanFilter, Store};

/// Settings of an [`EmbeddedStore`].
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Where time comes from.
    pub clock: Clock,
    /// How long a call may take, queue and sync included.
    pub timeout: Duration,
    /// How many calls may wait for the writer. One more is refused at once.
    pub queue_max: usize,
    /// Memory for blocks read from disk, in bytes.
    pub cache_bytes: u64,
    /// How often expired records are looked for. Each time a slice of them goes, so that no
    /// call waits long for the sweep.
    pub sweep_every: Duration,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            clock: Clock::wall(),
            timeout: Duration::from_secs(5),
            queue_max: 4096,
            cache_bytes: 32 << 20,
            sweep_every: Duration::from_secs(1),
        }
    }
}

/// How the store is.
#[derive(Clone, Debug)]
enum Condition {
    Open,
    /// A write failed; holds the operator's sentence.
    Broken(String),
    Closed,
}

/// See the module documentation.
pub struct EmbeddedStore {
    path: PathBuf,
    timeout: Duration,
    warnings: Vec<String>,
    clock: Arc<Mutex<Steady>>,
    condition: watch::Receiver<Condition>,
    busy: Busy,
    /// Taken out on close. The lock is never held across an await.
    open: RwLock<Option<Open>>,
}

struct Open {
    queue: SyncSender<Message>,
    disk: Disk,
}

impl EmbeddedStore {
    /// Opens the store in this directory, or makes a new one there.
    pub async fn open(path: &Path, options: EmbeddedOptions) -> Result<Self, Error> {
        let path = path.to_owned();
        let opening = move || Self::open_blocking(path, options);
        tokio::task::spawn_blocking(opening).await.map_err(|panic| {
            Error::unavailable("opening the store failed in its own code").because(panic)
        })?
    }

    fn open_blocking(path: PathBuf, options: EmbeddedOptions) -> Result<Self, Error> {
        let Opened { disk, latest, warnings } = disk::open(&path, options.cache_bytes)?;
        let clock = Arc::new(Mutex::new(Steady::new(options.clock, latest)));
        let (queue, inbox) = sync_channel(options.queue_max);
        let (tell, condition) = watch::channel(Condition::Open);
        let busy = Busy::default();
        let sweep_every = options.sweep_every;
        let writer =
            Writer::new(disk.clone(), clock.clone(), inbox, tell, busy.clone(), sweep_every);
        thread::Builder::new().name("oncegate-store".into()).spawn(move || writer.run()).map_err(
            |error| Error::unavailable("cannot start the store's thread").because(error),
        )?;
        let open = RwLock::new(Some(Open { queue, disk }));
        Ok(Self { path, timeout: options.timeout, warnings, clock, condition, busy, open })
    }

    async fn ask<A: Ask>(&self, id: &Identity, event: A) -> Result<A::Verdict, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Job(Job { id: *id, event: event.into_event(), reply }))?;
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(verdict)) => verdict.map(A::verdict),
            Ok(Err(_)) => Err(self.unanswered()),
            Err(_) => Err(Error::new(
                ErrorKind::TimedOut,
                Certainty::MaybeApplied,
                format!("no answer from the store's disk within {:?}", self.timeout),
            )),
        }
    }

    fn send(&self, message: Message) -> Result<(), Error> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let queue = &open.as_ref().ok_or_else(Error::closed)?.queue;
        queue.try_send(message).map_err(|refused| match refused {
            TrySendError::Full(_) => Error::unavailable("the store's queue is full"),
            TrySendError::Disconnected(_) => Error::unavailable("the store's writer has ended"),
        })
    }

    /// The writer dropped the call: it ended, or failed in its own code.
    fn unanswered(&self) -> Error {
        let message = "the store's writer ended before it answered";
        Error::new(ErrorKind::Unavailable, Certainty::MaybeApplied, message)
    }

    fn disk(&self) -> Result<Disk, Error> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map(|open| open.disk.clone()).ok_or_else(Error::closed)
    }

    fn now(&self) -> Timestamp {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).now()
    }

    /// Reads on a thread where waiting for a disk hurts nobody. It sees synced records only.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk, Timestamp) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (disk, now) = (self.disk()?, self.now());
        tokio::task::spawn_blocking(move || work(&disk, now)).await.map_err(|panic| {
            Error::unavailable("reading the store failed in its own code").because(panic)
        })?
    }

    /// Puts bytes in place of a record, for tests of damaged records.
    #[doc(hidden)]
    pub async fn plant(&self, id: &Identity, bytes: &[u8]) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Plant { id: *id, bytes: bytes.to_vec(), reply })?;
        answer.await.map_err(|_| self.unanswered())?
    }

    /// Sweeps until nothing expired is left and says how many records remain, for tests.
    #[doc(hidden)]
    pub async fn sweep(&self) -> Result<usize, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Sweep { reply })?;
        answer.await.map_err(|_| self.unanswered())?
    }
}

impl Store for EmbeddedStore {
    events_by_ask!();

    fn peek<'a>(&'a self, id: &'a Identity) -> Answered<'a, Option<Record>> {
        let id = *id;
        Box::pin(self.read(move |disk, now| {
            let found = disk.get(&id)?.map(|entry| entry.stored);
            Ok(found.filter(|stored| !stored.is_expired(now)).map(Stored::into_record))
        }))
    }

    fn scan<'a>(
        &'a self,
        limit: usize,
        filter: ScanFilter,
    ) -> Answered<'a, Vec<(Identity, Record)>> {
        Box::pin(self.read(move |disk, now| disk.scan(limit, filter, now)))
    }

    fn health(&self) -> Health {
        match &*self.condition.borrow() {
            Condition::Open if self.busy.running_for() > self.timeout => Health::bad(format!(
                "the store at {} hangs: its disk has been at one batch for more than {:?}",
                self.path.display(),
                self.timeout
            )),
            Condition::Open => Health { warnings: self.warnings.clone(), ..Health::good() },
            Condition::Broken(why) => Health::bad(format!(
                "the store at {} takes no more writes: {why}. Free space or repair the disk, then start \
                 the gateway again.",
                self.path.display()
            )),
            Condition::Closed => Health::bad("the store is closed"),
        }
    }

    /// What is queued is still done and answered; then the files are released.
    fn close<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // Without its queue the writer ends by itself.
            drop(self.open.write().unwrap_or_else(PoisonError::into_inner).take());
            let mut condition = self.condition.clone();
            // An error means that the writer is gone without a word, which is ended as well.
            let _ = condition.wait_for(|now| matches!(now, Condition::Closed)).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use oncegate_core::{Fingerprint, OnUnknown, OwnerToken, Phases, Reserve, ReserveVerdict};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    /// In place of a disk that hangs, the clock that each batch asks.
    #[tokio::test]
    async fn a_batch_that_hangs_is_bad_health_until_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let sweep_every = LONG;
        let options = EmbeddedOptions { timeout: TIMEOUT, sweep_every, ..Default::default() };
        let store = EmbeddedStore::open(dir.path(), options).await.expect("a store");
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let clock = store.clock.clone();
        let holder = thread::spawn(move || {
            let _held = clock.lock();
            held.send(()).expect("waited for");
            let _ = released.recv_timeout(LONG);
        });
        is_held.recv_timeout(LONG).expect("held");
        assert!(store.health().ready, "nothing was asked yet");
        let id = Identity([1; 32]);
        let reserve = || Reserve {
            owner: OwnerToken([1; 16]),
            fingerprint: Fingerprint { version: 1, digest: [1; 32] },
            phases: Phases::One,
            lease: LONG,
            retention: LONG,
            on_unknown: OnUnknown::Hold,
        };
        let late = store.reserve(&id, reserve()).await.expect_err("it hangs");
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        tokio::time::sleep(TIMEOUT).await;
        let problem = store.health().problem.expect("it hangs");
        assert!(problem.contains("hangs"), "{problem}");
        release.send(()).expect("waited for");
        holder.join().expect("ended");
        // Its batch came first.
        let told = loop {
            match store.reserve(&id, reserve()).await {
                Ok(told) => break told,
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}"),
            }
        };
        assert!(matches!(told, ReserveVerdict::Proceed { .. }), "{told:?}");
        let ended = async {
            while !store.health().ready {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, ended).await.expect("well again");
    }
}
