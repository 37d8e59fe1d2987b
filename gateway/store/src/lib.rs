//! Where reservations live.
//!
//! A store keeps one [`Record`] per [`Identity`] and changes it only by the protocol of
//! `oncegate-core`: it reads its own clock, loads the record, takes the transition and writes
//! what comes out, all of it atomically. There is no get and set here, so that no decision can
//! move out of the store into racing callers.
//!
//! - [`EmbeddedStore`]: on this machine's disk, for one gateway. Durable before it answers.
//! - [`RedisStore`]: shared by many gateways.
//! - [`MemoryStore`] and [`FaultyStore`]: for tests.
//!
//! # The contract
//!
//! Every store keeps these clauses. [`mod@conformance`] holds one function for each, and every
//! store and wrapper runs them all.
//!
//! - **S1** Atomic: of any number of reservations that meet at one identity, exactly one
//!   proceeds, and the others are told what the record says.
//! - **S2** Every call is safe to send again: a repeated reservation gets the same fence, a
//!   repeated ending is stored once.
//! - **S3** A replay is the stored answer, byte for byte, in the same call that asked.
//! - **S4** Another fingerprint is a mismatch, before anything else is said.
//! - **S5** An ended lease never lets a second caller execute what may have been sent; it only
//!   makes the record unknown. A claim that was never sent may be taken over, and so may
//!   everything on a `retry` route, with a higher fence.
//! - **S6** Records end by retention only, to the microsecond and by the store's clock.
//! - **S7** A stale owner changes nothing.
//! - **S8** The ending of a record that was lost is stored all the same, and said to be
//!   restored.
//! - **S9** A running reservation that was lost can be put back, until its own deadline.
//! - **S10** A released key is free at once; the owner's token alone suffices.
//! - **S11** Only the holder of a live claim is told to send.
//! - **S12** Renewal extends the lease, and says whether the record is gone or somebody else's.
//! - **S13** Only an unsettled record can be resolved; afterwards it replays or is free.
//! - **S14** Bytes that cannot be read, or that a newer version wrote, are *unknown*, and never
//!   "no record". See [`record`] for what each call is told.
//! - **S15** Identities do not touch each other.
//! - **S16** `peek` and `scan` see what a reservation would see, and change nothing.
//! - **S17** Fences rise, also after a release.
//! - **S18** After `close` every call fails, surely without effect, and closing again is fine.
//! - **S19** A caller that stops waiting harms nobody: its call happens wholly or not at all.
//!
//! An [`Error`] says by [`Error::certainty`] whether the call may have taken effect. Durability
//! is not a clause, because stores differ in it: see each store's own page.
//!
//! No store sends a call a second time by itself. Whoever gets a [`Certainty::MaybeApplied`]
//! may send the same event again, by S2.

mod ask;
mod clock;
pub mod conformance;
mod embedded;
mod error;
mod faulty;
mod memory;
pub mod record;
mod redis;

use futures::future::BoxFuture;
use oncegate_core::{
    Dispatch, DispatchVerdict, Finish, FinishVerdict, Identity, Reassert, ReassertVerdict, Record,
    Release, ReleaseVerdict, Renew, RenewVerdict, Reserve, ReserveVerdict, Resolve, ResolveVerdict,
    State, Timestamp,
};

pub use crate::ask::{Ask, apply};
pub use crate::clock::Clock;
pub use crate::embedded::{EmbeddedOptions, EmbeddedStore};
pub use crate::error::{Certainty, Error, ErrorKind};
pub use crate::faulty::{Fault, FaultyStore, Plan};
pub use crate::memory::MemoryStore;
pub use crate::redis::{REDIS_VERSION_MIN, RedisConfig, RedisStore};

/// What a call comes to.
pub type Answered<'a, V> = BoxFuture<'a, Result<V, Error>>;

/// A place for reservations. The clauses S1… are in the [crate documentation](crate).
pub trait Store: Send + Sync + 'static {
    /// Asks for the right to execute.
    fn reserve<'a>(&'a self, id: &'a Identity, event: Reserve) -> Answered<'a, ReserveVerdict>;

    /// Announces that the first byte is about to leave (two-phase routes).
    fn dispatch<'a>(&'a self, id: &'a Identity, event: Dispatch) -> Answered<'a, DispatchVerdict>;

    /// Keeps a reservation alive.
    fn renew<'a>(&'a self, id: &'a Identity, event: Renew) -> Answered<'a, RenewVerdict>;

    /// Puts back a reservation that the store lost while its call still runs.
    fn reassert<'a>(&'a self, id: &'a Identity, event: Reassert) -> Answered<'a, ReassertVerdict>;

    /// Records how an execution ended.
    fn finish<'a>(&'a self, id: &'a Identity, event: Finish) -> Answered<'a, FinishVerdict>;

    /// Gives a reservation back.
    fn release<'a>(&'a self, id: &'a Identity, event: Release) -> Answered<'a, ReleaseVerdict>;

    /// Settles a key with an unknown end.
    fn resolve<'a>(&'a self, id: &'a Identity, event: Resolve) -> Answered<'a, ResolveVerdict>;

    /// The live record, unchanged. One that cannot be read is shown as
    /// [`record::unreadable`].
    fn peek<'a>(&'a self, id: &'a Identity) -> Answered<'a, Option<Record>>;

    /// Up to `limit` live records that the filter admits, in no particular order. It looks at
    /// every record to find them: for operators, not for requests.
    fn scan<'a>(
        &'a self,
        limit: usize,
        filter: ScanFilter,
    ) -> Answered<'a, Vec<(Identity, Record)>>;

    /// How the store is, from memory: cheap enough for every readiness probe.
    fn health(&self) -> Health;

    /// Lets go of files and connections. What was acknowledged stays; calls under way may fail.
    fn close<'a>(&'a self) -> BoxFuture<'a, ()>;
}

/// Which records a [`Store::scan`] is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanFilter {
    /// Somebody is executing it: claimed, or dispatched with a valid lease.
    InFlight,
    /// Nobody knows how it ended: unknown, or dispatched with its lease over, which the next
    /// caller would be told is unknown.
    Unknown,
    /// Everything.
    All,
}

impl ScanFilter {
    /// Whether this record is one of them at `now`.
    pub fn admits(self, record: &Record, now: Timestamp) -> bool {
        let abandoned = match record.state {
            State::Dispatched { lease_until } => now >= lease_until,
            State::Unknown { .. } => true,
            State::Claimed { .. } | State::Completed { .. } | State::Tombstone { .. } => false,
        };
        let running = match record.state {
            State::Claimed { .. } | State::Dispatched { .. } => !abandoned,
            State::Completed { .. } | State::Tombstone { .. } | State::Unknown { .. } => false,
        };
        match self {
            Self::All => true,
            Self::Unknown => abandoned,
            Self::InFlight => running,
        }
    }
}

/// How a store is, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether calls are worth making.
    pub ready: bool,
    /// What keeps it from being ready.
    pub problem: Option<String>,
    /// What works, but is dangerous: a restart that forgets, for example.
    pub warnings: Vec<String>,
}

impl Health {
    /// All is well.
    pub fn good() -> Self {
        Self { ready: true, problem: None, warnings: Vec::new() }
    }

    /// Out of order, and why.
    pub fn bad(problem: impl Into<String>) -> Self {
        Self { ready: false, problem: Some(problem.into()), warnings: Vec::new() }
    }
}
