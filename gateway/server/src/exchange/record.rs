//! Step 6: what the call came to is written down with the owner token, **before** the client
//! sees it. If we answered first and crashed, a retry would run the operation again.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::response::Parts;
use oncegate_core::{Answer, Ending, TombstoneReason, UnknownReason};
use oncegate_policy::{Guard, Meaning, ReplayDrop};

use super::forward::{CallOutcome, Called};
use super::permit::{Dispatched, Written};
use super::settle;
use super::stage::Context;
use crate::outcome::Outcome;
use crate::problem::Problem;

/// After step 6: on record, as far as the store could be reached.
pub(crate) struct Recorded {
    pub(crate) context: Context,
    pub(crate) outcome: Outcome,
    pub(crate) shown: Shown,
    /// How long the record is kept, for finished executions that are on record.
    pub(crate) kept_for: Option<Duration>,
}

/// What the client is shown.
pub(crate) enum Shown {
    /// The upstream's answer.
    Answer(Box<Parts>, Body),
    /// The gateway's own.
    Problem(Problem),
}

/// Writes down the ending.
pub(crate) async fn record(called: Called) -> Recorded {
    let Called { permit, keyed, outcome } = called;
    let context = keyed.buffered.context.clone();
    let retention = keyed.retention;
    match outcome {
        CallOutcome::NeverSent(why) => {
            permit.release().await;
            Recorded::problem(context, Problem::UpstreamUnreachable(why))
        }
        CallOutcome::Ambiguous(reason) => {
            permit.finish(Ending::Unknown { reason, answer: None }).await;
            Recorded::problem(context, Problem::AttemptUnknown(reason))
        }
        CallOutcome::Whole { head, body } => whole(context, permit, head, body, retention).await,
        CallOutcome::Unkeepable { head, body, reason } => {
            unkeepable(context, permit, head, body, reason, retention).await
        }
    }
}

async fn whole(
    context: Context,
    permit: Dispatched,
    head: Parts,
    body: Bytes,
    retention: Duration,
) -> Recorded {
    let guard = context.guard();
    let status = head.status.as_u16();
    let (outcome, written) = match settle::meaning(&guard.settle, status, &head.headers) {
        Meaning::Release => {
            permit.release().await;
            (Outcome::Released, Written::Yes)
        }
        Meaning::Unknown => {
            let reason = UnknownReason::AmbiguousStatus;
            let keep = guard.settle.keep && !settle::asks_not_to_keep(&head.headers);
            let answer = keep.then(|| answer_of(guard, &head, &body));
            (Outcome::Unknown, permit.finish(Ending::Unknown { reason, answer }).await)
        }
        Meaning::Store if !guard.settle.keep || settle::asks_not_to_keep(&head.headers) => {
            let reason = TombstoneReason::ToldNotTo;
            (Outcome::Fresh, permit.finish(Ending::Tombstone { status, reason }).await)
        }
        Meaning::Store => {
            let answer = answer_of(guard, &head, &body);
            (Outcome::Fresh, permit.finish(Ending::Completed(answer)).await)
        }
    };
    Recorded::answer(context, outcome, written, head, Body::from(body), retention)
}

async fn unkeepable(
    context: Context,
    permit: Dispatched,
    head: Parts,
    body: Body,
    reason: TombstoneReason,
    retention: Duration,
) -> Recorded {
    let status = head.status.as_u16();
    let (outcome, written) = match settle::meaning(&context.guard().settle, status, &head.headers) {
        Meaning::Release => {
            permit.release().await;
            (Outcome::Released, Written::Yes)
        }
        Meaning::Unknown => {
            let ending = Ending::Unknown { reason: UnknownReason::AmbiguousStatus, answer: None };
            (Outcome::Unknown, permit.finish(ending).await)
        }
        Meaning::Store => {
            (Outcome::Fresh, permit.finish(Ending::Tombstone { status, reason }).await)
        }
    };
    Recorded::answer(context, outcome, written, head, body, retention)
}

impl Recorded {
    fn problem(context: Context, problem: Problem) -> Self {
        let outcome = problem.outcome();
        Self { context, outcome, shown: Shown::Problem(problem), kept_for: None }
    }

    fn answer(
        context: Context,
        outcome: Outcome,
        written: Written,
        head: Parts,
        body: Body,
        retention: Duration,
    ) -> Self {
        let outcome = match (outcome, written) {
            // The client gets its own answer all the same, and is told it is not on record.
            (Outcome::Fresh, Written::NotYet | Written::Superseded) => Outcome::NotStored,
            (outcome, _) => outcome,
        };
        let kept_for = (outcome == Outcome::Fresh).then_some(retention);
        Self { context, outcome, shown: Shown::Answer(Box::new(head), body), kept_for }
    }
}

/// The answer as it will be replayed: without what belongs to one connection, one moment or
/// one client. Filtered here, so that a cookie never even reaches the store.
fn answer_of(guard: &Guard, head: &Parts, body: &Bytes) -> Answer {
    Answer {
        status: head.status.as_u16(),
        headers: kept_headers(&head.headers, &guard.replay_drop),
        body: body.to_vec(),
    }
}

fn kept_headers(headers: &HeaderMap, drop: &ReplayDrop) -> Vec<(String, Vec<u8>)> {
    let mut own = headers.clone();
    crate::headers::strip_gateway_only(&mut own);
    own.iter()
        .filter(|(name, _)| **name != http::header::CONTENT_LENGTH)
        .filter(|(name, _)| !drop.drops(name.as_str()))
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}
