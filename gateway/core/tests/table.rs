//! The protocol's table, row by row, and every small case there is.

use std::time::Duration;

use oncegate_core::invariants::{Step, check, is_safe_to_send_again};
use oncegate_core::*;

const LEASE: Duration = Duration::from_micros(10);
const RETENTION: Duration = Duration::from_micros(100);
const T0: Timestamp = Timestamp(1_000);

fn owner(n: u8) -> OwnerToken {
    OwnerToken([n; 16])
}

fn fingerprint(n: u8) -> Fingerprint {
    Fingerprint { version: 1, digest: [n; 32] }
}

fn answer(status: u16) -> Answer {
    Answer { status, headers: vec![("a".into(), b"b".to_vec())], body: b"body".to_vec() }
}

fn claim(n: u8) -> Claim {
    Claim { owner: owner(n), fence: Fence(T0.0) }
}

fn record(state: State) -> Record {
    Record {
        fingerprint: fingerprint(1),
        claim: claim(1),
        reserved_at: T0,
        expires_at: T0.after(LEASE).after(RETENTION),
        state,
    }
}

fn every_state() -> Vec<State> {
    let lease_until = T0.after(LEASE);
    let mut states = vec![
        State::Claimed { lease_until },
        State::Dispatched { lease_until },
        State::Completed { at: T0, answer: answer(201) },
    ];
    for reason in TombstoneReason::ALL {
        states.push(State::Tombstone { at: T0, status: 200, reason });
    }
    for reason in UnknownReason::ALL {
        states.push(State::Unknown { at: T0, reason, answer: None });
        states.push(State::Unknown { at: T0, reason, answer: Some(answer(500)) });
    }
    states
}

fn reserve(by: u8, of: u8, phases: Phases, on_unknown: OnUnknown) -> Event {
    Event::Reserve(Reserve {
        owner: owner(by),
        fingerprint: fingerprint(of),
        phases,
        lease: LEASE,
        retention: RETENTION,
        on_unknown,
    })
}

fn every_event() -> Vec<Event> {
    let mut events = Vec::new();
    for by in [1, 2] {
        for of in [1, 2] {
            for phases in [Phases::One, Phases::Two] {
                for on_unknown in [OnUnknown::Hold, OnUnknown::Retry] {
                    events.push(reserve(by, of, phases, on_unknown));
                }
            }
        }
        for fence in [Fence(T0.0 - 1), Fence(T0.0)] {
            let claim = Claim { owner: owner(by), fence };
            events.push(Event::Dispatch(Dispatch { claim, lease: LEASE, retention: RETENTION }));
            events.push(Event::Renew(Renew { claim, lease: LEASE, retention: RETENTION }));
            for not_after in [T0, T0.after(RETENTION * 9)] {
                events.push(Event::Reassert(Reassert {
                    claim,
                    fingerprint: fingerprint(1),
                    lease: LEASE,
                    retention: RETENTION,
                    not_after,
                }));
            }
            for ending in [
                Ending::Completed(answer(200)),
                Ending::Tombstone { status: 200, reason: TombstoneReason::TooLarge },
                Ending::Unknown { reason: UnknownReason::ConnectionLost, answer: None },
            ] {
                events.push(Event::Finish(Finish {
                    claim,
                    fingerprint: fingerprint(1),
                    ending,
                    retention: RETENTION,
                }));
            }
            for fence in [None, Some(fence)] {
                events.push(Event::Release(Release { owner: owner(by), fence }));
            }
            for resolution in [Resolution::Done(answer(200)), Resolution::NeverHappened] {
                for fence in [None, Some(fence)] {
                    let resolution = resolution.clone();
                    events.push(Event::Resolve(Resolve {
                        fence,
                        resolution,
                        retention: RETENTION,
                    }));
                }
            }
        }
    }
    events
}

/// Before, at and after each moment that matters: lease end and record end.
fn every_moment() -> Vec<Timestamp> {
    let lease_end = T0.after(LEASE).0;
    let record_end = T0.after(LEASE).after(RETENTION).0;
    [T0.0, lease_end - 1, lease_end, lease_end + 1, record_end - 1, record_end, record_end + 1]
        .map(Timestamp)
        .to_vec()
}

