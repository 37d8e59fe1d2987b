//! What is on disk, and how it is read and written.
//!
//! ```text
//! <path>/format          "oncegate store 1": this directory is a store
//! <path>/holder          process id of whoever has it open, or had
//! <path>/data/           the engine's files, and its lock
//!   records:  identity            → due (8 bytes), then the bytes of `record`
//!   due:      due, identity       → nothing
//!   meta:     "clock"             → the latest time written
//! ```
//!
//! `due` is when to look at a record again for expiry. It is set when the record is made and
//! not moved by every renewal, which would cost two more writes each; the sweep moves it when it
//! comes by too early. The record repeats it, so that the entry can be removed with the record.

use std::fs;
use std::io::{self, ErrorKind as IoErrorKind};
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use oncegate_core::{Identity, Record, Timestamp};

use crate::record::{Stored, decode, encode_after};
use crate::{Certainty, Error, ErrorKind, ScanFilter};

const FORMAT: &str = "oncegate store 1\n";
const CLOCK: &str = "clock";
/// Bounds what a start after a crash has to replay.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;
const MEMTABLE_BYTES_MAX: u64 = 16 << 20;
const DUE_LEN: usize = 8;

/// The open files; clones share them.
#[derive(Clone)]
pub(super) struct Disk {
    records: Keyspace,
    due: Keyspace,
    meta: Keyspace,
    // Last, so that it goes last.
    db: Database,
}

/// An opened store.
pub(super) struct Opened {
    pub(super) disk: Disk,
    /// The latest time it has written.
    pub(super) latest: Timestamp,
    pub(super) warnings: Vec<String>,
}

/// A stored record and its place in the index.
pub(super) struct Entry {
    pub(super) stored: Stored,
    pub(super) due: Timestamp,
    /// How many bytes it is on disk.
    pub(super) len: usize,
}

/// Opens or makes the store in this directory.
pub(super) fn open(path: &Path, cache_bytes: u64) -> Result<Opened, Error> {
    let known = read_format(path)?;
    let data = path.join("data");
    if known && !data.join("version").exists() {
        // An engine asked to open nothing makes something new: every key would run again.
        return Err(corrupt(format!(
            "{} was a store once, but its data is missing; restore it, or remove the whole \
             directory to start empty",
            path.display()
        )));
    }
    let db = Database::builder(&data)
        // Of more than one, the engine keeps the first for flushing: with one alone, a long
        // compaction would keep memory tables from being flushed, and writers waiting.
        .worker_threads(2)
        .cache_size(cache_bytes)
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .open()
        .map_err(|error| not_opened(path, error))?;
    let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES_MAX);
    let keyspace = |name| db.keyspace(name, options).map_err(|error| not_opened(path, error));
    let disk = Disk {
        records: keyspace("records")?,
        due: keyspace("due")?,
        meta: keyspace("meta")?,
        db: db.clone(),
    };
    let latest = disk.latest()?;
    let mut warnings = Vec::new();
    if !known {
        write_whole(path, "format", FORMAT).map_err(|error| cannot(path, "write to", error))?;
        warnings.push(format!("the store at {} was made new and empty", path.display()));
    }
    // Only for the sentence that a second process is told, so a failure changes nothing.
    let _ = write_whole(path, "holder", &std::process::id().to_string());
    Ok(Opened { disk, latest, warnings })
}

fn read_format(path: &Path) -> Result<bool, Error> {
    fs::create_dir_all(path).map_err(|error| cannot(path, "make", error))?;
    match fs::read_to_string(path.join("format")) {
        Ok(text) if text == FORMAT => Ok(true),
        Ok(text) => Err(corrupt(format!(
            "{} is a store of another version ({:?}); this one reads {:?}",
            path.display(),
            text.trim_end(),
            FORMAT.trim_end()
        ))),
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot(path, "read", error)),
    }
}

/// Either the old contents or the new are there, also after a crash.
fn write_whole(path: &Path, name: &str, contents: &str) -> io::Result<()> {
    let fresh = path.join(format!("{name}.new"));
    fs::write(&fresh, contents)?;
    fs::File::open(&fresh)?.sync_all()?;
    fs::rename(&fresh, path.join(name))?;
    fs::File::open(path)?.sync_all()
}

impl Disk {
    fn latest(&self) -> Result<Timestamp, Error> {
        let found = self.meta.get(CLOCK).map_err(not_read)?;
        match found.as_deref().map(<[u8; 8]>::try_from) {
            None => Ok(Timestamp(0)),
            Some(Ok(bytes)) => Ok(Timestamp(u64::from_be_bytes(bytes))),
            Some(Err(_)) => Err(corrupt("the stored clock cannot be read".into())),
        }
    }

    pub(super) fn get(&self, id: &Identity) -> Result<Option<Entry>, Error> {
        Ok(self.records.get(id.0).map_err(not_read)?.map(|bytes| entry(&bytes)))
    }

    /// Up to `limit` index entries from `from` on that are due at `now`, oldest first.
    pub(super) fn due(
        &self,
        from: Timestamp,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Identity)>, Error> {
        let range =
            from.0.to_be_bytes()..now.after(std::time::Duration::from_micros(1)).0.to_be_bytes();
        let keys = self.due.range(range).take(limit).map(|item| item.key().map_err(not_read));
        keys.map(|key| {
            let key = key?;
            read_due_key(&key).ok_or_else(|| corrupt("an index entry cannot be read".into()))
        })
        .collect()
    }

