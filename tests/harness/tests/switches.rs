//! What a route may switch: waiting callers, two phases, running an unknown end again, the fence.

use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::upstream::End;
use oncegate_tests::world::{KEY, payment};
use oncegate_tests::{Gate, Policy, Reply, Request, Route, World, case};

case!(on both,
    /// A second caller that waits gets the first one's answer as soon as it is on record.
    async fn a_waiting_caller_gets_the_first_answer(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "in_flight", "{ wait = \"20s\" }")
        })
        .await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        let waiting: Vec<_> = (0..5).map(|_| world.gateway.spawn_send(payment(KEY))).collect();
        gate.open();
        let first = first.await.expect("the client lives");
        for waiting in waiting {
            waiting.await.expect("the client lives").is_replay_of(first.is_fresh(201));
        }
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// Patience ends: then the answer is "in progress", as on any other route.
    async fn a_waiting_caller_is_told_in_progress_at_its_deadline(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "in_flight", "{ wait = \"100ms\" }")
        })
        .await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        world.pay(KEY).await.is_in_progress();
        gate.open();
        first.await.expect("the client lives").is_fresh(201);
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// The first attempt was declared not executed: one of the waiting callers runs it, once.
    async fn a_waiting_caller_takes_over_a_released_key(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "in_flight", "{ wait = \"20s\" }")
        })
        .await;
        let gate = Gate::new();
        world.upstream.next(Reply::status(503).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        let waiting: Vec<_> = (0..5).map(|_| world.gateway.spawn_send(payment(KEY))).collect();
        gate.open();
        assert_eq!(first.await.expect("the client lives").outcome(), Some("released"));
        let mut fresh = 0;
        for waiting in waiting {
            let answer = waiting.await.expect("the client lives");
            assert_eq!(answer.status, 201, "{answer:?}");
            fresh += usize::from(answer.outcome() == Some("fresh"));
        }
        assert_eq!(fresh, 1);
        assert_eq!(world.upstream.runs(), 2, "the refused attempt and one more");
    }
);

case!(on both,
    /// Two phases cost a command more and change nothing that a client sees.
    async fn two_phases_run_once_and_replay(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "two_phase", "true")
        })
        .await;
        let first = world.pay(KEY).await;
        world.pay(KEY).await.is_replay_of(first.is_fresh(201));
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// Where the upstream honours the key, an unknown end may run again: under a higher fence, so
    /// that the upstream can refuse the older attempt.
    async fn an_unknown_end_runs_again_where_the_route_opts_in(store) {
        let world = World::start(store, |upstream| {
            let route = Route::guarded(OPERATION, PAYMENTS)
                .set("on_unknown", "\"retry\"")
                .set("forward_fence", "true");
            Policy::with(upstream).route(route)
        })
        .await;
        world.upstream.next(Reply::nothing(End::Reset));
        assert_eq!(world.pay(KEY).await.outcome(), Some("unknown"));
        let second = world.pay(KEY).await;
        second.is_fresh(201);
        world.pay(KEY).await.is_replay_of(&second);
        let fences: Vec<u64> = world
            .upstream
            .executions()
            .iter()
            .map(|run| run.fence().expect("a fence").parse().expect("a number"))
            .collect();
        assert_eq!(fences.len(), 2, "{fences:?}");
        assert!(fences[0] < fences[1], "{fences:?}");
    }
);

case!(on both,
    /// A policy that only speaks of POST hides neither a browser's preflight nor a read from the
    /// API, and keeps no record of them, key or not.
    async fn what_only_reads_passes_by_a_guarded_route(store) {
        let world = World::payments(store).await;
        world.pay(KEY).await.is_fresh(201);
        let preflight = Request::new("OPTIONS", PAYMENTS)
            .header("Origin", "https://shop.example")
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "idempotency-key");
        for request in [preflight, Request::get(PAYMENTS).key(KEY), Request::new("HEAD", PAYMENTS)] {
            let before = world.upstream.runs();
            for round in 1..=2 {
                let answer = world.send(request.clone()).await;
                assert_eq!((answer.status, answer.outcome()), (201, None), "{answer:?}");
                assert_eq!(world.upstream.runs(), before + round);
            }
        }
        let unlisted = world.send(Request::new("DELETE", PAYMENTS).key(KEY)).await;
        unlisted.is_problem(404, "no-route", "never");
    }
);

case!(on both,
    /// The fence is nobody's business where the route does not say so, and no client sets it.
    async fn no_fence_goes_upstream_by_default(store) {
        let world = World::payments(store).await;
        world.send(payment(KEY).header("Idempotency-Fence", "7")).await.is_fresh(201);
        assert_eq!(world.upstream.the_run().fence(), None);
    }
);
