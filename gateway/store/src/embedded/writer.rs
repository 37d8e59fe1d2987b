//! The one thread that writes.
//!
//! It takes what is queued as one batch, runs the protocol over it in order, each event seeing
//! what earlier ones did, writes all of it with one sync, and then answers. While the disk
//! syncs, the next batch gathers, so the batch grows with the load and the syncs do not.
//!
//! A verdict that depends on a record changed in this batch waits for the sync. Any other
//! verdict that changes nothing (a replay, a busy, a mismatch) is answered before it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::error::Error as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use oncegate_core::{Ending, Event, Identity, Next, Resolution, Timestamp, Verdict};
use tokio::sync::{oneshot, watch};

use super::Condition;
use super::disk::{Changes, Disk, Entry};
use crate::clock::Steady;
use crate::record::{Stored, step};
use crate::{Certainty, Error, ErrorKind};

/// How many calls share a sync at most.
const BATCH_MAX: usize = 512;
/// And how many bytes of answers: those that calls bring along, and those read for them.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How many records one sweep looks at.
const SWEEP_MAX: usize = 512;
/// When to look again at bytes that cannot be read: they have no end that could be trusted.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// One call.
pub(super) struct Job {
    pub(super) id: Identity,
    pub(super) event: Event,
    pub(super) reply: Reply<Verdict>,
}

/// What the writer can be asked.
pub(super) enum Message {
    Job(Job),
    Plant { id: Identity, bytes: Vec<u8>, reply: Reply<()> },
    Sweep { reply: Reply<usize> },
}

pub(super) struct Writer {
    disk: Disk,
    clock: Arc<Mutex<Steady>>,
    inbox: Receiver<Message>,
    tell: Teller,
    busy: Busy,
    sweep_every: Duration,
    /// No index entry is older, so the sweep need not start at the front, where it would walk
    /// over the remains of everything it has removed.
    swept_to: Timestamp,
}

impl Writer {
    pub(super) fn new(
        disk: Disk,
        clock: Arc<Mutex<Steady>>,
        inbox: Receiver<Message>,
        tell: watch::Sender<Condition>,
        busy: Busy,
        sweep_every: Duration,
    ) -> Self {
        let swept_to = Timestamp(0);
        Self { disk, clock, inbox, tell: Teller(tell), busy, sweep_every, swept_to }
    }

    /// Works until nobody can ask any more.
    pub(super) fn run(mut self) {
        let mut sweep_at = Instant::now() + self.sweep_every;
        loop {
            match self.inbox.recv_timeout(sweep_at.saturating_duration_since(Instant::now())) {
                Ok(message) => self.work(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= sweep_at {
                self.busy.begin();
                let again = self.sweep_and_tell();
                self.busy.end();
                sweep_at = Instant::now() + if again { Duration::ZERO } else { self.sweep_every };
            }
        }
    }

    fn work(&mut self, first: Message) {
        let mut jobs = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Job(job) => {
                    bytes += answer_len(&job.event);
                    jobs.push(job);
                }
                Message::Plant { id, bytes, reply } => {
                    self.serve(std::mem::take(&mut jobs));
                    let _ = reply.send(self.plant(&id, &bytes));
                }
                Message::Sweep { reply } => {
                    self.serve(std::mem::take(&mut jobs));
                    let _ = reply.send(self.sweep_all());
                }
            }
            let full = jobs.len() >= BATCH_MAX || bytes >= BATCH_BYTES_MAX;
            next = if full { None } else { self.inbox.try_recv().ok() };
        }
        self.serve(jobs);
    }

    /// One batch, or several when a lot has to be read for it.
    fn serve(&mut self, jobs: Vec<Job>) {
        let mut jobs = jobs.into_iter();
        while !jobs.as_slice().is_empty() {
            self.busy.begin();
            self.serve_some(&mut jobs);
            self.busy.end();
        }
    }

