//! Step 4: one atomic store call. Its answer *is* the current record, so the loser of a race
//! gets the winner's result in the same round trip.

use std::time::Duration;

use oncegate_core::{Claim, OwnerToken, Phases, Reserve, ReserveVerdict, UnknownReason};
use oncegate_policy::{InFlight, OnStoreError};
use oncegate_store::{Certainty, Error, ErrorKind};
use tokio::time::Instant;

use super::permit::{Held, Reserved, release_later};
use super::respond;
use super::stage::{Context, Exit, Keyed, Reply};
use crate::problem::Problem;
use crate::upstream::chain;

/// For how long a reservation whose answer did not come is sent again. Always with the same
/// token, so that a write which landed unseen is recognised as this one.
const ASK_AGAIN_FOR: Duration = Duration::from_secs(2);
/// The first and the longest wait between two of these.
const ASK_AGAIN_AFTER: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_millis(300));
/// Two-phase routes: how long a claim lives before the go. A gateway that dies in between
/// leaves a key that heals by itself after this.
const CLAIM_LEASE: Duration = Duration::from_secs(2);

/// After step 4: the right to execute, and what is to be executed.
pub(crate) struct Granted {
    pub(crate) permit: Reserved,
    pub(crate) keyed: Keyed,
}

/// Takes the reservation, or turns the record into an answer.
pub(crate) async fn reserve(keyed: Keyed) -> Result<Granted, Exit> {
    let context = keyed.buffered.context.clone();
    let guard = context.guard();
    let Some(owner) = owner_token() else {
        tracing::error!("the system gave no random bytes for an owner token");
        return Err(context.problem(&Problem::Internal).into());
    };
    let lease = if guard.two_phase { CLAIM_LEASE } else { guard.lease };
    let event = Reserve {
        owner,
        fingerprint: keyed.fingerprint,
        phases: if guard.two_phase { Phases::Two } else { Phases::One },
        lease,
        retention: keyed.retention,
        on_unknown: guard.on_unknown,
    };
    let question = Question { keyed: Some((&keyed, owner, guard.lease)) };
    let asked = match guard.in_flight {
        InFlight::Conflict => ask(&keyed, &event).await,
        InFlight::Wait(patience) => ask_and_wait(&keyed, &event, patience).await,
    };
    question.answered();
    let Asked { verdict, sent_at, earlier_lost } = match asked {
        Ok(asked) => asked,
        Err(no_answer) => return Err(without_store(keyed, owner, guard.lease, no_answer)),
    };
    let ReserveVerdict::Proceed { fence, now } = verdict else {
        if earlier_lost {
            // The lost attempt may still arrive when the key is free again.
            let gateway = context.gateway.clone();
            release_later(gateway, keyed.identity, owner, None, guard.lease * 2);
        }
        return Err(answer_of(&context, verdict).into());
    };
    let permit = Reserved::new(Held {
        gateway: context.gateway.clone(),
        operation: context.operation().clone(),
        identity: keyed.identity,
        fingerprint: keyed.fingerprint,
        claim: Claim { owner, fence },
        lease,
        retention: keyed.retention,
        lease_ends: sent_at + lease,
        call_ends: now.after(context.route.upstream_timeout),
    });
    Ok(Granted { permit, keyed })
}

/// A reservation that is being asked for. Dropped before the answer came (the drain deadline, a
/// panic), it may have landed with nobody to know: nothing was sent under it, so it is given back.
struct Question<'a> {
    keyed: Option<(&'a Keyed, OwnerToken, Duration)>,
}

impl Question<'_> {
    fn answered(mut self) {
        self.keyed = None;
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if let Some((keyed, owner, lease)) = self.keyed {
            let gateway = keyed.buffered.context.gateway.clone();
            release_later(gateway, keyed.identity, owner, None, lease * 2);
        }
    }
}

/// The store could not say. Refused by default; forwarded unprotected where the policy says so.
fn without_store(keyed: Keyed, owner: OwnerToken, lease: Duration, no_answer: NoAnswer) -> Exit {
    let context = &keyed.buffered.context;
    if no_answer.may_have_landed {
        release_later(context.gateway.clone(), keyed.identity, owner, None, lease * 2);
    }
    if no_answer.unreadable {
        return context.problem(&Problem::OutcomeUnknown(UnknownReason::Unreadable)).into();
    }
    match context.guard().on_store_error {
        OnStoreError::Reject => context.problem(&Problem::StoreUnavailable).into(),
        OnStoreError::Forward => Exit::Unprotected(Box::new(keyed.buffered), "store-error"),
    }
}

