//! The clauses S1… of the [crate documentation](crate) as functions, the same for every store.
//!
//! A store under test is wrapped as a [`Subject`], which can also move the store's clock and
//! damage a record. [`conformance!`](crate::conformance!) makes one named test per clause:
//!
//! ```text
//! async fn subject() -> MySubject { … }
//! oncegate_store::conformance!(subject);
//! ```
//!
//! The functions panic where a clause is broken.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use oncegate_core::*;

use crate::{Certainty, ScanFilter, Store, record};

/// A store under test.
pub trait Subject: Send + Sync {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// Moves the store's clock on.
    fn pass(&self, span: Duration);

    /// Puts bytes in place of a record.
    fn plant<'a>(&'a self, id: &'a Identity, bytes: &'a [u8]) -> BoxFuture<'a, ()>;
}

/// Makes one test per clause out of an async function that builds a [`Subject`].
#[macro_export]
macro_rules! conformance {
    ($subject:path) => {
        $crate::conformance!(@each $subject:
            s01_one_of_many_proceeds,
            s02_every_call_is_safe_to_send_again,
            s03_a_replay_is_the_stored_answer_byte_for_byte,
            s04_another_fingerprint_is_a_mismatch_before_anything_else,
            s05_an_ended_lease_lets_nobody_execute_again,
            s05_a_claim_that_was_never_sent_is_taken_over,
            s05_a_retry_route_proceeds_with_a_higher_fence,
            s06_records_end_by_retention_to_the_microsecond,
            s07_a_stale_owner_changes_nothing,
            s08_the_ending_of_a_lost_record_is_restored,
            s09_a_lost_reservation_is_put_back_until_its_deadline,
            s10_a_released_key_is_free_at_once,
            s11_only_a_live_claim_may_send,
            s12_renewal_extends_the_lease_or_says_why_not,
            s13_only_an_unsettled_record_can_be_resolved,
            s14_unreadable_bytes_are_unknown_and_never_no_record,
            s15_identities_do_not_touch_each_other,
            s16_peek_and_scan_show_and_change_nothing,
            s17_fences_rise_also_after_a_release,
            s18_a_closed_store_refuses_without_effect,
            s19_a_caller_that_stops_waiting_harms_nobody,
        );
    };
    (@each $subject:path: $($clause:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $clause() {
            let subject = $subject().await;
            $crate::conformance::$clause(&subject).await;
        }
    )*};
}

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
const TICK: Duration = Duration::from_micros(1);

fn id(n: u8) -> Identity {
    Identity([n; 32])
}

fn owner(n: u8) -> OwnerToken {
    OwnerToken([n; 16])
}

fn fingerprint(n: u8) -> Fingerprint {
    Fingerprint { version: 1, digest: [n; 32] }
}

/// A first caller's reservation.
fn reserve(n: u8) -> Reserve {
    Reserve {
        owner: owner(n),
        fingerprint: fingerprint(1),
        phases: Phases::One,
        lease: LEASE,
        retention: RETENTION,
        on_unknown: OnUnknown::Hold,
    }
}

fn two_phase(n: u8) -> Reserve {
    Reserve { phases: Phases::Two, ..reserve(n) }
}

fn retrying(n: u8) -> Reserve {
    Reserve { on_unknown: OnUnknown::Retry, ..reserve(n) }
}

/// An answer with what is easily lost: a repeated name, an empty value, bytes that are not text.
fn answer(n: u8) -> Answer {
    Answer {
        status: 201,
        headers: vec![
            ("content-type".into(), b"application/json".to_vec()),
            ("x-twice".into(), b"one".to_vec()),
            ("x-twice".into(), Vec::new()),
            ("x-bytes".into(), vec![0x80, 0xff, n]),
        ],
        body: vec![0, b'\r', b'\n', 0xff, n],
    }
}

fn done(claim: Claim, answer: Answer) -> Finish {
    ending(claim, Ending::Completed(answer))
}

fn ending(claim: Claim, ending: Ending) -> Finish {
    Finish { claim, fingerprint: fingerprint(1), ending, retention: RETENTION }
}

fn renew(claim: Claim) -> Renew {
    Renew { claim, lease: LEASE, retention: RETENTION }
}