    /// One batch, from the protocol to the answers. Leaves the jobs that are too much for it.
    fn serve_some(&mut self, jobs: &mut std::vec::IntoIter<Job>) {
        if let Some(why) = self.tell.broken() {
            return jobs.for_each(|job| answer(job.reply, Err(broken(&why))));
        }
        let now = self.now();
        let mut batch = Batch { disk: &self.disk, now, slots: HashMap::new(), bytes_read: 0 };
        let mut waiting = Vec::new();
        while batch.bytes_read < BATCH_BYTES_MAX
            && let Some(job) = jobs.next()
        {
            match batch.take(&job.id, &job.event) {
                Ok((verdict, Waits::ForNothing)) => answer(job.reply, Ok(verdict)),
                Ok((verdict, Waits::ForSync)) => waiting.push((job.reply, verdict)),
                Err(error) => answer(job.reply, Err(error)),
            }
        }
        if waiting.is_empty() {
            return;
        }
        match batch.commit() {
            Ok(()) => waiting.into_iter().for_each(|(reply, verdict)| answer(reply, Ok(verdict))),
            Err(error) => {
                self.tell.fail(&error);
                let kind = error.kind();
                waiting.into_iter().for_each(|(reply, _)| answer(reply, Err(unsure(kind))));
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).now()
    }

    fn plant(&mut self, id: &Identity, bytes: &[u8]) -> Result<(), Error> {
        let now = self.now();
        let mut changes = self.disk.changes(2);
        changes.put_bytes(id, now, bytes);
        changes.index(now, id);
        self.swept_to = self.swept_to.min(now);
        changes.commit(now)
    }

    fn sweep_all(&mut self) -> Result<usize, Error> {
        while self.sweep()? {}
        self.disk.count()
    }

    fn sweep_and_tell(&mut self) -> bool {
        if self.tell.broken().is_some() {
            return false;
        }
        self.sweep().unwrap_or_else(|error| {
            match error.certainty() {
                Certainty::MaybeApplied => self.tell.fail(&error),
                Certainty::NotApplied => tracing::warn!(?error, "the store's sweep failed"),
            }
            false
        })
    }

    /// Removes a slice of what has expired; says whether there may be more.
    fn sweep(&mut self) -> Result<bool, Error> {
        let now = self.now();
        let due = self.disk.due(self.swept_to, now, SWEEP_MAX)?;
        if due.is_empty() {
            return Ok(false);
        }
        let mut changes = self.disk.changes(2 * due.len());
        for (at, id) in &due {
            let entry = self.disk.get(id)?;
            sweep_one(&mut changes, now, *at, id, entry);
        }
        changes.commit_lazily()?;
        self.swept_to = due.last().map_or(self.swept_to, |(at, _)| *at);
        Ok(due.len() == SWEEP_MAX)
    }
}

/// Looks at one index entry that is due.
fn sweep_one(
    changes: &mut Changes<'_>,
    now: Timestamp,
    at: Timestamp,
    id: &Identity,
    entry: Option<Entry>,
) {
    changes.unindex(at, id);
    match entry {
        None => {}
        Some(Entry { stored: Stored::Unreadable, .. }) => {
            changes.index(now.after(UNREADABLE_AGAIN), id);
        }
        // Also where an older entry was left behind by bytes that could not be read: an entry
        // too many costs one look.
        Some(Entry { stored: Stored::Readable(record), .. }) => {
            if record.is_expired(now) {
                changes.remove(id);
            } else {
                changes.put(id, record.expires_at, &record);
                changes.index(record.expires_at, id);
            }
        }
    }
}

/// Whether a verdict may be given before the batch is synced.
enum Waits {
    ForNothing,
    ForSync,
}

/// What one batch has read and changed.
struct Batch<'a> {
    disk: &'a Disk,
    now: Timestamp,
    slots: HashMap<Identity, Slot>,
    /// Or copied, when a call is about a record that has been read already.
    bytes_read: usize,
}

struct Slot {
    stored: Option<Stored>,
    /// How many bytes it is on disk.
    len: usize,
    /// The place in the index that the record on disk has.
    due: Option<Timestamp>,
    changed: bool,
}

impl<'a> Batch<'a> {
    fn take(&mut self, id: &Identity, event: &Event) -> Result<(Verdict, Waits), Error> {
        let slot = match self.slots.entry(*id) {
            MapEntry::Occupied(slot) => slot.into_mut(),
            MapEntry::Vacant(empty) => empty.insert(Slot::from(self.disk.get(id)?)),
        };
        self.bytes_read += slot.len;
        let (next, verdict) = step(self.now, slot.stored.as_ref(), event);
        match next {
            Next::Keep => {}
            Next::Write(record) => slot.change(Some(Stored::Readable(record))),
            Next::Remove => slot.change(None),
        }
        Ok((verdict, if slot.changed { Waits::ForSync } else { Waits::ForNothing }))
    }

    fn commit(self) -> Result<(), Error> {
        let mut changes = self.disk.changes(2 * self.slots.len() + 1);
        for (id, slot) in self.slots.iter().filter(|(_, slot)| slot.changed) {
            match (&slot.stored, slot.due) {
                (Some(Stored::Readable(record)), Some(due)) => changes.put(id, due, record),
                (Some(Stored::Readable(record)), None) => {
                    changes.put(id, record.expires_at, record);
                    changes.index(record.expires_at, id);
                }
                (None, due) => {
                    changes.remove(id);
                    due.into_iter().for_each(|due| changes.unindex(due, id));
                }
                // The protocol never writes such a thing.
                (Some(Stored::Unreadable), _) => {}
            }
        }
        changes.commit(self.now)
    }
}

impl Slot {
    fn from(entry: Option<Entry>) -> Self {
        match entry {
            Some(Entry { stored, due, len }) => {
                // Unreadable bytes may be indexed elsewhere; what replaces them gets a place of
                // its own.
                let due = Some(due).filter(|_| stored != Stored::Unreadable);
                Self { stored: Some(stored), len, due, changed: false }
            }
            None => Self { stored: None, len: 0, due: None, changed: false },
        }
    }

