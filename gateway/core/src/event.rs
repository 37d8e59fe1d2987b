//! What can be asked of a record, and what the asker is told.
//!
//! One struct and one verdict enum per event, so that a caller of `reserve` cannot be handed a
//! verdict of `renew`. [`Event`] and [`Verdict`] wrap them for code that drives any event: the
//! stores, the model and the random histories.

use std::time::Duration;

use crate::identity::Fingerprint;
use crate::record::{Answer, Claim, Fence, OwnerToken, StateName, TombstoneReason, UnknownReason};
use crate::time::Timestamp;

/// What a later caller may do about a key whose execution has an unknown end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnUnknown {
    /// Nothing: it is told so, until somebody resolves the key.
    Hold,
    /// Execute again: the route's upstream honours the forwarded key.
    Retry,
}

/// Whether the reservation starts out as *nothing sent* or as *may have been sent*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phases {
    /// `dispatched` at once: two store commands for a first execution.
    One,
    /// `claimed` first; [`Dispatch`] must succeed before the first byte leaves.
    Two,
}

/// Ask for the right to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The asker's token; the same on every re-send of this one reservation.
    pub owner: OwnerToken,
    /// What is asked.
    pub fingerprint: Fingerprint,
    /// See [`Phases`].
    pub phases: Phases,
    /// How long the reservation lives without renewal.
    pub lease: Duration,
    /// How long the record is kept if nothing more is heard.
    pub retention: Duration,
    /// What to do about an unknown end.
    pub on_unknown: OnUnknown,
}

/// What [`Reserve`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveVerdict {
    /// Execute. `fence` goes with every later write. `now` is the store's time of this answer.
    Proceed {
        /// The right's number.
        fence: Fence,
        /// The store's clock.
        now: Timestamp,
    },
    /// The key was used for something else.
    Mismatch,
    /// Somebody is executing it.
    Busy {
        /// For how long already.
        running_for: Duration,
        /// How much of their lease is left.
        lease_left: Duration,
    },
    /// It is done; here is the answer.
    Replay {
        /// What the upstream said then.
        answer: Answer,
        /// When it finished.
        at: Timestamp,
        /// How much retention is left.
        expires_in: Duration,
    },
    /// It is done; the answer was not kept.
    NotKept {
        /// The upstream's status then.
        status: u16,
        /// Why it was not kept.
        reason: TombstoneReason,
        /// How much retention is left.
        expires_in: Duration,
    },
    /// It was sent, and nobody knows how it ended.
    Unknown {
        /// What happened.
        reason: UnknownReason,
        /// The ambiguous answer, if there was one.
        answer: Option<Answer>,
    },
}

/// Announce that the first byte is about to leave (two-phase routes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Proof of ownership.
    pub claim: Claim,
    /// The lease from now on.
    pub lease: Duration,
    /// How long the record is kept if nothing more is heard.
    pub retention: Duration,
}

/// What [`Dispatch`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchVerdict {
    /// Send.
    Go,
    /// The reservation is somebody else's, finished or gone: nothing may be sent.
    Lost,
}

/// Keep a reservation alive while the upstream works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// Proof of ownership.
    pub claim: Claim,
    /// The lease from now on.
    pub lease: Duration,
    /// How long the record is kept if nothing more is heard.
    pub retention: Duration,
}

/// What [`Renew`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewVerdict {
    /// The lease was extended.
    Renewed,
    /// Somebody else holds the key now, or it is finished.
    Superseded,
    /// There is no record: the store lost it. See [`Reassert`].
    Gone,
}

/// Put back a reservation that the store lost while its call still runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassert {
    /// Proof of ownership.
    pub claim: Claim,
    /// What was asked.
    pub fingerprint: Fingerprint,
    /// The lease from now on.
    pub lease: Duration,
    /// How long the record is kept if nothing more is heard.
    pub retention: Duration,
    /// After this moment a delayed or duplicated reassertion does nothing, so that it cannot
    /// bring back a reservation whose call has ended.
    pub not_after: Timestamp,
}

/// What [`Reassert`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReassertVerdict {
    /// The record was missing and is back. Counted: the store lost an acknowledged write.
    Restored,
    /// The record was there after all, and its lease was extended.
    Renewed,
    /// Somebody else holds the key, or it is finished.
    Superseded,
    /// Too late: see [`Reassert::not_after`].
    TooLate,
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Keep the answer and replay it.
    Completed(Answer),
    /// Done, but the answer is not kept.
    Tombstone {
        /// The upstream's status.
        status: u16,
        /// Why it is not kept.
        reason: TombstoneReason,
    },
    /// Sent, and nobody knows.
    Unknown {
        /// What happened.
        reason: UnknownReason,
        /// The ambiguous answer, if there was one.
        answer: Option<Answer>,
    },
}

/// Record how an execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Proof of ownership.
    pub claim: Claim,
    /// What was asked; needed when the store has lost the record.
    pub fingerprint: Fingerprint,
    /// How it ended.
    pub ending: Ending,
    /// How long the record is kept, from now.
    pub retention: Duration,
}

/// What [`Finish`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishVerdict {
    /// On record.
    Stored,
    /// On record, but the store had lost the reservation in between. Counted.
    Restored,
    /// Somebody else holds the key: nothing was stored. Counted as a duplicate execution.
    Superseded,
}

/// Give a reservation back: nothing was sent, or the upstream declared it did not process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Whose reservation.
    pub owner: OwnerToken,
    /// Which one; `None` when the answer of the reservation never came. The token alone
    /// suffices, since it is made for one reservation.
    pub fence: Option<Fence>,
}

/// What [`Release`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseVerdict {
    /// There is no record of this reservation (any more).
    Released,
    /// Somebody else's, or already finished: unchanged.
    Superseded,
}

/// What an operator or a probe found out about a key with an unknown end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It was done, and this is the answer.
    Done(Answer),
    /// It never happened: the key is free again.
    NeverHappened,
}

/// Settle a key with an unknown end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// The reservation that the resolver looked at; `None` takes whatever is there.
    pub fence: Option<Fence>,
    /// What was found out.
    pub resolution: Resolution,
    /// How long the record is kept, from now.
    pub retention: Duration,
}

/// What [`Resolve`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveVerdict {
    /// Done.
    Resolved,
    /// The record has moved on; holds its state.
    MovedOn(StateName),
    /// There is no record.
    NoRecord,
}

/// Any event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// See [`Reserve`].
    Reserve(Reserve),
    /// See [`Dispatch`].
    Dispatch(Dispatch),
    /// See [`Renew`].
    Renew(Renew),
    /// See [`Reassert`].
    Reassert(Reassert),
    /// See [`Finish`].
    Finish(Finish),
    /// See [`Release`].
    Release(Release),
    /// See [`Resolve`].
    Resolve(Resolve),
}

/// Any verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// See [`ReserveVerdict`].
    Reserve(ReserveVerdict),
    /// See [`DispatchVerdict`].
    Dispatch(DispatchVerdict),
    /// See [`RenewVerdict`].
    Renew(RenewVerdict),
    /// See [`ReassertVerdict`].
    Reassert(ReassertVerdict),
    /// See [`FinishVerdict`].
    Finish(FinishVerdict),
    /// See [`ReleaseVerdict`].
    Release(ReleaseVerdict),
    /// See [`ResolveVerdict`].
    Resolve(ResolveVerdict),
}