fn dispatch(claim: Claim) -> Dispatch {
    Dispatch { claim, lease: LEASE, retention: RETENTION }
}

fn release(claim: Claim) -> Release {
    Release { owner: claim.owner, fence: Some(claim.fence) }
}

fn resolve(resolution: Resolution) -> Resolve {
    Resolve { fence: None, resolution, retention: RETENTION }
}

/// The store with its calls unwrapped: an error is a failed test.
struct Sure<'a>(&'a dyn Store);

macro_rules! sure {
    ($($name:ident: $event:ty => $verdict:ty),* $(,)?) => {
        impl Sure<'_> {$(
            async fn $name(&self, id: &Identity, event: $event) -> $verdict {
                match self.0.$name(id, event).await {
                    Ok(verdict) => verdict,
                    Err(error) => panic!("{}: {error:?}", stringify!($name)),
                }
            }
        )*}
    };
}

sure! {
    reserve: Reserve => ReserveVerdict,
    dispatch: Dispatch => DispatchVerdict,
    renew: Renew => RenewVerdict,
    reassert: Reassert => ReassertVerdict,
    finish: Finish => FinishVerdict,
    release: Release => ReleaseVerdict,
    resolve: Resolve => ResolveVerdict,
}

impl Sure<'_> {
    async fn peek(&self, id: &Identity) -> Option<Record> {
        self.0.peek(id).await.unwrap_or_else(|error| panic!("peek: {error:?}"))
    }

    async fn scan(&self, limit: usize, filter: ScanFilter) -> Vec<(Identity, Record)> {
        self.0.scan(limit, filter).await.unwrap_or_else(|error| panic!("scan: {error:?}"))
    }

    /// Reserves, and must be told to proceed.
    async fn proceed(&self, id: &Identity, event: Reserve) -> (Claim, Timestamp) {
        let owner = event.owner;
        let told = self.reserve(id, event).await;
        let ReserveVerdict::Proceed { fence, now } = told else {
            panic!("expected to proceed: {told:?}");
        };
        (Claim { owner, fence }, now)
    }
}

fn sure(subject: &dyn Subject) -> Sure<'_> {
    Sure(subject.store())
}

fn lease_over() -> ReserveVerdict {
    ReserveVerdict::Unknown { reason: UnknownReason::LeaseOver, answer: None }
}

/// S1.
pub async fn s01_one_of_many_proceeds(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let verdicts = join_all((1..=50).map(|n| store.reserve(&id, reserve(n)))).await;
    let proceeds = |v: &&ReserveVerdict| matches!(v, ReserveVerdict::Proceed { .. });
    let busy = |v: &&ReserveVerdict| matches!(v, ReserveVerdict::Busy { lease_left, .. } if *lease_left <= LEASE);
    assert_eq!(verdicts.iter().filter(proceeds).count(), 1, "{verdicts:?}");
    assert_eq!(verdicts.iter().filter(busy).count(), 49, "{verdicts:?}");
}

/// S2.
pub async fn s02_every_call_is_safe_to_send_again(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let (claim, _) = store.proceed(&id, two_phase(1)).await;
    subject.pass(TICK);
    assert_eq!(store.proceed(&id, two_phase(1)).await.0, claim);
    for _ in 0..2 {
        assert_eq!(store.dispatch(&id, dispatch(claim)).await, DispatchVerdict::Go);
    }
    assert_eq!(store.proceed(&id, two_phase(1)).await.0, claim);
    for _ in 0..2 {
        let finish = done(claim, answer(1));
        assert_eq!(store.finish(&id, finish).await, FinishVerdict::Stored);
        subject.pass(TICK);
    }
    let other = done(claim, answer(2));
    assert_eq!(store.finish(&id, other).await, FinishVerdict::Stored, "said, and not done");
    let kept = store.peek(&id).await.map(|record| record.state);
    assert!(matches!(kept, Some(State::Completed { answer: kept, .. }) if kept == answer(1)));

    let id = self::id(2);
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    for _ in 0..2 {
        assert_eq!(store.release(&id, release(claim)).await, ReleaseVerdict::Released);
    }
}