    fn change(&mut self, stored: Option<Stored>) {
        self.stored = stored;
        self.changed = true;
    }
}

/// Since when the writer has been at the batch, or the sweep, that it is at.
#[derive(Clone, Default)]
pub(super) struct Busy(Arc<Mutex<Option<Instant>>>);

impl Busy {
    fn begin(&self) {
        self.set(Some(Instant::now()));
    }

    fn end(&self) {
        self.set(None);
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// For how long by now; zero when there is nothing to do.
    pub(super) fn running_for(&self) -> Duration {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Tells the store's front how the writer is, and that it has ended, also by a panic.
struct Teller(watch::Sender<Condition>);

impl Teller {
    fn broken(&self) -> Option<String> {
        match &*self.0.borrow() {
            Condition::Broken(why) => Some(why.clone()),
            Condition::Open | Condition::Closed => None,
        }
    }

    fn fail(&self, error: &Error) {
        tracing::error!(?error, "the store takes no more writes");
        let why = match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        self.0.send_replace(Condition::Broken(why));
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the store's writer failed in its own code");
        }
        self.0.send_replace(Condition::Closed);
    }
}

/// Nobody may be waiting any more, which is their business.
fn answer(reply: Reply<Verdict>, verdict: Result<Verdict, Error>) {
    let _ = reply.send(verdict);
}

fn broken(why: &str) -> Error {
    Error::unavailable(format!("the store takes no more writes: {why}"))
}

fn unsure(kind: ErrorKind) -> Error {
    let message = "the store's disk failed during this call's batch";
    Error::new(kind, Certainty::MaybeApplied, message)
}

/// The bytes that an event brings along.
fn answer_len(event: &Event) -> usize {
    let answer = match event {
        Event::Finish(event) => match &event.ending {
            Ending::Completed(answer) => Some(answer),
            Ending::Unknown { answer, .. } => answer.as_ref(),
            Ending::Tombstone { .. } => None,
        },
        Event::Resolve(event) => match &event.resolution {
            Resolution::Done(answer) => Some(answer),
            Resolution::NeverHappened => None,
        },
        Event::Reserve(_)
        | Event::Dispatch(_)
        | Event::Renew(_)
        | Event::Reassert(_)
        | Event::Release(_) => None,
    };
    answer.map_or(0, |answer| answer.body.len())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use oncegate_core::{
        Answer, Claim, Fence, Fingerprint, OnUnknown, OwnerToken, Phases, Record, Reserve,
        ReserveVerdict, State,
    };

    use super::*;
    use crate::Clock;
    use crate::embedded::disk;

    const NOW: Timestamp = Timestamp(1_790_000_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn replays_of_large_answers_are_more_than_one_batch() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = disk::open(dir.path(), 1 << 20).expect("a store").disk;
        let fingerprint = Fingerprint { version: 1, digest: [1; 32] };
        let answer = Answer { status: 200, headers: Vec::new(), body: vec![7; 3 << 20] };
        let record = Record {
            fingerprint,
            claim: Claim { owner: OwnerToken([1; 16]), fence: Fence(NOW.0) },
            reserved_at: NOW,
            expires_at: NOW.after(HOUR),
            state: State::Completed { at: NOW, answer },
        };
        let ids: Vec<Identity> = (1..=7).map(|n| Identity([n; 32])).collect();
        let mut changes = disk.changes(ids.len());
        ids.iter().for_each(|id| changes.put(id, record.expires_at, &record));
        changes.commit(NOW).expect("written");

        let clock = Arc::new(Mutex::new(Steady::new(Clock::manual(NOW), NOW)));
        let (_queue, inbox) = sync_channel(1);
        let (tell, _told) = watch::channel(Condition::Open);
        let mut writer = Writer::new(disk, clock, inbox, tell, Busy::default(), HOUR);
        let (jobs, mut answers): (Vec<_>, Vec<_>) = ids
            .iter()
            .map(|id| {
                let (reply, answer) = oneshot::channel();
                let event = Event::Reserve(Reserve {
                    owner: OwnerToken([2; 16]),
                    fingerprint,
                    phases: Phases::One,
                    lease: HOUR,
                    retention: HOUR,
                    on_unknown: OnUnknown::Hold,
                });
                (Job { id: *id, event, reply }, answer)
            })
            .unzip();
        let mut jobs = jobs.into_iter();
        writer.serve_some(&mut jobs);
        // The third makes it more than 8 MiB.
        assert_eq!(jobs.len(), 4);
        writer.serve(jobs.collect());
        for answer in &mut answers {
            let told = answer.try_recv().expect("answered").expect("a verdict");
            assert!(matches!(told, Verdict::Reserve(ReserveVerdict::Replay { .. })), "{told:?}");
        }
    }
}
