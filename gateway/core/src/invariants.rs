//! The rules R1 to R7 as named predicates over one step of the protocol.
//!
//! Property tests, the model and the store tests check them after every step; R1 over a whole
//! history is counted by [`Executions`].

use std::fmt;

use crate::event::{Event, FinishVerdict, OnUnknown, ReserveVerdict, Verdict};
use crate::record::{Claim, Record, State};
use crate::time::Timestamp;

/// One step: what was stored, what was asked when, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The store's time.
    pub now: Timestamp,
    /// The record before.
    pub before: Option<&'a Record>,
    /// What was asked.
    pub event: &'a Event,
    /// The record after.
    pub after: Option<&'a Record>,
    /// What the asker was told.
    pub verdict: &'a Verdict,
}

/// A rule that a step broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `R1` to `R7`.
    pub rule: &'static str,
    /// The rule in words.
    pub promise: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.promise)
    }
}

/// A rule: its number, the promise in words, and whether a step keeps it.
pub type Rule = (&'static str, &'static str, fn(&Step<'_>) -> bool);

/// Every rule that can be seen in a single step.
pub const RULES: [Rule; 6] = [
    ("R1", "what may have been sent is never taken over", sent_is_never_taken_over),
    ("R2", "a replay is the recorded answer for the same request", replay_is_the_record),
    ("R3", "fences rise with every new reservation", fences_rise),
    ("R4", "a stale owner changes nothing", stale_owner_changes_nothing),
    ("R5", "a finished record is never rewritten", finished_is_never_rewritten),
    ("R6", "a record outlives its lease", record_outlives_lease),
];

/// Checks every rule of [`RULES`].
pub fn check(step: &Step<'_>) -> Result<(), Violation> {
    match RULES.iter().find(|(_, _, holds)| !holds(step)) {
        Some((rule, promise, _)) => Err(Violation { rule, promise }),
        None => Ok(()),
    }
}

impl Step<'_> {
    fn live_before(&self) -> Option<&Record> {
        self.before.filter(|record| !record.is_expired(self.now))
    }

    fn proceeds(&self) -> bool {
        matches!(self.verdict, Verdict::Reserve(ReserveVerdict::Proceed { .. }))
    }
}

/// R1, one step of it: a live record that may have been sent lets nobody else proceed, unless
/// the route opted in to `retry`.
pub fn sent_is_never_taken_over(step: &Step<'_>) -> bool {
    let (Event::Reserve(reserve), Some(record)) = (step.event, step.live_before()) else {
        return true;
    };
    let opted_in = reserve.on_unknown == OnUnknown::Retry;
    match &record.state {
        State::Claimed { .. } => true,
        State::Dispatched { lease_until } => {
            let same = record.claim.owner == reserve.owner;
            !step.proceeds() || same || (opted_in && step.now >= *lease_until)
        }
        State::Unknown { .. } => !step.proceeds() || opted_in,
        State::Completed { .. } | State::Tombstone { .. } => !step.proceeds(),
    }
}

/// R2: a replay repeats the record, and only for the fingerprint it was made for.
pub fn replay_is_the_record(step: &Step<'_>) -> bool {
    let Verdict::Reserve(verdict) = step.verdict else { return true };
    let Event::Reserve(reserve) = step.event else { return false };
    let same_request =
        step.live_before().is_none_or(|record| record.fingerprint == reserve.fingerprint);
    match verdict {
        ReserveVerdict::Mismatch => !same_request,
        ReserveVerdict::Replay { answer, .. } => {
            same_request
                && step.live_before().is_some_and(|record| {
                    matches!(&record.state, State::Completed { answer: kept, .. } if kept == answer)
                })
        }
        ReserveVerdict::Proceed { .. }
        | ReserveVerdict::Busy { .. }
        | ReserveVerdict::NotKept { .. }
        | ReserveVerdict::Unknown { .. } => same_request,
    }
}

/// R3: when the claim changes hands the fence goes up, also across an expired record.
pub fn fences_rise(step: &Step<'_>) -> bool {
    match (step.before, step.after) {
        (Some(before), Some(after)) if before.claim != after.claim => match step.event {
            Event::Reserve(_) => after.claim.fence > before.claim.fence,
            // A late finish or a reassertion after expiry writes its own, older claim back.
            Event::Finish(_) | Event::Reassert(_) => before.is_expired(step.now),
            Event::Dispatch(_) | Event::Renew(_) | Event::Release(_) | Event::Resolve(_) => false,
        },
        _ => true,
    }
}

/// R4: a write that shows another claim than the live record's leaves it as it is.
pub fn stale_owner_changes_nothing(step: &Step<'_>) -> bool {
    let Some(record) = step.live_before() else { return true };
    let mine = match step.event {
        Event::Reserve(_) | Event::Resolve(_) => return true,
        Event::Dispatch(event) => event.claim == record.claim,
        Event::Renew(event) => event.claim == record.claim,
        Event::Reassert(event) => event.claim == record.claim,
        Event::Finish(event) => event.claim == record.claim,
        Event::Release(event) => {
            event.owner == record.claim.owner
                && event.fence.is_none_or(|fence| fence == record.claim.fence)
        }
    };
    mine || step.after == step.before
}

/// R5: a completed record or a tombstone stays as it is until its retention ends.
pub fn finished_is_never_rewritten(step: &Step<'_>) -> bool {
    let Some(record) = step.live_before() else { return true };
    match record.state {
        State::Completed { .. } | State::Tombstone { .. } => step.after == step.before,
        State::Claimed { .. } | State::Dispatched { .. } | State::Unknown { .. } => true,
    }
}

/// R6: expiry is by retention, never by lease.
pub fn record_outlives_lease(step: &Step<'_>) -> bool {
    step.after.is_none_or(|record| match record.state {
        State::Claimed { lease_until } | State::Dispatched { lease_until } => {
            record.expires_at >= lease_until
        }
        State::Completed { at, .. } | State::Tombstone { at, .. } | State::Unknown { at, .. } => {
            record.expires_at >= at
        }
    })
}

/// R7: sending an event again changes nothing more. `again` is the second delivery, at the
/// same time as the first.
pub fn is_safe_to_send_again(first: &Step<'_>, again: &Step<'_>) -> bool {
    let same_right = match (first.verdict, again.verdict) {
        (
            Verdict::Reserve(ReserveVerdict::Proceed { fence: one, .. }),
            Verdict::Reserve(ReserveVerdict::Proceed { fence: two, .. }),
        ) => one == two,
        (
            Verdict::Finish(FinishVerdict::Stored | FinishVerdict::Restored),
            Verdict::Finish(verdict),
        ) => *verdict == FinishVerdict::Stored,
        _ => true,
    };
    same_right && again.after == first.after
}

/// R1 over a history: which claims were executed since the last moment at which the key was
/// free for a good reason (expiry by retention, or a resolution that it never happened).
#[derive(Clone, Debug, Default)]
pub struct Executions {
    claims: Vec<Claim>,
}

impl Executions {
    /// An owner sends the request upstream. More than once for one claim counts once: that is
    /// one upstream call by one task.
    pub fn executed(&mut self, claim: Claim) {
        if !self.claims.contains(&claim) {
            self.claims.push(claim);
        }
    }

    /// How many different reservations have executed.
    pub fn count(&self) -> usize {
        self.claims.len()
    }

    /// The record expired, or was resolved as never having happened.
    pub fn forget(&mut self) {
        self.claims.clear();
    }
}
