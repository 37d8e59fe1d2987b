//! One protocol, four implementations: the core's model, the memory store, the embedded store
//! and the Redis scripts must give the same verdicts and keep the same record, whatever the
//! history. The invariants R1 to R6 are checked on the way.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncegate_core::invariants::{Step, check};
use oncegate_core::*;
use oncegate_store::conformance::Subject;
use oncegate_store::{Clock, apply, record};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::calls;
use tokio::runtime::Runtime;

const START: u64 = 1_790_000_000_000_000;

/// An event of some owner; which fence it shows is decided when it happens, among those that
/// were handed out.
#[derive(Clone, Debug)]
struct Action {
    pass: Pass,
    owner: u8,
    print: u8,
    fence: usize,
    span: Duration,
    kind: Kind,
}

/// How time goes on before an event.
#[derive(Clone, Copy, Debug)]
enum Pass {
    Micros(u64),
    /// To one microsecond before, exactly to, or one after the end of the lease.
    ToLeaseEnd(i64),
    /// The same with the end of the record.
    ToExpiry(i64),
}

impl Pass {
    fn micros(self, now: Timestamp, record: Option<&Record>) -> u64 {
        let until = |edge: Timestamp, off| edge.0.saturating_add_signed(off).saturating_sub(now.0);
        let lease_end = record.and_then(|record| match record.state {
            State::Claimed { lease_until } | State::Dispatched { lease_until } => Some(lease_until),
            State::Completed { .. } | State::Tombstone { .. } | State::Unknown { .. } => None,
        });
        match self {
            Self::Micros(micros) => micros,
            Self::ToLeaseEnd(off) => lease_end.map_or(1, |edge| until(edge, off)),
            Self::ToExpiry(off) => record.map_or(1, |record| until(record.expires_at, off)),
        }
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Reserve(Phases, OnUnknown),
    Dispatch,
    Renew,
    Reassert { not_after_micros: i64 },
    Finish(Ending),
    Release { by_token: bool },
    Resolve { fenced: bool, resolution: Resolution },
}

fn answer() -> impl Strategy<Value = Answer> {
    let name = prop::sample::select(vec!["a", "content-type", "x-y"]);
    let header = (name, prop::collection::vec(any::<u8>(), 0..4));
    let headers = prop::collection::vec(header, 0..3);
    let body = prop::collection::vec(any::<u8>(), 0..200);
    (200u16..600, headers, body).prop_map(|(status, headers, body)| {
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Answer { status, headers, body }
    })
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        3 => answer().prop_map(Ending::Completed),
        1 => (200u16..600, prop::sample::select(TombstoneReason::ALL.to_vec()))
            .prop_map(|(status, reason)| Ending::Tombstone { status, reason }),
        3 => (prop::sample::select(UnknownReason::ALL.to_vec()), prop::option::of(answer()))
            .prop_map(|(reason, answer)| Ending::Unknown { reason, answer }),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    let phases = prop::sample::select(vec![Phases::One, Phases::Two]);
    let on_unknown = prop::sample::select(vec![OnUnknown::Hold, OnUnknown::Retry]);
    let resolution =
        prop_oneof![Just(Resolution::NeverHappened), answer().prop_map(Resolution::Done),];
    prop_oneof![
        8 => (phases, on_unknown).prop_map(|(p, u)| Kind::Reserve(p, u)),
        2 => Just(Kind::Dispatch),
        2 => Just(Kind::Renew),
        2 => (-30i64..60).prop_map(|not_after_micros| Kind::Reassert { not_after_micros }),
        4 => ending().prop_map(Kind::Finish),
        2 => any::<bool>().prop_map(|by_token| Kind::Release { by_token }),
        2 => (any::<bool>(), resolution)
            .prop_map(|(fenced, resolution)| Kind::Resolve { fenced, resolution }),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let pass = prop_oneof![
        3 => Just(Pass::Micros(0)),
        6 => (1u64..80).prop_map(Pass::Micros),
        1 => (80u64..400).prop_map(Pass::Micros),
        3 => (-1i64..2).prop_map(Pass::ToLeaseEnd),
        1 => (-1i64..2).prop_map(Pass::ToExpiry),
    ];
    // Mostly one fingerprint and the latest fence, or nothing would ever fit together.
    let print = prop_oneof![9 => Just(1u8), 1 => Just(2u8)];
    let fence = prop_oneof![4 => Just(0usize), 1 => 0usize..4];
    let span = prop_oneof![
        1 => Just(Duration::ZERO),
        6 => (10u64..60).prop_map(Duration::from_micros),
        1 => (1u64..100_000).prop_map(Duration::from_secs),
    ];
    (pass, 1u8..4, print, fence, span, kind()).prop_map(
        |(pass, owner, print, fence, span, kind)| Action { pass, owner, print, fence, span, kind },
    )
}

/// What has been handed out so far, the latest first.
#[derive(Default)]
struct Fences(Vec<(u8, Fence)>);

impl Fences {
    fn of(&self, owner: u8, nth: usize) -> Fence {
        let mine = self.0.iter().filter(|(whose, _)| *whose == owner);
        mine.map(|(_, fence)| *fence).nth(nth).unwrap_or(Fence(START))
    }

    fn note(&mut self, owner: u8, verdict: &Verdict) {
        if let Verdict::Reserve(ReserveVerdict::Proceed { fence, .. }) = verdict {
            self.0.insert(0, (owner, *fence));
        }
    }
}

fn event(action: &Action, now: Timestamp, fences: &Fences) -> Event {
    let owner = OwnerToken([action.owner; 16]);
    let claim = Claim { owner, fence: fences.of(action.owner, action.fence) };
    let fingerprint = Fingerprint { version: 1, digest: [action.print; 32] };
    let (lease, retention) = (action.span, 3 * action.span);
    match action.kind.clone() {
        Kind::Reserve(phases, on_unknown) => {
            Event::Reserve(Reserve { owner, fingerprint, phases, lease, retention, on_unknown })
        }
        Kind::Dispatch => Event::Dispatch(Dispatch { claim, lease, retention }),
        Kind::Renew => Event::Renew(Renew { claim, lease, retention }),
        Kind::Reassert { not_after_micros } => {
            let not_after = Timestamp(now.0.saturating_add_signed(not_after_micros));
            Event::Reassert(Reassert { claim, fingerprint, lease, retention, not_after })
        }
        Kind::Finish(ending) => Event::Finish(Finish { claim, fingerprint, ending, retention }),
        Kind::Release { by_token } => {
            Event::Release(Release { owner, fence: (!by_token).then_some(claim.fence) })
        }
        Kind::Resolve { fenced, resolution } => {
            let fence = fenced.then_some(claim.fence);
            Event::Resolve(Resolve { fence, resolution, retention })
        }
    }
}

/// The model's step, checked against the invariants.
fn model(now: Timestamp, before: &Option<Record>, event: &Event) -> (Option<Record>, Verdict) {
    let (next, verdict) = transition(now, before.as_ref(), event);
    let after = next.apply(before.clone());
    let step =
        Step { now, before: before.as_ref(), event, after: after.as_ref(), verdict: &verdict };
    check(&step).unwrap_or_else(|broken| panic!("{broken}\n{step:#?}"));
    (after, verdict)
}

struct World {
    runtime: Runtime,
    clock: Clock,
    now: AtomicU64,
    stores: Vec<(&'static str, Box<dyn Subject>)>,
    histories: AtomicU64,
}

impl World {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let clock = Clock::manual(Timestamp(START));
        let stores = runtime.block_on(async {
            let memory: Box<dyn Subject> = Box::new(support::Memory::new(clock.clone()));
            let embedded: Box<dyn Subject> = Box::new(support::Embedded::new(clock.clone()).await);
            let redis: Box<dyn Subject> = Box::new(support::Redis::new(clock.clone()).await);
            vec![("memory", memory), ("embedded", embedded), ("redis", redis)]
        });
        let (now, histories) = (AtomicU64::new(START), AtomicU64::new(0));
        Self { runtime, clock, now, stores, histories }
    }

    /// Each history has an identity of its own, so that the stores can be kept.
    fn run(&self, actions: &[Action]) {
        let id = calls::id(self.histories.fetch_add(1, Ordering::Relaxed));
        let mut record = None;
        let mut fences = Fences::default();
        for action in actions {
            let before = Timestamp(self.now.load(Ordering::Relaxed));
            let passed = action.pass.micros(before, record.as_ref());
            self.clock.pass(Duration::from_micros(passed));
            self.now.fetch_add(passed, Ordering::Relaxed);
            let now = Timestamp(before.0 + passed);
            let event = event(action, now, &fences);
            let (after, verdict) = model(now, &record, &event);
            let visible = after.clone().filter(|record| !record.is_expired(now));
            for (name, subject) in &self.stores {
                let store = subject.store();
                let (told, kept) = self.runtime.block_on(async {
                    let told = apply(store, &id, event.clone()).await.expect("an answer");
                    (told, store.peek(&id).await.expect("a look"))
                });
                assert_eq!(told, verdict, "{name} on {event:?} at {now} with {record:?}");
                assert_eq!(kept, visible, "{name} after {event:?} at {now} with {record:?}");
            }
            fences.note(action.owner, &verdict);
            record = after;
        }
    }
}

/// Each kind of record with one thing wrong in its head, or an answer too many or too few.
fn damaged_heads(whole: impl Fn(State) -> Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let at = Timestamp(START);
    let answer = Answer { status: 200, headers: Vec::new(), body: b"done".to_vec() };
    let (too_large, over) = (TombstoneReason::TooLarge, UnknownReason::LeaseOver);
    let states = [
        State::Claimed { lease_until: at },
        State::Dispatched { lease_until: at },
        State::Completed { at, answer: answer.clone() },
        State::Tombstone { at, status: 200, reason: too_large },
        State::Unknown { at, reason: over, answer: None },
        State::Unknown { at, reason: over, answer: Some(answer.clone()) },
    ];
    let mut encoded = Vec::new();
    record::encode_answer(&answer, &mut encoded);
    let mut damaged = Vec::new();
    for state in states {
        let good = whole(state);
        // In this order: version, state, status, reason, whether there is an answer, its version.
        for (at, value) in [
            (0, 0),
            (0, 2),
            (1, b'x'),
            (83, 1),
            (84, 1),
            (85, 0),
            (85, 1),
            (85, 5),
            (85, 9),
            (85, 255),
            (86, 0),
            (86, 1),
            (86, 2),
            (87, 2),
        ] {
            let mut bytes = good.clone();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
                damaged.push((format!("byte {at} is {value}"), bytes));
            }
        }
        damaged.push(("one byte more".to_owned(), [&good[..], b"x"].concat()));
        damaged.push(("no answer".to_owned(), good[..record::HEAD_LEN].to_vec()));
        let mut answered = [&good[..record::HEAD_LEN], &encoded].concat();
        damaged.push(("a silent answer".to_owned(), answered.clone()));
        answered[86] = 1;
        damaged.push(("an answer".to_owned(), answered));
    }
    // What is readable after all is another test's business, and so is an answer that is damaged
    // in itself: Redis looks at heads.
    damaged.retain(|(_, bytes)| {
        let head_only = bytes[86] == 1 && bytes.last() == Some(&b'x');
        record::decode(bytes) == record::Stored::Unreadable && !head_only
    });
    damaged
}

/// What a caller could ask about a record of owner 1.
fn questions(claim: Claim) -> Vec<Event> {
    let owner = claim.owner;
    let fingerprint = Fingerprint { version: 1, digest: [1; 32] };
    let (lease, retention) = (Duration::from_secs(30), Duration::from_secs(3600));
    let reserve = |owner, on_unknown| {
        let phases = Phases::One;
        Event::Reserve(Reserve { owner, fingerprint, phases, lease, retention, on_unknown })
    };
    let other = OwnerToken([2; 16]);
    let answer = Answer { status: 201, headers: Vec::new(), body: b"mine".to_vec() };
    let ending = Ending::Completed(answer.clone());
    let not_after = Timestamp(u64::MAX >> 12);
    vec![
        reserve(owner, OnUnknown::Hold),
        reserve(other, OnUnknown::Hold),
        reserve(other, OnUnknown::Retry),
        Event::Dispatch(Dispatch { claim, lease, retention }),
        Event::Renew(Renew { claim, lease, retention }),
        Event::Reassert(Reassert { claim, fingerprint, lease, retention, not_after }),
        Event::Finish(Finish { claim, fingerprint, ending, retention }),
        Event::Release(Release { owner, fence: None }),
        Event::Release(Release { owner, fence: Some(claim.fence) }),
        Event::Resolve(Resolve { fence: None, resolution: Resolution::Done(answer), retention }),
    ]
}

#[test]
fn a_damaged_head_is_unreadable_to_every_store() {
    let world = World::new();
    let claim = Claim { owner: OwnerToken([1; 16]), fence: Fence(START) };
    let whole = |state| {
        record::encode(&Record {
            fingerprint: Fingerprint { version: 1, digest: [1; 32] },
            claim,
            reserved_at: Timestamp(START),
            expires_at: Timestamp(START + 3_600_000_000),
            state,
        })
    };
    let damaged = damaged_heads(whole);
    assert!(damaged.len() > 60, "{}", damaged.len());
    for (n, (what, bytes)) in (1_000_000..).zip(damaged) {
        let id = calls::id(n);
        for (name, subject) in &world.stores {
            world.runtime.block_on(async {
                subject.plant(&id, &bytes).await;
                for event in questions(claim) {
                    let now = Timestamp(START);
                    let (_, expected) =
                        record::step(now, Some(&record::Stored::Unreadable), &event);
                    let told = apply(subject.store(), &id, event.clone()).await.expect("an answer");
                    assert_eq!(told, expected, "{name}, {what} in {bytes:?}, on {event:?}");
                }
                let kept = subject.store().peek(&id).await.expect("a look");
                assert_eq!(kept, Some(record::unreadable()), "{name}, {what}");
            });
        }
    }
}

#[test]
fn every_store_is_the_protocol() {
    let world = World::new();
    let config = Config { cases: 300, failure_persistence: None, ..Config::default() };
    let histories = prop::collection::vec(action(), 1..40);
    let outcome = TestRunner::new(config).run(&histories, |actions| {
        world.run(&actions);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
