//! Permits on a real protocol with a store that stumbles: whatever happens to the task that
//! holds one, the key ends up where a retry is told the truth.

use oncegate_core::{Answer, Phases, Reserve, ReserveVerdict, State};
use oncegate_plugin_host::{Host, Limits};
use oncegate_policy::{Environment, Quick};
use oncegate_store::{Clock, Fault, FaultyStore, MemoryStore, Plan};

use super::*;
use crate::generation::Generation;

const LEASE: Duration = Duration::from_secs(30);
const IDENTITY: Identity = Identity([7; 32]);
const OWNER: OwnerToken = OwnerToken([1; 16]);
const FINGERPRINT: Fingerprint = Fingerprint { version: 1, digest: [3; 32] };

async fn gateway(plan: &Plan) -> Arc<Gateway> {
    let quick = Quick { upstream: "http://127.0.0.1:9".to_owned(), ..Quick::default() };
    let loaded = oncegate_policy::quick(&quick, &Environment::default()).expect("a policy");
    let settings = loaded.settings.clone();
    let host = Host::new(Limits::default()).expect("an engine");
    let generation = Generation::build(1, &host, loaded).await.expect("a generation");
    let memory = Arc::new(MemoryStore::new(Clock::wall()));
    let store = Arc::new(FaultyStore::new(memory, plan.clone()));
    Arc::new(Gateway::new(store, generation, &settings))
}

async fn reserved(gateway: &Arc<Gateway>) -> Reserved {
    let event = Reserve {
        owner: OWNER,
        fingerprint: FINGERPRINT,
        phases: Phases::One,
        lease: LEASE,
        retention: LEASE,
        on_unknown: oncegate_core::OnUnknown::Hold,
    };
    let verdict = gateway.store.reserve(&IDENTITY, event).await.expect("a verdict");
    let ReserveVerdict::Proceed { fence, now } = verdict else { panic!("{verdict:?}") };
    Reserved::new(Held {
        gateway: Arc::clone(gateway),
        operation: Operation::parse("pay").expect("an operation"),
        identity: IDENTITY,
        fingerprint: FINGERPRINT,
        claim: Claim { owner: OWNER, fence },
        lease: LEASE,
        retention: LEASE,
        lease_ends: Instant::now() + LEASE,
        call_ends: now.after(LEASE),
    })
}

fn completed() -> Ending {
    Ending::Completed(Answer { status: 201, headers: Vec::new(), body: b"ok".to_vec() })
}

/// The record when everything in the background has come to rest.
async fn settled(gateway: &Gateway) -> Option<State> {
    gateway.tasks.close();
    gateway.tasks.wait().await;
    assert_eq!(gateway.metrics.held.get(), 0, "no permit is left");
    gateway.store.peek(&IDENTITY).await.expect("a look").map(|record| record.state)
}

fn violations(gateway: &Gateway, kind: &str) -> bool {
    let line = format!("oncegate_violations_total{{reason=\"{kind}\"}} 1");
    gateway.metrics.render().contains(&line)
}

#[tokio::test]
async fn dropped_before_sending_the_key_is_given_back_and_counted() {
    let gateway = gateway(&Plan::default()).await;
    drop(reserved(&gateway).await);
    assert_eq!(settled(&gateway).await, None);
    assert!(violations(&gateway, "reserved-dropped"));
}

#[tokio::test]
async fn dropped_after_sending_the_key_is_unknown_and_counted() {
    let gateway = gateway(&Plan::default()).await;
    let permit = reserved(&gateway).await;
    let lease_ends = permit.held().lease_ends;
    drop(permit.dispatch(LEASE, lease_ends));
    let state = settled(&gateway).await.expect("a record");
    let State::Unknown { reason, .. } = state else { panic!("{state:?}") };
    assert_eq!(reason, UnknownReason::GatewayFailure);
    assert!(violations(&gateway, "dispatched-dropped"));
}

#[tokio::test]
async fn dropped_by_the_drain_deadline_the_reason_says_so() {
    let gateway = gateway(&Plan::default()).await;
    let permit = reserved(&gateway).await;
    let lease_ends = permit.held().lease_ends;
    let permit = permit.dispatch(LEASE, lease_ends);
    gateway.drain_over.cancel();
    drop(permit);
    let state = settled(&gateway).await.expect("a record");
    let State::Unknown { reason, .. } = state else { panic!("{state:?}") };
    assert_eq!(reason, UnknownReason::Drain);
    assert!(!violations(&gateway, "dispatched-dropped"), "a drain is no bug");
}

/// Whether the write was lost on its way or its answer was: it is sent again, and stored once.
#[tokio::test(start_paused = true)]
async fn an_ending_is_written_again_until_the_store_takes_it() {
    for fault in [Fault::Refused, Fault::LostBefore, Fault::LostAfter] {
        let plan = Plan::default();
        let gateway = gateway(&plan).await;
        let permit = reserved(&gateway).await;
        let lease_ends = permit.held().lease_ends;
        let permit = permit.dispatch(LEASE, lease_ends);
        plan.then([fault, fault]);
        assert_eq!(permit.finish(completed()).await, Written::Yes, "{fault:?}");
        let state = settled(&gateway).await.expect("a record");
        assert!(matches!(state, State::Completed { .. }), "{fault:?}: {state:?}");
    }
}

/// The client is not kept waiting for a store that is away; the ending is written all the same.
#[tokio::test(start_paused = true)]
async fn an_ending_that_takes_too_long_is_written_in_the_background() {
    let plan = Plan::default();
    let gateway = gateway(&plan).await;
    let permit = reserved(&gateway).await;
    let lease_ends = permit.held().lease_ends;
    let permit = permit.dispatch(LEASE, lease_ends);
    plan.then([Fault::Refused; 12]);
    assert_eq!(permit.finish(completed()).await, Written::NotYet);
    let state = settled(&gateway).await.expect("a record");
    assert!(matches!(state, State::Completed { .. }), "{state:?}");
}

/// A release whose answer was lost is sent again: a key that never ran does not stay blocked.
#[tokio::test(start_paused = true)]
async fn a_release_is_sent_again_until_the_store_takes_it() {
    let plan = Plan::default();
    let gateway = gateway(&plan).await;
    let permit = reserved(&gateway).await;
    plan.then([Fault::LostBefore, Fault::Refused]);
    permit.release().await;
    assert_eq!(settled(&gateway).await, None);
}
