//! R: which answers are stored.

use oncegate_tests::policy::PAYMENTS;
use oncegate_tests::world::{BODY, KEY, payment, payment_of};
use oncegate_tests::{Gateway, Policy, Reply, Request, Store, Upstream, World, case};

case!(on both,
    /// A replay has the status and the headers of the first answer, not merely its body.
    async fn r01_a_replay_keeps_status_and_headers(store) {
        let world = World::payments(store).await;
        world.upstream.next(
            Reply::status(201)
                .header("Location", "/v1/payments/7")
                .header("X-Tag", "one")
                .header("X-Tag", "two")
                .json("{\"id\":7}"),
        );
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        let replay = world.pay(KEY).await;
        replay.is_replay_of(&first);
        assert_eq!(replay.header("Location"), Some("/v1/payments/7"));
        assert_eq!(replay.headers.all("X-Tag"), [b"one", b"two"]);
        assert_eq!(replay.header("Content-Type"), Some("application/json"));
    }
);

case!(on both,
    /// By default an error of the client is a result: the same key gives it again.
    async fn r03_client_errors_are_stored_by_default(store) {
        let world = World::payments(store).await;
        for status in [400, 404, 409] {
            let key = format!("\"status-{status}\"");
            world.upstream.next(Reply::status(status).json("{\"error\":\"from the upstream\"}"));
            let first = world.pay(&key).await;
            first.is_fresh(status);
            world.pay(&key).await.is_replay_of(&first);
        }
        assert_eq!(world.upstream.runs(), 3);
    }
);

case!(on both,
    /// A policy can leave such an error unstored, so that the same key works once it is repaired.
    async fn r03_client_errors_can_be_released(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "settle", "{ release = [400, 503] }")
        })
        .await;
        world.upstream.next(Reply::status(400).json("{\"error\":\"wrong code\"}"));
        let refused = world.pay(KEY).await;
        assert_eq!((refused.status, refused.outcome()), (400, Some("released")), "{refused:?}");
        world.pay(KEY).await.is_fresh(201);
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// "Who are you" is not a result: after signing in, the same key runs.
    async fn r05_refused_credentials_are_not_stored(store) {
        let world = World::payments(store).await;
        for status in [401, 403] {
            let key = format!("\"status-{status}\"");
            world.upstream.next(Reply::status(status).json("{\"error\":\"who are you\"}"));
            let refused = world.pay(&key).await;
            assert_eq!((refused.status, refused.outcome()), (status, Some("released")));
            world.pay(&key).await.is_fresh(201);
        }
        assert_eq!(world.upstream.runs(), 4);
    }
);

case!(on both,
    /// A refusal for want of capacity is not pinned: the same key runs once the upstream recovers.
    async fn r06_a_temporary_refusal_is_not_pinned(store) {
        let world = World::payments(store).await;
        for status in [408, 421, 425, 429, 501, 503] {
            let key = format!("\"status-{status}\"");
            world.upstream.next(Reply::status(status).header("Retry-After", "1"));
            let refused = world.pay(&key).await;
            assert_eq!((refused.status, refused.outcome()), (status, Some("released")));
            assert_eq!(refused.header("Retry-After"), Some("1"));
            world.pay(&key).await.is_fresh(201);
        }
        assert_eq!(world.upstream.runs(), 12);
    }
);

case!(on both,
    /// Where the upstream promises that a 500 means "nothing happened", the policy can say so.
    async fn r06_a_500_can_be_released_by_policy(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "settle", "{ release = [500] }")
        })
        .await;
        world.upstream.next(Reply::status(500).json("{\"error\":\"rolled back\"}"));
        let failed = world.pay(KEY).await;
        assert_eq!((failed.status, failed.outcome()), (500, Some("released")), "{failed:?}");
        world.pay(KEY).await.is_fresh(201);
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// A server error after the write may have done the work: it is held as unknown, the retry is
    /// shown the same answer, marked, and nothing runs again.
    async fn r07_a_server_error_is_unknown(store) {
        let world = World::payments(store).await;
        for (number, status) in [500, 502, 504, 507].into_iter().enumerate() {
            let key = format!("\"status-{status}\"");
            world.upstream.next(Reply::status(status).json("{\"error\":\"after the write\"}"));
            let first = world.pay(&key).await;
            assert_eq!((first.status, first.outcome()), (status, Some("unknown")), "{first:?}");
            let retry = world.pay(&key).await;
            assert_eq!((retry.status, retry.outcome()), (status, Some("unknown")), "{retry:?}");
            assert_eq!(retry.text(), first.text());
            assert_eq!(world.upstream.runs(), number + 1);
        }
    }
);

case!(on both,
    /// What the gateway answers in its own name is never stored as the operation's answer.
    async fn r08_the_gateways_own_answers_are_not_stored(store) {
        let mut upstream = Upstream::shut();
        let store = Store::start(store);
        let gateway = Gateway::start(&store, Policy::payments(&upstream)).await;

        gateway.send(payment("\"down\"")).await
            .is_problem(502, "upstream-unreachable", "same-key");
        upstream.open();
        let first = gateway.send(payment("\"down\"")).await;
        first.is_fresh(201);

        let huge = Request::post(PAYMENTS).key("\"huge\"").body(vec![b'x'; 1024 * 1024 + 1]);
        gateway.send(huge).await.is_problem(413, "body-too-large", "never");
        gateway.send(payment("\"huge\"")).await.is_fresh(201);

        gateway.send(payment_of("\"down\"", "{}")).await.is_mismatch();
        gateway.send(payment("\"down\"")).await.is_replay_of(&first);
        assert_eq!(upstream.runs(), 2);
    }
);

case!(on both,
    /// An upgrade cannot be repeated, so a guarded route refuses it before anything is reserved.
    async fn r09_an_upgrade_is_refused_on_a_guarded_route(store) {
        let world = World::payments(store).await;
        let upgrade = Request::post(PAYMENTS)
            .key(KEY)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .json(BODY);
        assert_eq!(world.send(upgrade).await.status, 501);
        assert_eq!(world.upstream.runs(), 0);
        world.pay(KEY).await.is_fresh(201);
    }
);

case!(on both,
    /// An answer with trailers reaches its client, and a retry neither runs again nor gets half.
    async fn r09_an_answer_with_trailers_is_given_but_not_kept(store) {
        let world = World::payments(store).await;
        world.upstream.next(
            Reply::status(200)
                .header("Content-Type", "application/grpc")
                .header("Trailer", "grpc-status")
                .body("frame")
                .trailer("grpc-status", "0"),
        );
        let first = world.send(payment(KEY).header("TE", "trailers")).await;
        assert_eq!((first.status, first.text().as_str()), (200, "frame"), "{first:?}");
        world.pay(KEY).await.is_problem(409, "answer-not-kept", "never");
        assert_eq!(world.upstream.runs(), 1);
    }
);
