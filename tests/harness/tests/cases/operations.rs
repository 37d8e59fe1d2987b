//! O: operation and plugins.

use std::time::{Duration, Instant};

use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::upstream::End;
use oncegate_tests::wait::until;
use oncegate_tests::world::{BODY, KEY, payment, payment_of};
use oncegate_tests::{
    Gate, Gateway, Policy, Reply, Request, Route, Store, Upstream, World, case, guests,
};

case!(on both,
    /// Every request ends in exactly one counted outcome, whatever became of it.
    async fn o01_every_request_has_one_outcome(store) {
        let world = World::start(store, |upstream| {
            let optional = Route::guarded("optional", "/v1/optional")
                .set("missing_key", "\"forward\"");
            Policy::payments(upstream).route(optional)
        })
        .await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        world.pay(KEY).await.is_in_progress();
        gate.open();
        first.await.expect("the client lives").is_fresh(201);
        for _ in 0..3 {
            assert_eq!(world.pay(KEY).await.outcome(), Some("replayed"));
        }
        world.send(payment_of(KEY, "{}")).await.is_mismatch();
        world.pay("\"").await.is_invalid_key();
        world.send(Request::post("/v1/optional").json(BODY)).await;
        world.upstream.next(Reply::nothing(End::Close));
        world.pay("\"lost\"").await.is_ambiguous_failure();
        world.pay("\"lost\"").await.is_unknown();
        world.upstream.next(Reply::status(503));
        assert_eq!(world.pay("\"busy\"").await.status, 503);

        let metrics = until("all eleven requests to be counted", async || {
            let metrics = world.gateway.metrics().await;
            (metrics.requests() >= 11).then_some(metrics)
        })
        .await;
        let expected = [
            ("fresh", 1),
            ("in-progress", 1),
            ("replayed", 3),
            ("mismatch", 1),
            ("invalid", 1),
            ("unprotected", 1),
            ("unknown", 2),
            ("released", 1),
        ];
        for (outcome, count) in expected {
            assert_eq!(metrics.outcome(outcome), count, "{outcome}\n{}", metrics.text);
        }
        assert_eq!(metrics.requests(), 11, "{}", metrics.text);
        let optional = [("operation", "optional")];
        assert_eq!(metrics.sum("oncegate_requests_total", &optional), 1);
    }
);

case!(on both,
    /// A policy or a plugin that is broken changes nothing: the old one serves on, the reason is
    /// visible, and nothing runs unprotected.
    async fn o03_a_broken_reload_changes_nothing(store) {
        let world = World::payments(store).await;
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        let generation = world.gateway.generation().await;
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let garbage = guests::write(directory.path(), "garbage.wasm", b"not a component");
        let good = || Policy::payments(&world.upstream);
        let broken = [
            ("retention", Policy::payments_with(&world.upstream, "retention", "\"0s\"")),
            ("no_such_field", Policy::payments_with(&world.upstream, "no_such_field", "1")),
            ("garbage.wasm", good().plugin("broken", &garbage.display().to_string(), "{}")),
        ];
        for (reason, policy) in broken {
            world.gateway.reload_refused(policy, reason).await;
            world.gateway.until_logged(reason).await;
            assert_eq!(world.gateway.generation().await, generation);
            assert!(world.gateway.is_ready().await, "the old policy serves");
            world.pay(KEY).await.is_replay_of(&first);
            let keyless = world.send(Request::post(PAYMENTS).json(BODY)).await;
            keyless.is_problem(400, "key-missing", "new-key");
        }
        world.gateway.reload(good().route(Route::guarded("create-receipt", "/v1/receipts"))).await;
        assert_eq!(world.gateway.status().await["last_reload"]["ok"], true);
        assert_eq!(world.upstream.runs(), 1);
    }
);

/// A plugin that misbehaves on requests with `X-Hostile`, before the one that reads the key.
fn hostile(upstream: &Upstream, file: &str, behaviour: &str, on_error: &str) -> Policy {
    let config = format!("{{ behaviour = {behaviour:?}, when_header = \"x-hostile\" }}");
    let route = Route::guarded(OPERATION, PAYMENTS)
        .set("key", "[\"hostile\", \"client-key\"]")
        .set("on_plugin_error", &format!("{on_error:?}"));
    Policy::with(upstream).plugin("hostile", file, &config).route(route)
}

/// Longer than any plugin may take, and far shorter than a loop would.
const BOUND: Duration = Duration::from_secs(5);

case!(on both,
    /// A plugin that loops, hoards memory or traps costs its own request an answer, within bounded
    /// time and memory, and no other request anything.
    async fn o04_a_hostile_plugin_is_bounded(store) {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = guests::write(directory.path(), "hostile.wasm", guests::hostile());
        let file = file.display().to_string();
        for behaviour in ["loop", "memory", "trap"] {
            let upstream = Upstream::start().await;
            let store = Store::start(store);
            let gateway = Gateway::start(&store, hostile(&upstream, &file, behaviour, "reject")).await;
            gateway.send(payment("\"warm\"")).await.is_fresh(201);
            let before = gateway.memory_bytes();
            for _ in 0..3 {
                let begun = Instant::now();
                let refused = gateway.send(payment(KEY).header("X-Hostile", "1")).await;
                refused.is_problem(500, "plugin-failed", "same-key");
                assert!(begun.elapsed() < BOUND, "{behaviour}: {:?}", begun.elapsed());
            }
            let grown = gateway.memory_bytes().saturating_sub(before);
            assert!(grown < 256 * 1024 * 1024, "{behaviour}: grown by {grown} bytes");
            assert_eq!(upstream.runs(), 1, "{behaviour}");
            assert_eq!(gateway.metrics().await.outcome("plugin-error"), 3, "{behaviour}");
            // The key was never reserved, and the plugin harms nobody else.
            gateway.send(payment(KEY)).await.is_fresh(201);
        }
    }
);

case!(on both,
    /// A route may go on without a plugin that fails: to the next one, or unprotected and counted.
    async fn o04_a_route_may_go_on_without_its_plugin(store) {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = guests::write(directory.path(), "hostile.wasm", guests::hostile());
        let file = file.display().to_string();
        let attack = || payment(KEY).header("X-Hostile", "1");

        let world = World::start(store, |up| hostile(up, &file, "trap", "next")).await;
        let first = world.send(attack()).await;
        world.send(attack()).await.is_replay_of(first.is_fresh(201));
        assert_eq!(world.upstream.runs(), 1);

        let world = World::start(store, |up| hostile(up, &file, "trap", "forward")).await;
        let answer = world.send(attack()).await;
        assert_eq!((answer.status, answer.outcome()), (201, Some("unprotected")), "{answer:?}");
        assert_eq!(world.upstream.runs(), 1);
        assert_eq!(world.gateway.metrics().await.requests(), 1);
    }
);
