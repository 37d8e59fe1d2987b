//! N: several hops.

use oncegate_tests::gateway::Launch;
use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::world::{BODY, KEY, payment};
use oncegate_tests::{Gate, Policy, Reply, Request, Route, Store, Upstream, World, case};

case!(on redis,
    /// Two attempts at two hops are four executions without a key, two with a key per attempt, and
    /// one with a key per intent.
    async fn n01_attempts_multiply_and_keys_do_not(store) {
        assert_eq!(store, oncegate_tests::StoreKind::Redis);
        let report = oncegate_tests::chain::run().await.expect("the experiment runs");
        assert_eq!(report.charges(), [4, 2, 1, 1], "{report}");
    }
);

case!(on both,
    /// The upstream receives the key once, in the bytes the client wrote.
    async fn n02_the_key_goes_upstream_once_and_unchanged(store) {
        let world = World::payments(store).await;
        for key in [KEY, "bare-key", "\"with blanks\"", "\"p\";a=1"] {
            world.pay(key).await.is_fresh(201);
            let run = world.upstream.executions().pop().expect("an execution");
            assert_eq!(run.headers.all("Idempotency-Key"), [key.as_bytes()], "{run:?}");
        }
    }
);

case!(on both,
    /// A derived key goes upstream as well, once, the same for every attempt and another one for
    /// another request.
    async fn n02_a_derived_key_goes_upstream(store) {
        let world = World::start(store, |upstream| {
            let route = Route::guarded(OPERATION, PAYMENTS)
                .set("key", "[\"body\"]")
                .set("settle", "{ release = [503] }");
            Policy::with(upstream).fingerprint("body", &["method", "path", "body"]).route(route)
        })
        .await;
        let keyless = |body: &str| Request::post(PAYMENTS).json(body);
        world.upstream.next(Reply::status(503));
        assert_eq!(world.send(keyless(BODY)).await.status, 503);
        world.send(keyless(BODY)).await.is_fresh(201);
        world.send(keyless("{}")).await.is_fresh(201);
        let keys: Vec<_> = world
            .upstream
            .executions()
            .iter()
            .map(|run| run.key().expect("a derived key").to_owned())
            .collect();
        assert_eq!(keys[0], keys[1], "two attempts, one intent");
        assert_ne!(keys[0], keys[2], "two intents");
    }
);

case!(on both,
    /// A connection that could not be made is tried again at the next endpoint under the same key,
    /// and counts as one attempt.
    async fn n04_a_failed_connection_is_tried_again_under_the_same_key(store) {
        let refusing = Upstream::shut();
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let endpoints = [refusing.url(), upstream.url()];
        let policy = Policy::new()
            .upstream("payments", &[&endpoints[0], &endpoints[1]])
            .plugin("client-key", "builtin:header-key", "{ header = \"Idempotency-Key\", required = false }")
            .route(Route::guarded(OPERATION, PAYMENTS));
        let gateway = Launch::new(&store, policy).start().await;
        for number in 1..=6 {
            let key = format!("\"attempt-{number}\"");
            gateway.send(payment(&key)).await.is_fresh(201);
            let runs = upstream.executions();
            assert_eq!(runs.len(), number);
            assert_eq!(runs[number - 1].key(), Some(key.as_str()));
        }
    }
);

case!(on both,
    /// A pooled connection that the upstream has closed is no failure: the call goes out again on
    /// a new one, and runs once.
    async fn n04_a_dead_pooled_connection_is_replaced(store) {
        let world = World::payments(store).await;
        world.upstream.always(|execution| Reply::counted(execution.run).closing());
        for number in 1..=10 {
            world.pay(format!("\"pooled-{number}\"")).await.is_fresh(201);
            assert_eq!(world.upstream.runs(), number);
        }
    }
);

case!(on redis,
    /// Two gateways in a row that see the same header do not block each other, and what the outer
    /// or the inner one says in flight reaches the client unchanged.
    async fn n05_two_gateways_in_a_row_do_not_block_each_other(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let inner = Launch::new(&store, Policy::payments(&upstream)).namespace("inner").start().await;
        let outer = Policy::new()
            .upstream("payments", &[&inner.url()])
            .plugin("client-key", "builtin:header-key", "{ header = \"Idempotency-Key\", required = false }")
            .route(Route::guarded(OPERATION, PAYMENTS));
        let outer = Launch::new(&store, outer).namespace("outer").start().await;

        let gate = Gate::new();
        upstream.next(Reply::counted(1).held_by(&gate));
        let first = outer.spawn_send(payment(KEY));
        upstream.until_runs(1).await;
        outer.send(payment(KEY)).await.is_in_progress();
        inner.send(payment(KEY)).await.is_in_progress();
        gate.open();
        let first = first.await.expect("the client lives");
        first.is_fresh(201);
        outer.send(payment(KEY)).await.is_replay_of(&first);
        assert_eq!(upstream.the_run().key(), Some(KEY));
    }
);
