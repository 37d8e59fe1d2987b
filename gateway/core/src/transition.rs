//! The whole protocol: `(now, record, event) -> (what to write, verdict)`.
//!
//! Pure and total. The embedded store runs it directly; the Redis scripts mirror it, and a test
//! drives both with the same random histories. The rule that everything else serves: **a record
//! that may have been sent upstream is never taken over**, unless the route says that its
//! upstream honours the forwarded key. A lease only decides how soon an abandoned key is seen.

use std::time::Duration;

use crate::event::*;
use crate::record::{Claim, Fence, Record, State, UnknownReason};
use crate::time::Timestamp;

/// What becomes of the stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Leave it.
    Keep,
    /// Replace it.
    Write(Record),
    /// Remove it.
    Remove,
}

impl Next {
    /// The record after this step, given the one before.
    pub fn apply(self, before: Option<Record>) -> Option<Record> {
        match self {
            Self::Keep => before,
            Self::Write(record) => Some(record),
            Self::Remove => None,
        }
    }
}

/// One step for any event. An expired record counts as none.
pub fn transition(now: Timestamp, record: Option<&Record>, event: &Event) -> (Next, Verdict) {
    match event {
        Event::Reserve(event) => wrap(reserve(now, record, event), Verdict::Reserve),
        Event::Dispatch(event) => wrap(dispatch(now, record, event), Verdict::Dispatch),
        Event::Renew(event) => wrap(renew(now, record, event), Verdict::Renew),
        Event::Reassert(event) => wrap(reassert(now, record, event), Verdict::Reassert),
        Event::Finish(event) => wrap(finish(now, record, event), Verdict::Finish),
        Event::Release(event) => wrap(release(now, record, event), Verdict::Release),
        Event::Resolve(event) => wrap(resolve(now, record, event), Verdict::Resolve),
    }
}

fn wrap<V>((next, verdict): (Next, V), verdict_of: fn(V) -> Verdict) -> (Next, Verdict) {
    (next, verdict_of(verdict))
}

fn live(now: Timestamp, record: Option<&Record>) -> Option<&Record> {
    record.filter(|record| !record.is_expired(now))
}

/// Asks for the right to execute. The mismatch check comes before everything else, so that a
/// reused key is never told "busy" or given another request's answer.
pub fn reserve(now: Timestamp, record: Option<&Record>, event: &Reserve) -> (Next, ReserveVerdict) {
    let Some(record) = live(now, record) else {
        // An expired record may still be there: its fence must not be repeated.
        return grant(now, record.map(|old| old.claim.fence), event);
    };
    if record.fingerprint != event.fingerprint {
        return (Next::Keep, ReserveVerdict::Mismatch);
    }
    match &record.state {
        State::Claimed { lease_until } => {
            if record.claim.owner == event.owner {
                return (Next::Keep, ReserveVerdict::Proceed { fence: record.claim.fence, now });
            }
            if now < *lease_until {
                return (Next::Keep, busy(now, record, *lease_until));
            }
            grant(now, Some(record.claim.fence), event)
        }
        State::Dispatched { lease_until } => {
            if record.claim.owner == event.owner {
                return (Next::Keep, ReserveVerdict::Proceed { fence: record.claim.fence, now });
            }
            if now < *lease_until {
                return (Next::Keep, busy(now, record, *lease_until));
            }
            match event.on_unknown {
                OnUnknown::Hold => abandon(now, record, event.retention),
                OnUnknown::Retry => grant(now, Some(record.claim.fence), event),
            }
        }
        State::Completed { at, answer } => {
            let expires_in = record.expires_at.since(now);
            (Next::Keep, ReserveVerdict::Replay { answer: answer.clone(), at: *at, expires_in })
        }
        State::Tombstone { status, reason, .. } => {
            let expires_in = record.expires_at.since(now);
            let verdict = ReserveVerdict::NotKept { status: *status, reason: *reason, expires_in };
            (Next::Keep, verdict)
        }
        State::Unknown { reason, answer, .. } => match event.on_unknown {
            OnUnknown::Hold => {
                let verdict = ReserveVerdict::Unknown { reason: *reason, answer: answer.clone() };
                (Next::Keep, verdict)
            }
            OnUnknown::Retry => grant(now, Some(record.claim.fence), event),
        },
    }
}

