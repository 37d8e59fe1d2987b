//! The right to act, as a value.
//!
//! [`Reserved`]: nothing has left the building, the key may be given back. [`Dispatched`]: a
//! byte may have left, so the key may only be finished or left unknown. Dropping either without
//! deciding is a bug or a shutdown: it is counted, logged, and decided safely in the background.

use std::sync::Arc;
use std::time::Duration;

use oncegate_core::{
    Claim, Dispatch, DispatchVerdict, Ending, Fence, Fingerprint, Finish, FinishVerdict, Identity,
    Operation, OwnerToken, Reassert, ReassertVerdict, Release, ReleaseVerdict, Renew, RenewVerdict,
    Timestamp, UnknownReason,
};
use oncegate_store::{Certainty, Error};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::gateway::Gateway;
use crate::metrics::Violation;

/// How long a client waits for its answer to be recorded before it gets it unrecorded.
const FINISH_PATIENCE: Duration = Duration::from_secs(2);
/// How long a finished execution goes on trying to be recorded after that.
const FINISH_FOR: Duration = Duration::from_secs(3600);
/// Waits between attempts to write: the first and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What both permits know.
pub(crate) struct Held {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) operation: Operation,
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) claim: Claim,
    pub(crate) lease: Duration,
    pub(crate) retention: Duration,
    /// By this gateway's monotonic clock, from before the reservation was sent: after this
    /// moment the store may already call the reservation abandoned.
    pub(crate) lease_ends: Instant,
    /// By the store's clock: when the upstream call must have ended.
    pub(crate) call_ends: Timestamp,
}

/// May be given back: nothing has been sent.
pub(crate) struct Reserved(Option<Held>);

/// May only be finished or left unknown.
pub(crate) struct Dispatched(Option<Held>);

/// Whether an ending reached the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is on record.
    Yes,
    /// Not yet; a task goes on trying.
    NotYet,
    /// Somebody else holds the key: it ran twice, and theirs is the record.
    Superseded,
}

impl Reserved {
    pub(crate) fn new(held: Held) -> Self {
        held.gateway.metrics.held.inc();
        Self(Some(held))
    }

    pub(crate) fn held(&self) -> &Held {
        self.0.as_ref().expect("a permit holds its reservation until it is consumed")
    }

    /// Two-phase routes: asks the store for the go. An answer that was lost is asked for again.
    pub(crate) async fn announce(&self, lease: Duration) -> Result<DispatchVerdict, Error> {
        let held = self.held();
        let event = Dispatch { claim: held.claim, lease, retention: held.retention };
        let first = held.gateway.store.dispatch(&held.identity, event.clone()).await;
        match first {
            Err(error) if error.certainty() == Certainty::MaybeApplied => {
                held.gateway.store.dispatch(&held.identity, event).await
            }
            answered => answered,
        }
    }

    /// From here on the request may have been sent.
    pub(crate) fn dispatch(mut self, lease: Duration, lease_ends: Instant) -> Dispatched {
        let held = self.0.take().map(|held| Held { lease, lease_ends, ..held });
        Dispatched(held)
    }

    /// Nothing was sent: gives the key back.
    pub(crate) async fn release(mut self) {
        if let Some(held) = self.0.take() {
            to_the_end(held.gateway.tasks.clone(), held.release()).await;
        }
    }

    /// The store says that the key is somebody else's by now: there is nothing to give back.
    pub(crate) fn lost(mut self) {
        if let Some(held) = self.0.take() {
            held.gateway.metrics.held.dec();
        }
    }
}

impl Dispatched {
    pub(crate) fn held(&self) -> &Held {
        self.0.as_ref().expect("a permit holds its reservation until it is consumed")
    }

    /// Records how it ended; waits a bounded time for the store and then goes on trying in the
    /// background, because a lost ending would leave a finished execution unknown.
    pub(crate) async fn finish(mut self, ending: Ending) -> Written {
        match self.0.take() {
            Some(held) => to_the_end(held.gateway.tasks.clone(), held.finish(ending))
                .await
                .unwrap_or(Written::NotYet),
            None => Written::NotYet,
        }
    }