/// S3.
pub async fn s03_a_replay_is_the_stored_answer_byte_for_byte(subject: &dyn Subject) {
    let store = sure(subject);
    let large = Answer { body: (0..1 << 20).map(|n: u32| (n % 251) as u8).collect(), ..answer(3) };
    let bare = Answer { status: 204, headers: Vec::new(), body: Vec::new() };
    for (n, answer) in (1..).zip([answer(1), large, bare]) {
        let id = id(n);
        let (claim, start) = store.proceed(&id, reserve(1)).await;
        subject.pass(Duration::from_secs(1));
        store.finish(&id, done(claim, answer.clone())).await;
        subject.pass(Duration::from_secs(2));
        let told = store.reserve(&id, reserve(2)).await;
        let ReserveVerdict::Replay { answer: replayed, at, expires_in } = told else {
            panic!("expected a replay: {told:?}");
        };
        assert!(replayed == answer, "answer {n} came back changed");
        assert!(at >= start.after(Duration::from_secs(1)));
        assert!(expires_in <= RETENTION - Duration::from_secs(2));
        assert!(expires_in > RETENTION - Duration::from_secs(60));
    }
    let id = id(9);
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    let reason = TombstoneReason::TooLarge;
    store.finish(&id, ending(claim, Ending::Tombstone { status: 200, reason })).await;
    let told = store.reserve(&id, reserve(2)).await;
    assert!(matches!(told, ReserveVerdict::NotKept { status: 200, reason: r, .. } if r == reason));
}

/// S4.
pub async fn s04_another_fingerprint_is_a_mismatch_before_anything_else(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let other = |reserve: Reserve| Reserve { fingerprint: fingerprint(2), ..reserve };
    let version = Fingerprint { version: 2, ..fingerprint(1) };
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    let while_running = [
        other(reserve(2)),
        other(reserve(1)),
        other(retrying(2)),
        Reserve { fingerprint: version, ..reserve(2) },
    ];
    for event in while_running {
        assert_eq!(store.reserve(&id, event).await, ReserveVerdict::Mismatch);
    }
    subject.pass(LEASE);
    let told = store.reserve(&id, other(retrying(2))).await;
    assert_eq!(told, ReserveVerdict::Mismatch, "after the lease");
    store.finish(&id, done(claim, answer(1))).await;
    let told = store.reserve(&id, other(reserve(2))).await;
    assert_eq!(told, ReserveVerdict::Mismatch, "after the end");
}

/// S5, on routes that hold.
pub async fn s05_an_ended_lease_lets_nobody_execute_again(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    subject.pass(LEASE - TICK);
    let told = store.reserve(&id, reserve(2)).await;
    assert!(
        matches!(told, ReserveVerdict::Busy { lease_left, .. } if lease_left <= TICK),
        "{told:?}"
    );
    subject.pass(TICK);
    let told = join_all((2..12).map(|n| store.reserve(&id, reserve(n)))).await;
    assert!(told.iter().all(|told| *told == lease_over()), "{told:?}");
    subject.pass(Duration::from_secs(60 * 60));
    assert_eq!(store.reserve(&id, reserve(2)).await, lease_over());
    // The owner was only slow, and its answer still counts.
    assert_eq!(store.finish(&id, done(claim, answer(1))).await, FinishVerdict::Stored);
    assert!(matches!(store.reserve(&id, reserve(2)).await, ReserveVerdict::Replay { .. }));
}

/// S5, claims.
pub async fn s05_a_claim_that_was_never_sent_is_taken_over(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let (first, _) = store.proceed(&id, two_phase(1)).await;
    subject.pass(LEASE);
    let verdicts = join_all((2..12).map(|n| store.reserve(&id, two_phase(n)))).await;
    let fences: Vec<Fence> = verdicts
        .iter()
        .filter_map(|verdict| match verdict {
            ReserveVerdict::Proceed { fence, .. } => Some(*fence),
            ReserveVerdict::Mismatch
            | ReserveVerdict::Busy { .. }
            | ReserveVerdict::Replay { .. }
            | ReserveVerdict::NotKept { .. }
            | ReserveVerdict::Unknown { .. } => None,
        })
        .collect();
    assert_eq!(fences.len(), 1, "{verdicts:?}");
    assert!(fences[0] > first.fence);
    assert_eq!(store.dispatch(&id, dispatch(first)).await, DispatchVerdict::Lost);
}