fn grant(now: Timestamp, previous: Option<Fence>, event: &Reserve) -> (Next, ReserveVerdict) {
    let fence = Fence(previous.map_or(0, |fence| fence.0.saturating_add(1)).max(now.0));
    let lease_until = now.after(event.lease);
    let record = Record {
        fingerprint: event.fingerprint,
        claim: Claim { owner: event.owner, fence },
        reserved_at: now,
        expires_at: keep_until(now, event.lease, event.retention),
        state: match event.phases {
            Phases::One => State::Dispatched { lease_until },
            Phases::Two => State::Claimed { lease_until },
        },
    };
    (Next::Write(record), ReserveVerdict::Proceed { fence, now })
}

fn busy(now: Timestamp, record: &Record, lease_until: Timestamp) -> ReserveVerdict {
    ReserveVerdict::Busy {
        running_for: now.since(record.reserved_at),
        lease_left: lease_until.since(now),
    }
}

fn abandon(now: Timestamp, record: &Record, retention: Duration) -> (Next, ReserveVerdict) {
    let reason = UnknownReason::LeaseOver;
    let next = Next::Write(Record {
        state: State::Unknown { at: now, reason, answer: None },
        expires_at: now.after(retention),
        ..record.clone()
    });
    (next, ReserveVerdict::Unknown { reason, answer: None })
}

/// An unfinished record outlives its lease by the whole retention, so that an expired lease is
/// *seen* and never vanishes.
fn keep_until(now: Timestamp, lease: Duration, retention: Duration) -> Timestamp {
    now.after(lease).after(retention)
}

/// Announces that the first byte is about to leave.
pub fn dispatch(
    now: Timestamp,
    record: Option<&Record>,
    event: &Dispatch,
) -> (Next, DispatchVerdict) {
    let Some(record) = live(now, record).filter(|record| record.claim == event.claim) else {
        return (Next::Keep, DispatchVerdict::Lost);
    };
    match record.state {
        State::Claimed { .. } => {
            let next = extend(now, record, event.lease, event.retention);
            (next, DispatchVerdict::Go)
        }
        // Its first answer was lost; the record already says what it should.
        State::Dispatched { .. } => (Next::Keep, DispatchVerdict::Go),
        State::Completed { .. } | State::Tombstone { .. } | State::Unknown { .. } => {
            (Next::Keep, DispatchVerdict::Lost)
        }
    }
}

/// Keeps a reservation alive. Only an owner that may have sent renews, so a record that says
/// `claimed` (the store lost the dispatch) or `unknown` by an ended lease becomes `dispatched`.
pub fn renew(now: Timestamp, record: Option<&Record>, event: &Renew) -> (Next, RenewVerdict) {
    let Some(record) = live(now, record) else {
        return (Next::Keep, RenewVerdict::Gone);
    };
    match extend_if_running(now, record, event.claim, event.lease, event.retention) {
        Some(next) => (next, RenewVerdict::Renewed),
        None => (Next::Keep, RenewVerdict::Superseded),
    }
}

fn extend_if_running(
    now: Timestamp,
    record: &Record,
    claim: Claim,
    lease: Duration,
    retention: Duration,
) -> Option<Next> {
    if record.claim != claim {
        return None;
    }
    match record.state {
        State::Claimed { .. }
        | State::Dispatched { .. }
        | State::Unknown { reason: UnknownReason::LeaseOver, .. } => {
            Some(extend(now, record, lease, retention))
        }
        State::Completed { .. } | State::Tombstone { .. } | State::Unknown { .. } => None,
    }
}

fn extend(now: Timestamp, record: &Record, lease: Duration, retention: Duration) -> Next {
    Next::Write(Record {
        state: State::Dispatched { lease_until: now.after(lease) },
        expires_at: keep_until(now, lease, retention),
        ..record.clone()
    })
}