    /// The upstream declared that it did not process the request, or it was provably not sent.
    pub(crate) async fn release(mut self) {
        if let Some(held) = self.0.take() {
            to_the_end(held.gateway.tasks.clone(), held.release()).await;
        }
    }

    /// Awaits `call`, renewing the lease at a third of it for as long as the call takes. A call
    /// faster than that costs no store command.
    pub(crate) async fn renewing<T>(&self, call: impl Future<Output = T>) -> T {
        let held = self.held();
        let mut call = std::pin::pin!(call);
        // A reservation that was slow to come has less than its whole lease left.
        let left = held.lease_ends.saturating_duration_since(Instant::now());
        let first = pause(held).min(left / 2);
        if let Ok(done) = tokio::time::timeout(first, &mut call).await {
            return done;
        }
        let renewals = std::pin::pin!(held.renew_for_ever());
        match futures::future::select(call, renewals).await {
            futures::future::Either::Left((done, _)) => done,
            futures::future::Either::Right((never, _)) => match never {},
        }
    }
}

/// Runs a write in a task of its own: whoever waits for it may be dropped, by the drain deadline
/// or by a panic, and the write must not be.
async fn to_the_end<T: Send + 'static>(
    tasks: TaskTracker,
    write: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    tasks.spawn(write).await.ok()
}

/// A third of the lease, less up to a fifth of that so that gateways do not renew in step.
fn pause(held: &Held) -> Duration {
    let third = held.lease / 3;
    let jitter = u32::from(held.claim.owner.0[0]);
    third - third * jitter / (5 * 256)
}

impl Held {
    async fn renew_for_ever(&self) -> std::convert::Infallible {
        loop {
            let event = Renew { claim: self.claim, lease: self.lease, retention: self.retention };
            match self.gateway.store.renew(&self.identity, event).await {
                Ok(RenewVerdict::Renewed) => self.gateway.metrics.lease_renewed(),
                Ok(RenewVerdict::Superseded) => self.superseded("renew"),
                Ok(RenewVerdict::Gone) => self.reassert().await,
                Err(error) => self.store_failed("renew", &error),
            }
            tokio::time::sleep(pause(self)).await;
        }
    }

    /// The store lost the reservation of a call that still runs: put it back.
    async fn reassert(&self) {
        let event = Reassert {
            claim: self.claim,
            fingerprint: self.fingerprint,
            lease: self.lease,
            retention: self.retention,
            not_after: self.call_ends,
        };
        match self.gateway.store.reassert(&self.identity, event).await {
            Ok(ReassertVerdict::Restored) => {
                self.gateway.metrics.violation(Violation::Reasserted);
                self.say_lost("reassert");
            }
            Ok(ReassertVerdict::Renewed) => self.gateway.metrics.lease_renewed(),
            Ok(ReassertVerdict::Superseded) => self.superseded("reassert"),
            Ok(ReassertVerdict::TooLate) => {}
            Err(error) => self.store_failed("reassert", &error),
        }
    }

    async fn finish(self, ending: Ending) -> Written {
        self.gateway.metrics.held.dec();
        self.gateway.metrics.execution_ended(self.operation.as_str(), ending_name(&ending));
        let event = Finish {
            claim: self.claim,
            fingerprint: self.fingerprint,
            ending,
            retention: self.retention,
        };
        let started = Instant::now();
        if let Some(written) = self.try_finish(&event, started + FINISH_PATIENCE).await {
            return written;
        }
        let tasks = self.gateway.tasks.clone();
        tasks.spawn(async move {
            let for_at_most = self.retention.min(FINISH_FOR);
            if self.try_finish(&event, started + for_at_most).await.is_none() {
                tracing::error!(
                    identity = self.identity.short(),
                    operation = %self.operation,
                    "an ending could not be recorded; the key stays unknown"
                );
            }
        });
        Written::NotYet
    }

