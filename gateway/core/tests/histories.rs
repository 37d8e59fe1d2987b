//! Random histories of several owners over one key: messages are delayed, duplicated and
//! reordered, owners crash, time jumps. Every rule is checked after every step, and R1 is
//! counted over the whole history.

use std::time::Duration;

use oncegate_core::invariants::{Executions, Step, check};
use oncegate_core::*;
use proptest::prelude::*;

const LEASE: Duration = Duration::from_micros(50);
/// Longer than any history, so that nothing here is forgotten by expiry.
const RETENTION: Duration = Duration::from_secs(1_000);
const OWNERS: usize = 4;

#[derive(Clone, Debug)]
enum Action {
    /// An owner does the next sensible thing.
    Act(usize),
    /// An owner stops for good.
    Crash(usize),
    /// A message on the wire arrives (again, when the second member says so).
    Deliver(usize, bool),
    /// A message on the wire is lost.
    Lose(usize),
    /// Time passes.
    Pass(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    Idle,
    Reserving,
    /// Two-phase: waits for the go.
    Dispatching(Claim),
    /// Free to send.
    Granted(Claim),
    Sent(Claim),
    Done,
}

struct World {
    now: Timestamp,
    record: Option<Record>,
    owners: [Owner; OWNERS],
    phases: [Phases; OWNERS],
    wire: Vec<(usize, Event)>,
    executions: Executions,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => (0..OWNERS).prop_map(Action::Act),
        6 => (0usize..8, any::<bool>()).prop_map(|(n, again)| Action::Deliver(n, again)),
        1 => (0..OWNERS).prop_map(Action::Crash),
        1 => (0usize..8).prop_map(Action::Lose),
        3 => (0u64..120).prop_map(Action::Pass),
    ]
}

fn token(n: usize) -> OwnerToken {
    OwnerToken([n as u8; 16])
}

fn fingerprint() -> Fingerprint {
    Fingerprint { version: 1, digest: [7; 32] }
}

impl World {
    fn new(phases: [Phases; OWNERS]) -> Self {
        Self {
            now: Timestamp(1),
            record: None,
            owners: [Owner::Idle; OWNERS],
            phases,
            wire: Vec::new(),
            executions: Executions::default(),
        }
    }

    fn step(&mut self, action: Action) {
        match action {
            Action::Act(n) => self.act(n),
            Action::Crash(n) => self.owners[n] = Owner::Done,
            Action::Pass(micros) => self.now = Timestamp(self.now.0 + micros),
            Action::Lose(n) if !self.wire.is_empty() => {
                let n = n % self.wire.len();
                self.wire.remove(n);
            }
            Action::Deliver(n, again) if !self.wire.is_empty() => {
                let n = n % self.wire.len();
                let (from, event) = if again { self.wire[n].clone() } else { self.wire.remove(n) };
                self.deliver(from, event);
            }
            Action::Lose(_) | Action::Deliver(..) => {}
        }
    }

    fn act(&mut self, n: usize) {
        let reserve = Event::Reserve(Reserve {
            owner: token(n),
            fingerprint: fingerprint(),
            phases: self.phases[n],
            lease: LEASE,
            retention: RETENTION,
            on_unknown: OnUnknown::Hold,
        });
        match self.owners[n] {
            Owner::Idle => {
                self.owners[n] = Owner::Reserving;
                self.wire.push((n, reserve));
            }
            // Its answer is late: send it again with the same token.
            Owner::Reserving => self.wire.push((n, reserve)),
            Owner::Dispatching(claim) => {
                let event = Dispatch { claim, lease: LEASE, retention: RETENTION };
                self.wire.push((n, Event::Dispatch(event)));
            }
            Owner::Granted(claim) => {
                self.executions.executed(claim);
                self.owners[n] = Owner::Sent(claim);
            }
            Owner::Sent(claim) => {
                let event = Finish {
                    claim,
                    fingerprint: fingerprint(),
                    ending: Ending::Completed(Answer {
                        status: 200,
                        headers: Vec::new(),
                        body: claim.fence.0.to_be_bytes().to_vec(),
                    }),
                    retention: RETENTION,
                };
                self.wire.push((n, Event::Finish(event)));
                let renew = Renew { claim, lease: LEASE, retention: RETENTION };
                self.wire.push((n, Event::Renew(renew)));
            }
            Owner::Done => {}
        }
    }