    /// See [`crate::Store::scan`].
    pub(super) fn scan(
        &self,
        limit: usize,
        filter: ScanFilter,
        now: Timestamp,
    ) -> Result<Vec<(Identity, Record)>, Error> {
        let mut found = Vec::new();
        for item in self.records.iter() {
            if found.len() == limit {
                break;
            }
            let (key, value) = item.into_inner().map_err(not_read)?;
            let id = <[u8; 32]>::try_from(&*key)
                .map_err(|_| corrupt("a record has a name of the wrong length".into()))?;
            let stored = entry(&value).stored;
            if stored.is_expired(now) {
                continue;
            }
            let record = stored.into_record();
            if filter.admits(&record, now) {
                found.push((Identity(id), record));
            }
        }
        Ok(found)
    }

    pub(super) fn count(&self) -> Result<usize, Error> {
        self.records.len().map_err(not_read)
    }

    /// Collects changes that will happen together.
    pub(super) fn changes(&self, capacity: usize) -> Changes<'_> {
        Changes { disk: self, batch: OwnedWriteBatch::with_capacity(self.db.clone(), capacity) }
    }
}

/// Changes that happen wholly or not at all.
pub(super) struct Changes<'a> {
    disk: &'a Disk,
    batch: OwnedWriteBatch,
}

impl Changes<'_> {
    pub(super) fn put(&mut self, id: &Identity, due: Timestamp, record: &Record) {
        let bytes = encode_after(&due.0.to_be_bytes(), record);
        self.batch.insert(&self.disk.records, id.0, bytes);
    }

    pub(super) fn put_bytes(&mut self, id: &Identity, due: Timestamp, bytes: &[u8]) {
        let bytes = [&due.0.to_be_bytes(), bytes].concat();
        self.batch.insert(&self.disk.records, id.0, bytes);
    }

    pub(super) fn remove(&mut self, id: &Identity) {
        self.batch.remove(&self.disk.records, id.0);
    }

    pub(super) fn index(&mut self, due: Timestamp, id: &Identity) {
        self.batch.insert(&self.disk.due, due_key(due, id), []);
    }

    pub(super) fn unindex(&mut self, due: Timestamp, id: &Identity) {
        self.batch.remove(&self.disk.due, due_key(due, id));
    }

    /// Writes and syncs. After an error nobody can tell whether it is on disk.
    pub(super) fn commit(mut self, now: Timestamp) -> Result<(), Error> {
        self.batch.insert(&self.disk.meta, CLOCK, now.0.to_be_bytes());
        self.batch.durability(Some(PersistMode::SyncData)).commit().map_err(not_written)
    }

    /// Writes without a sync of its own: for removals that the next sweep would repeat.
    pub(super) fn commit_lazily(self) -> Result<(), Error> {
        self.batch.commit().map_err(not_written)
    }
}

fn entry(bytes: &[u8]) -> Entry {
    match bytes.split_first_chunk::<DUE_LEN>() {
        Some((due, rest)) => {
            let due = Timestamp(u64::from_be_bytes(*due));
            Entry { stored: decode(rest), due, len: bytes.len() }
        }
        None => Entry { stored: Stored::Unreadable, due: Timestamp(0), len: bytes.len() },
    }
}

fn due_key(due: Timestamp, id: &Identity) -> [u8; DUE_LEN + 32] {
    let mut key = [0; DUE_LEN + 32];
    key[..DUE_LEN].copy_from_slice(&due.0.to_be_bytes());
    key[DUE_LEN..].copy_from_slice(&id.0);
    key
}

fn read_due_key(key: &[u8]) -> Option<(Timestamp, Identity)> {
    let (due, id) = key.split_first_chunk::<DUE_LEN>()?;
    Some((Timestamp(u64::from_be_bytes(*due)), Identity(id.try_into().ok()?)))
}

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, Certainty::NotApplied, message)
}

fn cannot(path: &Path, what: &str, error: io::Error) -> Error {
    let kind = if full(&error) { ErrorKind::Refused } else { ErrorKind::Misconfigured };
    let message = format!("cannot {what} the store's directory {}", path.display());
    Error::new(kind, Certainty::NotApplied, message).because(error)
}

fn full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        IoErrorKind::StorageFull | IoErrorKind::QuotaExceeded | IoErrorKind::FileTooLarge
    )
}

fn not_opened(path: &Path, error: fjall::Error) -> Error {
    if let fjall::Error::Locked = error {
        let holder = fs::read_to_string(path.join("holder")).unwrap_or_default();
        let holder = if holder.is_empty() { "unknown" } else { holder.trim_end() };
        let message = format!(
            "the store at {} is already open in another gateway (process {holder}); one store \
             serves one gateway, several share a Redis",
            path.display()
        );
        return Error::new(ErrorKind::Locked, Certainty::NotApplied, message);
    }
    let message = format!("cannot open the store at {}", path.display());
    Error::new(kind_of(&error), Certainty::NotApplied, message).because(error)
}

fn not_read(error: fjall::Error) -> Error {
    Error::new(kind_of(&error), Certainty::NotApplied, "cannot read the store's disk")
        .because(error)
}

fn not_written(error: fjall::Error) -> Error {
    let message = "cannot write to the store's disk";
    Error::new(kind_of(&error), Certainty::MaybeApplied, message).because(error)
}

fn kind_of(error: &fjall::Error) -> ErrorKind {
    // The engine wraps the system's error to different depths.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<io::Error>() {
            Some(io) if full(io) => return ErrorKind::Refused,
            Some(_) => return ErrorKind::Unavailable,
            None => cause = error.source(),
        }
    }
    ErrorKind::Corrupt
}