/// Puts back a reservation that the store lost while its call still runs.
pub fn reassert(
    now: Timestamp,
    record: Option<&Record>,
    event: &Reassert,
) -> (Next, ReassertVerdict) {
    if now > event.not_after {
        return (Next::Keep, ReassertVerdict::TooLate);
    }
    if let Some(record) = live(now, record) {
        return match extend_if_running(now, record, event.claim, event.lease, event.retention) {
            Some(next) => (next, ReassertVerdict::Renewed),
            None => (Next::Keep, ReassertVerdict::Superseded),
        };
    }
    let next = Next::Write(Record {
        fingerprint: event.fingerprint,
        claim: event.claim,
        reserved_at: now,
        expires_at: keep_until(now, event.lease, event.retention),
        state: State::Dispatched { lease_until: now.after(event.lease) },
    });
    (next, ReassertVerdict::Restored)
}

/// Records how an execution ended. A late answer still counts: it settles an unknown record of
/// the same owner, and a missing record is written anew and counted.
pub fn finish(now: Timestamp, record: Option<&Record>, event: &Finish) -> (Next, FinishVerdict) {
    let Some(record) = live(now, record) else {
        return (Next::Write(finished(now, now, event)), FinishVerdict::Restored);
    };
    if record.claim != event.claim {
        return (Next::Keep, FinishVerdict::Superseded);
    }
    match record.state {
        State::Claimed { .. } | State::Dispatched { .. } | State::Unknown { .. } => {
            (Next::Write(finished(now, record.reserved_at, event)), FinishVerdict::Stored)
        }
        // Finished by this owner already: its first answer was lost.
        State::Completed { .. } | State::Tombstone { .. } => (Next::Keep, FinishVerdict::Stored),
    }
}

fn finished(now: Timestamp, reserved_at: Timestamp, event: &Finish) -> Record {
    Record {
        fingerprint: event.fingerprint,
        claim: event.claim,
        reserved_at,
        expires_at: now.after(event.retention),
        state: match event.ending.clone() {
            Ending::Completed(answer) => State::Completed { at: now, answer },
            Ending::Tombstone { status, reason } => State::Tombstone { at: now, status, reason },
            Ending::Unknown { reason, answer } => State::Unknown { at: now, reason, answer },
        },
    }
}

/// Gives a reservation back. Only the owner knows that nothing was sent, so it may also free a
/// record that others already call unknown because its lease ended.
pub fn release(now: Timestamp, record: Option<&Record>, event: &Release) -> (Next, ReleaseVerdict) {
    let Some(record) = live(now, record) else {
        return (Next::Keep, ReleaseVerdict::Released);
    };
    let mine = record.claim.owner == event.owner
        && event.fence.is_none_or(|fence| fence == record.claim.fence);
    if !mine {
        return (Next::Keep, ReleaseVerdict::Superseded);
    }
    match record.state {
        State::Claimed { .. }
        | State::Dispatched { .. }
        | State::Unknown { reason: UnknownReason::LeaseOver, .. } => {
            (Next::Remove, ReleaseVerdict::Released)
        }
        State::Completed { .. } | State::Tombstone { .. } | State::Unknown { .. } => {
            (Next::Keep, ReleaseVerdict::Superseded)
        }
    }
}

/// Settles a key with an unknown end, also one that nobody has called unknown yet: dispatched
/// with its lease over.
pub fn resolve(now: Timestamp, record: Option<&Record>, event: &Resolve) -> (Next, ResolveVerdict) {
    let Some(record) = live(now, record) else {
        return (Next::Keep, ResolveVerdict::NoRecord);
    };
    let unsettled = match record.state {
        State::Unknown { .. } => true,
        State::Dispatched { lease_until } => now >= lease_until,
        State::Claimed { .. } | State::Completed { .. } | State::Tombstone { .. } => false,
    };
    if !unsettled || event.fence.is_some_and(|fence| fence != record.claim.fence) {
        return (Next::Keep, ResolveVerdict::MovedOn(record.state_name()));
    }
    match &event.resolution {
        Resolution::NeverHappened => (Next::Remove, ResolveVerdict::Resolved),
        Resolution::Done(answer) => {
            let next = Next::Write(Record {
                state: State::Completed { at: now, answer: answer.clone() },
                expires_at: now.after(event.retention),
                ..record.clone()
            });
            (next, ResolveVerdict::Resolved)
        }
    }
}
