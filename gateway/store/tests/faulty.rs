//! The clauses over the wrapper without faults, and what each fault does.

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use oncegate_core::*;
use oncegate_store::conformance::Subject;
use oncegate_store::{Certainty, Clock, Fault, FaultyStore, MemoryStore, Plan, Store};
use support::calls::{finish, id, proceed, replayed, reserve};

struct Wrapped {
    store: FaultyStore,
    inner: Arc<MemoryStore>,
    clock: Clock,
}

fn wrapped(plan: Plan) -> Wrapped {
    let clock = support::clock();
    let inner = Arc::new(MemoryStore::new(clock.clone()));
    Wrapped { store: FaultyStore::new(inner.clone(), plan), inner, clock }
}

impl Subject for Wrapped {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn pass(&self, span: Duration) {
        self.clock.pass(span);
    }

    fn plant<'a>(&'a self, id: &'a Identity, bytes: &'a [u8]) -> BoxFuture<'a, ()> {
        async move { self.inner.plant(id, bytes) }.boxed()
    }
}

async fn subject() -> Wrapped {
    wrapped(Plan::default())
}

oncegate_store::conformance!(subject);

#[tokio::test]
async fn each_fault_says_the_truth_about_its_certainty() {
    for (fault, certainty, applied) in [
        (Fault::Refused, Certainty::NotApplied, false),
        (Fault::LostBefore, Certainty::MaybeApplied, false),
        (Fault::LostAfter, Certainty::MaybeApplied, true),
    ] {
        let store = wrapped(Plan::of([fault])).store;
        let error = store.reserve(&id(1), reserve(1)).await.expect_err("a planned fault");
        assert_eq!(error.certainty(), certainty, "{fault:?}");
        let record = store.peek(&id(1)).await.expect("peeking is never disturbed");
        assert_eq!(record.is_some(), applied, "{fault:?}");
    }
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_may_be_sent_again() {
    let plan = Plan::of([Fault::LostAfter]);
    let store = wrapped(plan.clone()).store;
    store.reserve(&id(1), reserve(1)).await.expect_err("its answer is lost");
    let claim = proceed(&store, &id(1), 1).await;
    plan.then([Fault::LostAfter, Fault::LostBefore]);
    for _ in 0..2 {
        store.finish(&id(1), finish(claim, b"done")).await.expect_err("its answer is lost");
    }
    let told = store.finish(&id(1), finish(claim, b"done")).await.expect("no fault is left");
    assert_eq!(told, FinishVerdict::Stored);
    assert_eq!(replayed(&store, &id(1)).await, b"done");
}

#[tokio::test(start_paused = true)]
async fn a_delayed_call_goes_through_late() {
    let late = Duration::from_secs(3);
    let store = wrapped(Plan::of([Fault::Delayed(late)])).store;
    let start = tokio::time::Instant::now();
    proceed(&store, &id(1), 1).await;
    assert_eq!(start.elapsed(), late);
}
