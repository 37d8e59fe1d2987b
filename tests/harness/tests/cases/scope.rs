//! S: whose key it is, and for what.

use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::world::{BODY, KEY, payment, payment_of};
use oncegate_tests::{Gate, Policy, Reply, Request, Route, Upstream, World, case};

fn scoped_by(header: &'static str) -> impl FnOnce(&Upstream) -> Policy {
    move |upstream| {
        Policy::with(upstream).route(Route::guarded(OPERATION, PAYMENTS).scope_header(header))
    }
}

fn as_tenant(tenant: &str, request: Request) -> Request {
    request.header("X-Api-Key", tenant)
}

case!(on both,
    /// Two tenants with the same key and the same body are two operations, each with its answer.
    async fn s01_tenants_do_not_share_keys(store) {
        let world = World::start(store, scoped_by("X-Api-Key")).await;
        let a = world.send(as_tenant("tenant-a", payment(KEY))).await;
        let b = world.send(as_tenant("tenant-b", payment(KEY))).await;
        a.is_fresh(201);
        b.is_fresh(201);
        assert_ne!(a.text(), b.text(), "each has its own execution");
        world.send(as_tenant("tenant-a", payment(KEY))).await.is_replay_of(&a);
        world.send(as_tenant("tenant-b", payment(KEY))).await.is_replay_of(&b);
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// Identity may sit in a cookie; who has none is refused, not put in a bucket with all others.
    async fn s02_without_its_scope_a_request_is_refused(store) {
        let world = World::start(store, scoped_by("Cookie")).await;
        for session in ["session=alice", "session=bob"] {
            world.send(payment(KEY).header("Cookie", session)).await.is_fresh(201);
        }
        assert_eq!(world.upstream.runs(), 2);
        world.pay(KEY).await.is_problem(401, "scope-missing", "same-key");
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// Taking a key that another tenant is known to use does nothing to that tenant.
    async fn s03_a_key_cannot_be_squatted(store) {
        let world = World::start(store, scoped_by("X-Api-Key")).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let squatter =
            world.gateway.spawn_send(as_tenant("tenant-a", payment_of(KEY, "{\"amount\":1}")));
        world.upstream.until_runs(1).await;
        // While it runs: no 409, no 422. After it has finished: no replay.
        let honest = world.send(as_tenant("tenant-b", payment(KEY))).await;
        honest.is_fresh(201);
        gate.open();
        squatter.await.expect("the client lives").is_fresh(201);
        world.send(as_tenant("tenant-b", payment(KEY))).await.is_replay_of(&honest);
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// One key for an order and for its cancellation: the second is never given the first's answer.
    async fn s04_another_path_is_another_operation(store) {
        let world = World::start(store, |upstream| {
            Policy::with(upstream)
                .route(Route::guarded("create-order", "/orders"))
                .route(Route::guarded("cancel-order", "/orders/7/cancel"))
        })
        .await;
        let order = world.send(Request::post("/orders").key(KEY).json(BODY)).await;
        let cancel = world.send(Request::post("/orders/7/cancel").key(KEY).json(BODY)).await;
        order.is_fresh(201);
        cancel.is_fresh(201);
        let paths: Vec<_> =
            world.upstream.executions().iter().map(|run| run.path().to_owned()).collect();
        assert_eq!(paths, ["/orders", "/orders/7/cancel"]);
    }
);

case!(on both,
    /// The query is part of what was asked: another recipient under the same key is refused.
    async fn s06_another_query_is_a_mismatch(store) {
        let world = World::payments(store).await;
        let transfer = |to: &str| Request::post(&format!("{PAYMENTS}?to={to}")).key(KEY).json(BODY);
        let first = world.send(transfer("alice")).await;
        first.is_fresh(201);
        world.send(transfer("mallory")).await.is_mismatch();
        world.send(Request::post(PAYMENTS).key(KEY).json(BODY)).await.is_mismatch();
        world.send(transfer("alice")).await.is_replay_of(&first);
        assert_eq!(world.upstream.the_run().query(), Some("to=alice"));
    }
);

case!(on both,
    /// A key shared by every hop of one action is a separate operation on each route.
    async fn s12_operations_do_not_share_keys(store) {
        let world = World::start(store, |upstream| {
            Policy::payments(upstream).route(Route::guarded("create-receipt", "/v1/receipts"))
        })
        .await;
        let receipt = || Request::post("/v1/receipts").key(KEY).json(BODY);
        let paid = world.pay(KEY).await;
        let written = world.send(receipt()).await;
        paid.is_fresh(201);
        written.is_fresh(201);
        world.pay(KEY).await.is_replay_of(&paid);
        world.send(receipt()).await.is_replay_of(&written);
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// In a shared scope a stranger with the same key and another body is told so, and is never
    /// shown the first client's answer.
    async fn s09_a_shared_scope_never_replays_to_another_body(store) {
        let world = World::payments(store).await;
        world.upstream.next(Reply::status(201).json("{\"secret\":\"of the first client\"}"));
        let one = world.send(payment(KEY).header("X-Forwarded-For", "203.0.113.7")).await;
        one.is_fresh(201);
        let other = payment_of(KEY, "{\"amount\":9}").header("X-Forwarded-For", "203.0.113.7");
        let other = world.send(other).await;
        other.is_mismatch();
        assert!(!other.text().contains("secret"), "{}", other.text());
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// A raw credential as scope means what the documentation says: another token, another scope.
    async fn s10_a_refreshed_raw_token_is_another_scope(store) {
        let world = World::start(store, scoped_by("Authorization")).await;
        let with = |token: &str| payment(KEY).header("Authorization", format!("Bearer {token}"));
        let before = world.send(with("token-1")).await;
        before.is_fresh(201);
        world.send(with("token-2")).await.is_fresh(201);
        world.send(with("token-1")).await.is_replay_of(&before);
        assert_eq!(world.upstream.runs(), 2);
    }
);