/// S5, routes that opted in.
pub async fn s05_a_retry_route_proceeds_with_a_higher_fence(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let (first, _) = store.proceed(&id, retrying(1)).await;
    subject.pass(LEASE - TICK);
    assert!(matches!(store.reserve(&id, retrying(2)).await, ReserveVerdict::Busy { .. }));
    subject.pass(TICK);
    let (second, _) = store.proceed(&id, retrying(2)).await;
    assert!(second.fence > first.fence);
    let reason = UnknownReason::AmbiguousStatus;
    let unknown = Ending::Unknown { reason, answer: Some(answer(5)) };
    store.finish(&id, ending(second, unknown)).await;
    let told = store.reserve(&id, reserve(3)).await;
    assert_eq!(told, ReserveVerdict::Unknown { reason, answer: Some(answer(5)) });
    let (third, _) = store.proceed(&id, retrying(3)).await;
    assert!(third.fence > second.fence);
    // Nothing of the ambiguous answer is left under the new reservation.
    subject.pass(LEASE);
    assert_eq!(store.reserve(&id, reserve(4)).await, lease_over());
}

/// S6.
pub async fn s06_records_end_by_retention_to_the_microsecond(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    // Unfinished, it outlives its lease by the whole retention.
    let record = store.peek(&id).await.expect("a record");
    assert_eq!(record.expires_at, record.reserved_at.after(LEASE).after(RETENTION));
    subject.pass(Duration::from_secs(7));
    store.finish(&id, done(claim, answer(1))).await;
    let record = store.peek(&id).await.expect("a record");
    let State::Completed { at, .. } = record.state else { panic!("{record:?}") };
    assert_eq!(record.expires_at, at.after(RETENTION));
    subject.pass(RETENTION - TICK);
    let told = store.reserve(&id, reserve(2)).await;
    assert!(matches!(told, ReserveVerdict::Replay { expires_in, .. } if expires_in == TICK));
    subject.pass(TICK);
    assert_eq!(store.peek(&id).await, None);
    assert_eq!(store.renew(&id, renew(claim)).await, RenewVerdict::Gone);
    let (again, _) = store.proceed(&id, reserve(2)).await;
    assert!(again.fence > claim.fence);
}

/// S7.
pub async fn s07_a_stale_owner_changes_nothing(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let (stale, _) = store.proceed(&id, retrying(1)).await;
    subject.pass(LEASE);
    let (current, _) = store.proceed(&id, retrying(2)).await;
    let before = store.peek(&id).await;
    let half = [
        stale,
        Claim { owner: stale.owner, ..current },
        Claim { owner: current.owner, fence: stale.fence },
    ];
    for claim in half {
        let finished = store.finish(&id, done(claim, answer(1))).await;
        assert_eq!(finished, FinishVerdict::Superseded);
        assert_eq!(store.renew(&id, renew(claim)).await, RenewVerdict::Superseded);
        assert_eq!(store.dispatch(&id, dispatch(claim)).await, DispatchVerdict::Lost);
        assert_eq!(store.release(&id, release(claim)).await, ReleaseVerdict::Superseded);
        assert_eq!(store.peek(&id).await, before);
    }
    assert_eq!(store.finish(&id, done(current, answer(2))).await, FinishVerdict::Stored);
}

/// S8.
pub async fn s08_the_ending_of_a_lost_record_is_restored(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let claim = Claim { owner: owner(1), fence: Fence(77) };
    assert_eq!(store.finish(&id, done(claim, answer(1))).await, FinishVerdict::Restored);
    assert_eq!(store.finish(&id, done(claim, answer(1))).await, FinishVerdict::Stored);
    let told = store.reserve(&id, reserve(2)).await;
    assert!(matches!(told, ReserveVerdict::Replay { answer: a, .. } if a == answer(1)));
}