    /// Writes until it is written or `until` has passed.
    async fn try_finish(&self, event: &Finish, until: Instant) -> Option<Written> {
        let mut wait = BACKOFF.0;
        loop {
            match self.gateway.store.finish(&self.identity, event.clone()).await {
                Ok(FinishVerdict::Stored) => {
                    self.gateway.waiting.wake(&self.identity);
                    return Some(Written::Yes);
                }
                Ok(FinishVerdict::Restored) => {
                    self.gateway.metrics.violation(Violation::Restored);
                    self.say_lost("finish");
                    self.gateway.waiting.wake(&self.identity);
                    return Some(Written::Yes);
                }
                Ok(FinishVerdict::Superseded) => {
                    self.superseded("finish");
                    return Some(Written::Superseded);
                }
                Err(error) => self.store_failed("finish", &error),
            }
            if Instant::now() + wait >= until || self.gateway.drain_over.is_cancelled() {
                return None;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(BACKOFF.1);
        }
    }

    async fn release(self) {
        self.gateway.metrics.held.dec();
        let give_back = Release { owner: self.claim.owner, fence: Some(self.claim.fence) };
        match self.gateway.store.release(&self.identity, give_back).await {
            Ok(ReleaseVerdict::Released) => self.gateway.waiting.wake(&self.identity),
            Ok(ReleaseVerdict::Superseded) => self.superseded("release"),
            Err(error) => {
                self.store_failed("release", &error);
                let Self { gateway, identity, claim, retention, .. } = self;
                let patience = retention.min(FINISH_FOR);
                release_later(gateway, identity, claim.owner, Some(claim.fence), patience);
            }
        }
    }

    fn superseded(&self, command: &'static str) {
        self.gateway.metrics.violation(Violation::Superseded);
        tracing::error!(
            identity = self.identity.short(),
            operation = %self.operation,
            command,
            "another owner holds the key of a running execution: it may have run twice"
        );
    }

    fn say_lost(&self, command: &'static str) {
        tracing::error!(
            identity = self.identity.short(),
            operation = %self.operation,
            command,
            "the store had lost a reservation that it had acknowledged"
        );
    }

    fn store_failed(&self, command: &'static str, error: &Error) {
        self.gateway.metrics.store_failed(error.code());
        tracing::warn!(
            identity = self.identity.short(),
            operation = %self.operation,
            command,
            reason = error.code(),
            error = crate::upstream::chain(error),
            "a store command failed"
        );
    }
}

fn ending_name(ending: &Ending) -> &'static str {
    match ending {
        Ending::Completed(_) => "completed",
        Ending::Tombstone { .. } => "tombstone",
        Ending::Unknown { .. } => "unknown",
    }
}

/// Keeps giving back a token in the background: nothing was sent under it, so the key must not
/// stay blocked. With a known fence until the store has said a word; without one the reservation
/// itself may still be on its way, so it is taken back again, ever more rarely, until it cannot
/// be any more.
pub(crate) fn release_later(
    gateway: Arc<Gateway>,
    identity: Identity,
    owner: OwnerToken,
    fence: Option<Fence>,
    patience: Duration,
) {
    let tasks = gateway.tasks.clone();
    tasks.spawn(async move {
        let until = Instant::now() + patience;
        let mut wait = BACKOFF.0;
        let longest = if fence.is_some() { BACKOFF.1 } else { patience };
        loop {
            let released = gateway.store.release(&identity, Release { owner, fence }).await;
            // A gateway that is told to stop takes it back once more and leaves the rest to the
            // lease.
            let is_final = fence.is_some() || gateway.is_draining();
            if (released.is_ok() && is_final) || Instant::now() + wait >= until {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = gateway.drain_over.cancelled() => return,
            }
            wait = (wait * 2).min(longest);
        }
    });
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        held.gateway.metrics.violation(Violation::ReservedDropped);
        tracing::warn!(identity = held.identity.short(), operation = %held.operation, "a reservation was dropped before anything was sent; it is given back");
        let tasks = held.gateway.tasks.clone();
        tasks.spawn(held.release());
    }
}

impl Drop for Dispatched {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        let reason = if held.gateway.drain_over.is_cancelled() {
            UnknownReason::Drain
        } else {
            held.gateway.metrics.violation(Violation::DispatchedDropped);
            UnknownReason::GatewayFailure
        };
        tracing::warn!(identity = held.identity.short(), operation = %held.operation, reason = reason.as_str(), "an execution was dropped without an ending; it is marked unknown");
        let tasks = held.gateway.tasks.clone();
        tasks.spawn(async move { held.finish(Ending::Unknown { reason, answer: None }).await });
    }
}

#[cfg(test)]
mod tests;