#[test]
fn every_rule_holds_in_every_small_case() {
    let records: Vec<Option<Record>> =
        std::iter::once(None).chain(every_state().into_iter().map(|s| Some(record(s)))).collect();
    let mut steps = 0;
    for before in &records {
        for event in every_event() {
            for now in every_moment() {
                let (next, verdict) = transition(now, before.as_ref(), &event);
                let after = next.apply(before.clone());
                let first = Step {
                    now,
                    before: before.as_ref(),
                    event: &event,
                    after: after.as_ref(),
                    verdict: &verdict,
                };
                check(&first).unwrap_or_else(|broken| panic!("{broken}\n{first:#?}"));

                let (next, verdict) = transition(now, after.as_ref(), &event);
                let settled = next.apply(after.clone());
                let again = Step {
                    now,
                    before: after.as_ref(),
                    event: &event,
                    after: settled.as_ref(),
                    verdict: &verdict,
                };
                assert!(is_safe_to_send_again(&first, &again), "R7\n{first:#?}\n{again:#?}");
                steps += 1;
            }
        }
    }
    assert!(steps > 8_000, "only {steps} steps");
}

/// What the table of the protocol says, one row a line: state, event, moment, verdict, state after.
#[test]
fn the_table_of_the_protocol() {
    use OnUnknown::{Hold, Retry};
    use Phases::{One, Two};
    let lease_until = T0.after(LEASE);
    let valid = Timestamp(lease_until.0 - 1);
    let over = lease_until;
    let claimed = || Some(record(State::Claimed { lease_until }));
    let dispatched = || Some(record(State::Dispatched { lease_until }));
    let completed = || Some(record(State::Completed { at: T0, answer: answer(201) }));
    let tombstone = || {
        let reason = TombstoneReason::Streamed;
        Some(record(State::Tombstone { at: T0, status: 200, reason }))
    };
    let unknown = |reason| Some(record(State::Unknown { at: T0, reason, answer: None }));
    let lost = UnknownReason::ConnectionLost;
    let finish = |by| {
        Event::Finish(Finish {
            claim: claim(by),
            fingerprint: fingerprint(1),
            ending: Ending::Completed(answer(200)),
            retention: RETENTION,
        })
    };
    let renew = |by| Event::Renew(Renew { claim: claim(by), lease: LEASE, retention: RETENTION });
    let dispatch =
        |by| Event::Dispatch(Dispatch { claim: claim(by), lease: LEASE, retention: RETENTION });
    let release = |by| Event::Release(Release { owner: owner(by), fence: Some(Fence(T0.0)) });
    let resolve =
        |resolution| Event::Resolve(Resolve { fence: None, resolution, retention: RETENTION });
    type Row = (&'static str, Option<Record>, Event, Timestamp, &'static str, &'static str);
    let rows: Vec<Row> = vec![
        ("none, reserve", None, reserve(2, 1, One, Hold), valid, "Proceed", "dispatched"),
        (
            "none, reserve in two phases",
            None,
            reserve(2, 1, Two, Hold),
            valid,
            "Proceed",
            "claimed",
        ),
        (
            "other fingerprint, claimed",
            claimed(),
            reserve(2, 2, One, Retry),
            over,
            "Mismatch",
            "claimed",
        ),
        (
            "other fingerprint, same owner",
            dispatched(),
            reserve(1, 2, One, Hold),
            valid,
            "Mismatch",
            "dispatched",
        ),
        (
            "other fingerprint, completed",
            completed(),
            reserve(2, 2, One, Hold),
            valid,
            "Mismatch",
            "completed",
        ),
        (
            "other fingerprint, unknown",
            unknown(lost),
            reserve(2, 2, One, Retry),
            valid,
            "Mismatch",
            "unknown",
        ),
        (
            "same owner again, claimed",
            claimed(),
            reserve(1, 1, Two, Hold),
            valid,
            "Proceed",
            "claimed",
        ),
        (
            "same owner again, dispatched",
            dispatched(),
            reserve(1, 1, One, Hold),
            over,
            "Proceed",
            "dispatched",
        ),
        ("claimed, lease over", claimed(), reserve(2, 1, Two, Hold), over, "Proceed", "claimed"),
        ("claimed, lease valid", claimed(), reserve(2, 1, Two, Hold), valid, "Busy", "claimed"),
        (
            "dispatched, lease valid",
            dispatched(),
            reserve(2, 1, One, Retry),
            valid,
            "Busy",
            "dispatched",
        ),
        (
            "dispatched, lease over, hold",
            dispatched(),
            reserve(2, 1, One, Hold),
            over,
            "Unknown",
            "unknown",
        ),
        (
            "dispatched, lease over, retry",
            dispatched(),
            reserve(2, 1, One, Retry),
            over,
            "Proceed",
            "dispatched",
        ),
        (
            "unknown, retry",
            unknown(lost),
            reserve(2, 1, One, Retry),
            valid,
            "Proceed",
            "dispatched",
        ),
        ("completed", completed(), reserve(2, 1, One, Hold), valid, "Replay", "completed"),
        ("tombstone", tombstone(), reserve(2, 1, One, Retry), valid, "NotKept", "tombstone"),
        ("unknown, hold", unknown(lost), reserve(2, 1, One, Hold), valid, "Unknown", "unknown"),
        ("claimed, mine, dispatch", claimed(), dispatch(1), valid, "Go", "dispatched"),
        ("dispatch again", dispatched(), dispatch(1), valid, "Go", "dispatched"),
        ("dispatch by another", claimed(), dispatch(2), valid, "Lost", "claimed"),
        ("dispatch of nothing", None, dispatch(1), valid, "Lost", "none"),
        ("dispatched, mine, renew", dispatched(), renew(1), over, "Renewed", "dispatched"),
        ("renew by another", dispatched(), renew(2), valid, "Superseded", "dispatched"),
        ("renew of nothing", None, renew(1), valid, "Gone", "none"),
        (
            "renew after the lease was seen to end",
            unknown(UnknownReason::LeaseOver),
            renew(1),
            over,
            "Renewed",
            "dispatched",
        ),
        ("dispatched, mine, complete", dispatched(), finish(1), over, "Stored", "completed"),
        ("unknown, mine, late complete", unknown(lost), finish(1), over, "Stored", "completed"),
        ("completed by me, again", completed(), finish(1), valid, "Stored", "completed"),
        ("none, complete", None, finish(1), valid, "Restored", "completed"),
        ("complete by another", dispatched(), finish(2), valid, "Superseded", "dispatched"),
        ("release, claimed", claimed(), release(1), valid, "Released", "none"),
        ("release, dispatched", dispatched(), release(1), valid, "Released", "none"),
        ("release by another", dispatched(), release(2), valid, "Superseded", "dispatched"),
        ("release of a finished one", completed(), release(1), valid, "Superseded", "completed"),
        (
            "release of what was marked unknown",
            unknown(lost),
            release(1),
            valid,
            "Superseded",
            "unknown",
        ),
        ("release of nothing", None, release(1), valid, "Released", "none"),
        (
            "resolve: done",
            unknown(lost),
            resolve(Resolution::Done(answer(200))),
            valid,
            "Resolved",
            "completed",
        ),
        (
            "resolve: never happened",
            unknown(lost),
            resolve(Resolution::NeverHappened),
            valid,
            "Resolved",
            "none",
        ),
        (
            "resolve too early",
            dispatched(),
            resolve(Resolution::NeverHappened),
            valid,
            "MovedOn",
            "dispatched",
        ),
        (
            "resolve a finished one",
            completed(),
            resolve(Resolution::NeverHappened),
            over,
            "MovedOn",
            "completed",
        ),
    ];
    for (row, before, event, now, verdict_expected, state_expected) in rows {
        let (next, verdict) = transition(now, before.as_ref(), &event);
        let verdict = format!("{verdict:?}");
        let inner = verdict.split_once('(').map_or("", |(_, inner)| inner);
        assert!(inner.starts_with(verdict_expected), "{row}: {verdict}");
        let after = next.apply(before);
        let state = after.as_ref().map_or("none", |record| record.state_name().as_str());
        assert_eq!(state, state_expected, "{row}");
    }
}

#[test]
fn a_key_is_free_again_exactly_when_its_retention_ends() {
    let kept = record(State::Completed { at: T0, answer: answer(201) });
    let event = reserve(2, 1, Phases::One, OnUnknown::Hold);
    let at = |micros| transition(Timestamp(micros), Some(&kept), &event).1;
    let end = kept.expires_at.0;
    assert!(matches!(at(end - 1), Verdict::Reserve(ReserveVerdict::Replay { .. })));
    assert!(matches!(at(end), Verdict::Reserve(ReserveVerdict::Proceed { .. })));
}

#[test]
fn retention_counts_from_completion() {
    let running = record(State::Dispatched { lease_until: T0.after(LEASE) });
    let late = Timestamp(running.expires_at.0 - 1);
    let event = Event::Finish(Finish {
        claim: claim(1),
        fingerprint: fingerprint(1),
        ending: Ending::Completed(answer(200)),
        retention: RETENTION,
    });
    let after = transition(late, Some(&running), &event).0.apply(None).expect("a record");
    assert_eq!(after.expires_at, late.after(RETENTION));
    assert_eq!(after.reserved_at, T0, "the start of the execution is kept");
}