/// S9.
pub async fn s09_a_lost_reservation_is_put_back_until_its_deadline(subject: &dyn Subject) {
    let store = sure(subject);
    let (claim, now) = store.proceed(&id(9), reserve(1)).await;
    let reassert = |claim| Reassert {
        claim,
        fingerprint: fingerprint(1),
        lease: LEASE,
        retention: RETENTION,
        not_after: now.after(Duration::from_secs(60)),
    };
    let id = id(1);
    assert_eq!(store.renew(&id, renew(claim)).await, RenewVerdict::Gone);
    assert_eq!(store.reassert(&id, reassert(claim)).await, ReassertVerdict::Restored);
    assert!(matches!(store.reserve(&id, reserve(2)).await, ReserveVerdict::Busy { .. }));
    assert_eq!(store.reassert(&id, reassert(claim)).await, ReassertVerdict::Renewed);
    let stranger = Claim { owner: owner(3), ..claim };
    assert_eq!(store.reassert(&id, reassert(stranger)).await, ReassertVerdict::Superseded);
    subject.pass(Duration::from_secs(61));
    let late = self::id(2);
    assert_eq!(store.reassert(&late, reassert(claim)).await, ReassertVerdict::TooLate);
    assert_eq!(store.peek(&late).await, None);
}

/// S10.
pub async fn s10_a_released_key_is_free_at_once(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    assert_eq!(store.release(&id, release(claim)).await, ReleaseVerdict::Released);
    assert_eq!(store.peek(&id).await, None);
    // The answer of this reservation never came, so its fence is not known.
    let (claim, _) = store.proceed(&id, reserve(2)).await;
    let by_token = Release { owner: claim.owner, fence: None };
    assert_eq!(store.release(&id, by_token).await, ReleaseVerdict::Released);
    let (claim, _) = store.proceed(&id, reserve(3)).await;
    store.finish(&id, done(claim, answer(1))).await;
    assert_eq!(store.release(&id, release(claim)).await, ReleaseVerdict::Superseded, "finished");
}

/// S11.
pub async fn s11_only_a_live_claim_may_send(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let nobody = Claim { owner: owner(1), fence: Fence(1) };
    assert_eq!(store.dispatch(&id, dispatch(nobody)).await, DispatchVerdict::Lost);
    let (claim, _) = store.proceed(&id, two_phase(1)).await;
    assert_eq!(store.dispatch(&id, dispatch(nobody)).await, DispatchVerdict::Lost);
    // Its lease is over, but nobody has taken the key: it is still the owner's to send.
    subject.pass(LEASE);
    assert_eq!(store.dispatch(&id, dispatch(claim)).await, DispatchVerdict::Go);
    let state = store.peek(&id).await.map(|record| record.state_name());
    assert_eq!(state, Some(StateName::Dispatched));
    let reason = UnknownReason::Drain;
    store.finish(&id, ending(claim, Ending::Unknown { reason, answer: None })).await;
    assert_eq!(store.dispatch(&id, dispatch(claim)).await, DispatchVerdict::Lost);
}

/// S12.
pub async fn s12_renewal_extends_the_lease_or_says_why_not(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    for _ in 0..3 {
        subject.pass(LEASE / 2);
        assert_eq!(store.renew(&id, renew(claim)).await, RenewVerdict::Renewed);
    }
    assert!(matches!(store.reserve(&id, reserve(2)).await, ReserveVerdict::Busy { .. }));
    // Called unknown in the meantime, and yet alive.
    subject.pass(LEASE);
    assert_eq!(store.reserve(&id, reserve(2)).await, lease_over());
    assert_eq!(store.renew(&id, renew(claim)).await, RenewVerdict::Renewed);
    assert!(matches!(store.reserve(&id, reserve(2)).await, ReserveVerdict::Busy { .. }));
    store.finish(&id, done(claim, answer(1))).await;
    assert_eq!(store.renew(&id, renew(claim)).await, RenewVerdict::Superseded);
    assert_eq!(store.renew(&self::id(2), renew(claim)).await, RenewVerdict::Gone);
}

