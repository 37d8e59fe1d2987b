//! M: methods.

use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::world::{KEY, payment};
use oncegate_tests::{Gate, Policy, Reply, Request, Route, Upstream, World, case};

/// The guarded route without a list of methods, so that safe ones take it too.
fn any_method(upstream: &Upstream) -> Policy {
    let matched = format!("{{ path = {PAYMENTS:?} }}");
    Policy::with(upstream).route(Route::guarded(OPERATION, PAYMENTS).set("match", &matched))
}

case!(on both,
    /// A safe method is forwarded each time, key or no key, and leaves the key unused.
    async fn m01_safe_methods_are_never_reserved_nor_replayed(store) {
        let world = World::start(store, any_method).await;
        for method in ["GET", "HEAD", "OPTIONS"] {
            for _ in 0..2 {
                let answer = world.send(Request::new(method, PAYMENTS).key(KEY)).await;
                assert_eq!(answer.status, 201, "{method}: {answer:?}");
                assert!(!answer.headers.has("Idempotent-Replayed"), "{method}: {answer:?}");
            }
        }
        assert_eq!(world.upstream.runs(), 6);
        world.pay(KEY).await.is_fresh(201);
        assert_eq!(world.upstream.runs(), 7);
    }
);

case!(on both,
    /// A safe method asks the store nothing: a GET is served while its record is being made.
    async fn m01_a_get_is_served_while_the_post_still_runs(store) {
        let world = World::start(store, any_method).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let post = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        assert_eq!(world.send(Request::get(PAYMENTS).key(KEY)).await.status, 201);
        gate.open();
        post.await.expect("the client lives").is_fresh(201);
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// A browser's preflight reaches the upstream as it is, and its answer the browser.
    async fn m03_a_preflight_passes_without_a_record(store) {
        let world = World::start(store, any_method).await;
        world.upstream.next(
            Reply::status(204)
                .header("Access-Control-Allow-Origin", "https://shop.example")
                .header("Access-Control-Allow-Headers", "idempotency-key"),
        );
        let preflight = Request::new("OPTIONS", PAYMENTS)
            .header("Origin", "https://shop.example")
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "content-type,idempotency-key");
        let answer = world.send(preflight).await;
        assert_eq!(answer.status, 204, "{answer:?}");
        assert_eq!(answer.header("Access-Control-Allow-Headers"), Some("idempotency-key"));
        let seen = world.upstream.the_run();
        assert_eq!(
            seen.headers.one("Access-Control-Request-Headers"),
            Some("content-type,idempotency-key")
        );
        world.pay(KEY).await.is_fresh(201);
    }
);