    fn deliver(&mut self, from: usize, event: Event) {
        let before = self.record.clone();
        let (next, verdict) = transition(self.now, before.as_ref(), &event);
        self.record = next.apply(before.clone());
        let step = Step {
            now: self.now,
            before: before.as_ref(),
            event: &event,
            after: self.record.as_ref(),
            verdict: &verdict,
        };
        check(&step).unwrap_or_else(|broken| panic!("{broken}\n{step:#?}"));
        self.hear(from, verdict);
    }

    fn hear(&mut self, n: usize, verdict: Verdict) {
        match (self.owners[n], verdict) {
            (Owner::Reserving, Verdict::Reserve(ReserveVerdict::Proceed { fence, .. })) => {
                let claim = Claim { owner: token(n), fence };
                self.owners[n] = match self.phases[n] {
                    Phases::One => Owner::Granted(claim),
                    Phases::Two => Owner::Dispatching(claim),
                };
            }
            (Owner::Reserving, Verdict::Reserve(ReserveVerdict::Busy { .. })) => {}
            (Owner::Reserving, Verdict::Reserve(_)) => self.owners[n] = Owner::Done,
            (Owner::Dispatching(claim), Verdict::Dispatch(DispatchVerdict::Go)) => {
                self.owners[n] = Owner::Granted(claim);
            }
            (Owner::Dispatching(_), Verdict::Dispatch(DispatchVerdict::Lost)) => {
                self.owners[n] = Owner::Done;
            }
            (Owner::Sent(_), Verdict::Finish(_)) => self.owners[n] = Owner::Done,
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_history_executes_twice(
        two_phase in proptest::array::uniform4(any::<bool>()),
        actions in proptest::collection::vec(action(), 1..80),
    ) {
        let mut world = World::new(two_phase.map(|two| if two { Phases::Two } else { Phases::One }));
        for action in actions {
            world.step(action);
            prop_assert!(world.executions.count() <= 1, "R1: two reservations executed");
        }
    }

    /// With time only (no lost messages), a key that nobody executed becomes usable again: here
    /// the two-phase claim of a crashed owner.
    #[test]
    fn a_claim_of_a_dead_owner_heals(wait in 50u64..1_000) {
        let mut world = World::new([Phases::Two; OWNERS]);
        world.step(Action::Act(0));
        world.step(Action::Deliver(0, false));
        world.step(Action::Crash(0));
        world.step(Action::Pass(wait));
        world.step(Action::Act(1));
        world.step(Action::Deliver(0, false));
        prop_assert!(matches!(world.owners[1], Owner::Dispatching(_)));
    }
}

/// The histories must be able to fail: with the lease as permission to take over (the
/// commonest design) two owners execute.
#[test]
fn taking_over_by_lease_would_be_found() {
    let mut record = None;
    let mut executions = Executions::default();
    for (n, now) in [(1, 1), (2, 1 + 60)] {
        let event = Event::Reserve(Reserve {
            owner: token(n),
            fingerprint: fingerprint(),
            phases: Phases::One,
            lease: LEASE,
            retention: RETENTION,
            on_unknown: OnUnknown::Retry,
        });
        let (next, verdict) = transition(Timestamp(now), record.as_ref(), &event);
        record = next.apply(record);
        if let Verdict::Reserve(ReserveVerdict::Proceed { fence, .. }) = verdict {
            executions.executed(Claim { owner: token(n), fence });
        }
    }
    assert_eq!(executions.count(), 2, "the counter sees a second execution");
}