/// S13.
pub async fn s13_only_an_unsettled_record_can_be_resolved(subject: &dyn Subject) {
    let store = sure(subject);
    let never = || resolve(Resolution::NeverHappened);
    let id = id(1);
    assert_eq!(store.resolve(&id, never()).await, ResolveVerdict::NoRecord);
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    let running = ResolveVerdict::MovedOn(StateName::Dispatched);
    assert_eq!(store.resolve(&id, never()).await, running);
    // Nobody has called it unknown yet, but its lease is over.
    subject.pass(LEASE);
    let wrong = Resolve { fence: Some(Fence(1)), ..never() };
    assert_eq!(store.resolve(&id, wrong).await, running);
    let right = Resolve { fence: Some(claim.fence), ..resolve(Resolution::Done(answer(4))) };
    assert_eq!(store.resolve(&id, right).await, ResolveVerdict::Resolved);
    let told = store.reserve(&id, reserve(2)).await;
    assert!(matches!(told, ReserveVerdict::Replay { answer: a, .. } if a == answer(4)));
    let settled = ResolveVerdict::MovedOn(StateName::Completed);
    assert_eq!(store.resolve(&id, never()).await, settled);

    let id = self::id(2);
    let (claim, _) = store.proceed(&id, reserve(1)).await;
    let reason = UnknownReason::ConnectionLost;
    store.finish(&id, ending(claim, Ending::Unknown { reason, answer: None })).await;
    assert_eq!(store.resolve(&id, never()).await, ResolveVerdict::Resolved);
    store.proceed(&id, reserve(2)).await;
}

/// S14.
pub async fn s14_unreadable_bytes_are_unknown_and_never_no_record(subject: &dyn Subject) {
    let store = sure(subject);
    let (claim, now) = store.proceed(&id(9), reserve(1)).await;
    store.finish(&id(9), done(claim, answer(1))).await;
    let good = record::encode(&store.peek(&id(9)).await.expect("a record"));
    let newer = [&[record::VERSION + 1], &good[1..]].concat();
    let unheard_of = [&good[..1], b"x", &good[2..]].concat();
    let damages: [&[u8]; 6] =
        [b"", b"rubbish", &good[..50], &good[..good.len() - 1], &newer, &unheard_of];
    for (n, bytes) in (10..).zip(damages) {
        let id = id(n);
        subject.plant(&id, bytes).await;
        for event in [reserve(2), retrying(2), two_phase(2), reserve(1)] {
            let told = store.reserve(&id, event).await;
            let unknown =
                ReserveVerdict::Unknown { reason: UnknownReason::Unreadable, answer: None };
            assert_eq!(told, unknown, "damage {n}");
        }
        assert_eq!(store.peek(&id).await, Some(record::unreadable()), "damage {n}");
    }
    let head: [&[u8]; 4] = [b"rubbish", &good[..50], &newer, &unheard_of];
    for (n, bytes) in (20..).zip(head) {
        let id = id(n);
        subject.plant(&id, bytes).await;
        refuses_every_write(&store, &id, claim, now).await;
    }
}

async fn refuses_every_write(store: &Sure<'_>, id: &Identity, claim: Claim, now: Timestamp) {
    assert_eq!(store.dispatch(id, dispatch(claim)).await, DispatchVerdict::Lost);
    assert_eq!(store.renew(id, renew(claim)).await, RenewVerdict::Superseded);
    let finish = done(claim, answer(2));
    assert_eq!(store.finish(id, finish).await, FinishVerdict::Superseded);
    assert_eq!(store.release(id, release(claim)).await, ReleaseVerdict::Superseded);
    let reassert = Reassert {
        claim,
        fingerprint: fingerprint(1),
        lease: LEASE,
        retention: RETENTION,
        not_after: now.after(RETENTION),
    };
    assert_eq!(store.reassert(id, reassert).await, ReassertVerdict::Superseded);
    let unknown = ResolveVerdict::MovedOn(StateName::Unknown);
    let done = resolve(Resolution::Done(answer(2)));
    assert_eq!(store.resolve(id, done).await, unknown);
    let never = resolve(Resolution::NeverHappened);
    let fenced = Resolve { fence: Some(claim.fence), ..never.clone() };
    assert_eq!(store.resolve(id, fenced).await, unknown);
    assert_eq!(store.peek(id).await, Some(record::unreadable()));
    let listed = store.scan(100, ScanFilter::Unknown).await;
    assert!(listed.contains(&(*id, record::unreadable())), "{listed:?}");
    // The operator's way out.
    assert_eq!(store.resolve(id, never).await, ResolveVerdict::Resolved);
    let (claim, _) = store.proceed(id, reserve(2)).await;
    store.finish(id, self::done(claim, answer(1))).await;
}