/// What a caller that may not execute is told.
fn answer_of(context: &Context, verdict: ReserveVerdict) -> Reply {
    match verdict {
        ReserveVerdict::Mismatch => context.problem(&Problem::KeyReused),
        ReserveVerdict::Busy { running_for, lease_left } => {
            let retry_after = busy_wait(running_for, lease_left);
            let status = context.guard().in_flight_status;
            context.problem(&Problem::InProgress { status, retry_after })
        }
        ReserveVerdict::Replay { answer, at, expires_in } => {
            respond::replay(answer, at, expires_in)
        }
        ReserveVerdict::NotKept { status, expires_in, .. } => {
            respond::with_expiry(context.problem(&Problem::AnswerNotKept(status)), expires_in)
        }
        ReserveVerdict::Unknown { answer: Some(answer), .. } => respond::unknown(answer),
        ReserveVerdict::Unknown { reason, answer: None } => {
            context.problem(&Problem::OutcomeUnknown(reason))
        }
        // Handled by the caller, which holds what a permit needs.
        ReserveVerdict::Proceed { .. } => context.problem(&Problem::Internal),
    }
}

/// A verdict, and when it was asked for.
struct Asked {
    verdict: ReserveVerdict,
    /// From before the command was sent, so that this side gives up before the store does.
    sent_at: Instant,
    /// An attempt before this one got no answer and may have landed, or may land yet.
    earlier_lost: bool,
}

/// Asks, and while another attempt runs waits for its end: woken by the winner, or looking once
/// more when its lease or the caller's patience is over. A winner that gave its key back makes
/// one of the waiting callers the new owner.
async fn ask_and_wait(
    keyed: &Keyed,
    event: &Reserve,
    patience: Duration,
) -> Result<Asked, NoAnswer> {
    let deadline = Instant::now() + patience;
    let Some(ticket) = keyed.buffered.context.gateway.waiting.enter(keyed.identity) else {
        return ask(keyed, event).await;
    };
    loop {
        let woken = ticket.woken();
        let asked = ask(keyed, event).await?;
        let ReserveVerdict::Busy { lease_left, .. } = asked.verdict else { return Ok(asked) };
        let now = Instant::now();
        if now >= deadline {
            return Ok(asked);
        }
        let look_again = deadline.min(now + lease_left);
        // Woken or not, the store says what is true now.
        drop(tokio::time::timeout_at(look_again, woken).await);
    }
}

/// The store gave no answer.
struct NoAnswer {
    may_have_landed: bool,
    /// There is something under the key, and it cannot be read: no outage, and no "no record".
    unreadable: bool,
}

async fn ask(keyed: &Keyed, event: &Reserve) -> Result<Asked, NoAnswer> {
    let gateway = &keyed.buffered.context.gateway;
    let sent_at = Instant::now();
    let mut may_have_landed = false;
    let mut wait = ASK_AGAIN_AFTER.0;
    loop {
        match gateway.store.reserve(&keyed.identity, event.clone()).await {
            Ok(verdict) => return Ok(Asked { verdict, sent_at, earlier_lost: may_have_landed }),
            Err(error) => {
                report(keyed, &error);
                may_have_landed |= error.certainty() == Certainty::MaybeApplied;
                if error.kind() == ErrorKind::Corrupt {
                    return Err(NoAnswer { may_have_landed, unreadable: true });
                }
            }
        }
        // A store that was not reached at all is told at once. One that may have taken the
        // reservation is asked again: its connection is being made anew.
        if !may_have_landed || sent_at.elapsed() + wait >= ASK_AGAIN_FOR {
            return Err(NoAnswer { may_have_landed, unreadable: false });
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(ASK_AGAIN_AFTER.1);
    }
}

fn report(keyed: &Keyed, error: &Error) {
    keyed.buffered.context.gateway.metrics.store_failed(error.code());
    tracing::warn!(
        identity = keyed.identity.short(),
        operation = %keyed.buffered.context.operation(),
        command = "reserve",
        reason = error.code(),
        error = chain(error),
        "a store command failed"
    );
}

/// About as long again as it has been running, but not beyond its lease.
fn busy_wait(running_for: Duration, lease_left: Duration) -> Duration {
    let floor = Duration::from_secs(1);
    running_for.min(lease_left).max(floor)
}

/// 128 random bits. `None` when the system has none to give.
fn owner_token() -> Option<OwnerToken> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(OwnerToken(bytes))
}
