//! D: the store.

use std::time::Duration;

use oncegate_tests::gateway::Launch;
use oncegate_tests::redis_wire::RedisWire;
use oncegate_tests::wait::until;
use oncegate_tests::world::{KEY, payment};
use oncegate_tests::{Gateway, Policy, Store, StoreKind, Upstream, World, case};

case!(on redis,
    /// Without its store a route refuses by default: the upstream is not called, and the client
    /// is told when to come back.
    async fn d01_without_a_store_a_route_refuses(store) {
        let mut world = World::payments(store).await;
        world.store.server().kill();
        let refused = world.pay(KEY).await;
        refused.is_problem(503, "store-unavailable", "same-key");
        assert!(refused.retry_after_s() >= 1);
        assert_eq!(world.upstream.runs(), 0);
        assert_eq!(world.gateway.metrics().await.outcome("store-error"), 1);
        world.store.server().restart();
        until("the gateway to find its store again", async || {
            let answer = world.pay(KEY).await;
            if answer.status == 201 { Some(()) } else { answer.is_problem(503, "store-unavailable", "same-key"); None }
        })
        .await;
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on redis,
    /// A route may prefer to go on without protection; then it says so to the client and counts it.
    async fn d01_a_route_may_forward_without_a_store(store) {
        let mut world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "on_store_error", "\"forward\"")
        })
        .await;
        world.store.server().kill();
        let answer = world.pay(KEY).await;
        assert_eq!((answer.status, answer.outcome()), (201, Some("unprotected")), "{answer:?}");
        assert_eq!(world.upstream.the_run().key(), Some(KEY));
        let metrics = world.gateway.metrics().await;
        assert_eq!(metrics.outcome("unprotected") + metrics.outcome("store-error"), 1, "{}", metrics.text);
    }
);

case!(on redis,
    /// A reservation whose confirmation was lost is still this request's own: it does not answer
    /// itself "in progress".
    async fn d02_a_lost_confirmation_is_asked_for_again(store) {
        let upstream = Upstream::start().await;
        let mut store = Store::start(store);
        let wire = RedisWire::before(store.server().port()).await;
        let gateway = Launch::on_url(&wire.url(), Policy::payments(&upstream)).start().await;
        gateway.send(payment("\"warm\"")).await.is_fresh(201);
        wire.lose_next_answer();
        let first = gateway.send(payment(KEY)).await;
        assert_eq!(wire.lost(), 1, "the test must have lost something");
        first.is_fresh(201);
        gateway.send(payment(KEY)).await.is_replay_of(&first);
        assert_eq!(upstream.runs(), 2);
    }
);

case!(on redis,
    /// Two gateways on one store are one: neither runs what the other has begun or finished.
    async fn d06_two_gateways_share_every_decision(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = Policy::payments(&upstream);
        let one = Gateway::start(&store, &policy).await;
        let two = Gateway::start(&store, &policy).await;
        let gate = oncegate_tests::Gate::new();
        upstream.next(oncegate_tests::Reply::counted(1).held_by(&gate));
        let first = one.spawn_send(payment(KEY));
        upstream.until_runs(1).await;
        two.send(payment(KEY)).await.is_in_progress();
        gate.open();
        let first = first.await.expect("the client lives");
        two.send(payment(KEY)).await.is_replay_of(first.is_fresh(201));
        assert_eq!(upstream.runs(), 1);
    }
);

case!(on both,
    /// A retention that cannot be meant is refused when the policy is loaded, with its field.
    async fn d08_an_impossible_retention_is_refused_at_load(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        for wrong in ["\"0s\"", "\"-1s\"", "\"soon\"", "\"1000000y\"", "-1", "\"\""] {
            let policy = Policy::payments_with(&upstream, "retention", wrong);
            let refusal = Launch::new(&store, policy).refused().await;
            assert_eq!(refusal.code, Some(2), "retention = {wrong}: {refusal:?}");
            assert!(refusal.log.contains("retention"), "retention = {wrong}: {refusal:?}");
        }
    }
);

case!(on both,
    /// An answer is replayed for the whole of its retention, counted from its completion, and
    /// afterwards the key is new.
    async fn d09_retention_ends_when_it_should(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "retention", "\"2s\"")
        })
        .await;
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        let second = until("the retention to end", async || {
            let answer = world.pay(KEY).await;
            if answer.outcome() == Some("replayed") {
                answer.is_replay_of(&first);
                return None;
            }
            Some(answer)
        })
        .await;
        second.is_fresh(201);
        let runs = world.upstream.executions();
        assert_eq!(runs.len(), 2);
        // The second may come no earlier than the retention, and no replay may have extended it.
        let apart = runs[1].at - runs[0].at;
        assert!(apart >= Duration::from_secs(2), "{apart:?}");
        assert!(apart < Duration::from_secs(4), "{apart:?}");
    }
);

case!(on redis,
    /// No copy in the gateway decides: what the store has lost is not replayed from memory.
    async fn d10_only_the_store_decides(store) {
        let world = World::payments(store).await;
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        world.pay(KEY).await.is_replay_of(&first);
        world.store.cli(&["FLUSHALL"]);
        world.pay(KEY).await.is_fresh(201);
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// A retention shorter than the client keeps retrying is refused, with that reason.
    async fn d13_a_retention_shorter_than_the_retries_is_refused(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let route = |retention: &str| {
            let route = oncegate_tests::Route::guarded("create-payment", "/v1/payments")
                .set("retention", retention)
                .set("client_retries_for", "\"24h\"");
            Policy::with(&upstream).route(route)
        };
        let refusal = Launch::new(&store, route("\"15m\"")).refused().await;
        assert_eq!(refusal.code, Some(2), "{refusal:?}");
        assert!(refusal.log.contains("client_retries_for"), "{refusal:?}");

        let gateway = Launch::new(&store, route("\"48h\"")).start().await;
        let first = gateway.send(payment(KEY)).await;
        assert!(first.is_fresh(201).header("Idempotency-Expires").is_some(), "{first:?}");
    }
);

/// The two stores are told apart by their address alone.
#[test]
fn a_store_is_named_by_its_url() {
    assert!(Store::start(StoreKind::Embedded).url().starts_with("embedded:"));
    assert!(Store::start(StoreKind::Redis).url().starts_with("redis://"));
}