/// S15.
pub async fn s15_identities_do_not_touch_each_other(subject: &dyn Subject) {
    let store = sure(subject);
    let ids: Vec<Identity> = (0..40).map(id).collect();
    let claims = join_all(ids.iter().map(|id| store.proceed(id, reserve(1)))).await;
    let finishes = ids
        .iter()
        .zip(&claims)
        .zip(0..)
        .map(|((id, (claim, _)), n)| store.finish(id, done(*claim, answer(n))));
    assert!(join_all(finishes).await.iter().all(|told| *told == FinishVerdict::Stored));
    for (n, id) in (0..).zip(&ids) {
        let told = store.reserve(id, reserve(2)).await;
        assert!(matches!(told, ReserveVerdict::Replay { answer: a, .. } if a == answer(n)), "{n}");
    }
}

/// S16.
pub async fn s16_peek_and_scan_show_and_change_nothing(subject: &dyn Subject) {
    let store = sure(subject);
    assert_eq!(store.peek(&id(1)).await, None);
    assert!(store.scan(10, ScanFilter::All).await.is_empty());
    store.proceed(&id(1), reserve(1)).await;
    subject.pass(LEASE);
    store.proceed(&id(2), reserve(1)).await;
    store.proceed(&id(3), two_phase(1)).await;
    let (claim, _) = store.proceed(&id(4), reserve(1)).await;
    store.finish(&id(4), done(claim, answer(1))).await;
    let (claim, _) = store.proceed(&id(5), reserve(1)).await;
    let reason = UnknownReason::UpstreamTimeout;
    store.finish(&id(5), ending(claim, Ending::Unknown { reason, answer: None })).await;
    for _ in 0..2 {
        for (filter, expected) in [
            (ScanFilter::All, vec![1, 2, 3, 4, 5]),
            (ScanFilter::InFlight, vec![2, 3]),
            (ScanFilter::Unknown, vec![1, 5]),
        ] {
            let mut found = store.scan(10, filter).await;
            found.sort_by_key(|(id, _)| *id);
            let ids: Vec<u8> = found.iter().map(|(id, _)| id.0[0]).collect();
            assert_eq!(ids, expected, "{filter:?}");
            for (id, record) in found {
                assert_eq!(store.peek(&id).await, Some(record));
            }
        }
    }
    assert_eq!(store.scan(2, ScanFilter::All).await.len(), 2);
    assert!(store.scan(0, ScanFilter::All).await.is_empty());
    subject.pass(RETENTION + LEASE);
    assert!(store.scan(10, ScanFilter::All).await.is_empty(), "expired");
}

/// S17.
pub async fn s17_fences_rise_also_after_a_release(subject: &dyn Subject) {
    let store = sure(subject);
    let id = id(1);
    let mut last = Fence(0);
    for n in 1..=20 {
        let (claim, now) = store.proceed(&id, reserve(n)).await;
        assert!(claim.fence > last && claim.fence.0 >= now.0);
        last = claim.fence;
        store.release(&id, release(claim)).await;
        subject.pass(TICK);
    }
}

/// S18.
pub async fn s18_a_closed_store_refuses_without_effect(subject: &dyn Subject) {
    let store = subject.store();
    assert!(store.health().ready, "{:?}", store.health());
    store.close().await;
    store.close().await;
    let refused = store.reserve(&id(1), reserve(1)).await.expect_err("closed");
    assert_eq!(refused.certainty(), Certainty::NotApplied);
    assert!(store.peek(&id(1)).await.is_err());
    assert!(store.scan(1, ScanFilter::All).await.is_err());
    let health = store.health();
    assert!(!health.ready && health.problem.is_some(), "{health:?}");
}

/// S19.
pub async fn s19_a_caller_that_stops_waiting_harms_nobody(subject: &dyn Subject) {
    let store = sure(subject);
    for n in 0..30 {
        let id = id(n);
        let mut leaving = subject.store().reserve(&id, reserve(1));
        let first_look = poll_fn(|context| Poll::Ready(leaving.as_mut().poll(context))).await;
        drop(leaving);
        // It may have happened or not; the next call is told which, and nothing in between.
        let told = store.reserve(&id, reserve(2)).await;
        assert!(
            matches!(told, ReserveVerdict::Proceed { .. } | ReserveVerdict::Busy { .. }),
            "{first_look:?}, then {told:?}"
        );
        let again = store.reserve(&id, reserve(2)).await;
        assert_eq!(
            std::mem::discriminant(&told),
            std::mem::discriminant(&again),
            "{told:?}, then {again:?}"
        );
    }
}
