//! H: headers of a replay.

use oncegate_tests::http1::Framing;
use oncegate_tests::world::{KEY, payment};
use oncegate_tests::{Answer, Reply, World, case};

/// Names of the answer's header lines that say something about one connection only.
const HOP_BY_HOP: &[&str] =
    &["Keep-Alive", "Transfer-Encoding", "Proxy-Connection", "Trailer", "Upgrade", "X-Per-Hop"];

async fn first_and_replay(world: &World, reply: Reply) -> (Answer, Answer) {
    world.upstream.next(reply);
    let first = world.pay(KEY).await;
    let replay = world.pay(KEY).await;
    replay.is_replay_of(first.is_fresh(first.status));
    assert_eq!(world.upstream.runs(), 1);
    (first, replay)
}

case!(on both,
    /// A session belongs to one moment: the first answer sets its cookies, a replay sets none.
    async fn h01_cookies_are_not_replayed(store) {
        let world = World::payments(store).await;
        let reply = Reply::counted(1)
            .header("Set-Cookie", "session=s1; HttpOnly")
            .header("Set-Cookie", "csrf=c1");
        let (first, replay) = first_and_replay(&world, reply).await;
        let cookies: [&[u8]; 2] = [b"session=s1; HttpOnly", b"csrf=c1"];
        assert_eq!(first.headers.all("Set-Cookie"), cookies);
        assert!(!replay.headers.has("Set-Cookie"), "{replay:?}");
    }
);

case!(on both,
    /// What concerns the connection to the upstream reaches neither the client nor the record.
    async fn h03_hop_by_hop_headers_are_neither_forwarded_nor_replayed(store) {
        let world = World::payments(store).await;
        let reply = Reply::status(200)
            .header("Connection", "keep-alive, X-Per-Hop")
            .header("Keep-Alive", "timeout=5")
            .header("X-Per-Hop", "1")
            .header("X-End-To-End", "1")
            .json("{\"run\":1}")
            .chunked();
        let (first, replay) = first_and_replay(&world, reply).await;
        for answer in [&first, &replay] {
            assert_eq!(answer.header("X-End-To-End"), Some("1"));
            for name in HOP_BY_HOP.iter().filter(|name| **name != "Transfer-Encoding") {
                assert!(!answer.headers.has(name), "{name}: {answer:?}");
            }
        }
        assert!(!replay.headers.has("Transfer-Encoding"), "{replay:?}");
    }
);

case!(on both,
    /// Headers that speak of one exchange are not repeated as if they spoke of another.
    async fn h04_headers_of_one_exchange_are_not_replayed(store) {
        let world = World::payments(store).await;
        let old = "Tue, 01 Feb 2000 00:00:00 GMT";
        let reply = Reply::counted(1)
            .header("Date", old)
            .header("Server", "payments/1.0")
            .header("X-Request-Id", "request-1")
            .header("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .header("RateLimit-Remaining", "41")
            .header("X-RateLimit-Remaining", "41");
        let (_, replay) = first_and_replay(&world, reply).await;
        assert_ne!(replay.header("Date"), Some(old), "the date of another day");
        for name in ["X-Request-Id", "Traceparent"] {
            assert!(
                replay.header(name).is_none_or(|value| !value.contains("request-1") && !value.contains("b7ad6b7169203331")),
                "{name}: {replay:?}"
            );
        }
        for name in ["RateLimit-Remaining", "X-RateLimit-Remaining"] {
            assert!(!replay.headers.has(name), "{name}: {replay:?}");
        }
        assert_ne!(replay.header("Server"), Some("payments/1.0"));
    }
);

case!(on both,
    /// However the first answer was framed, a replay is framed once and correctly.
    async fn h06_a_replay_has_one_framing(store) {
        let world = World::payments(store).await;
        let reply = Reply::status(200).body("in two ").then_after(&open_gate(), "pieces").chunked();
        let (first, replay) = first_and_replay(&world, reply).await;
        assert_eq!(first.text(), "in two pieces");
        assert_eq!(replay.framing, Framing::Length("in two pieces".len()), "{replay:?}");
        assert_eq!(replay.headers.all("Content-Length").len(), 1);
    }
);

fn open_gate() -> oncegate_tests::Gate {
    let gate = oncegate_tests::Gate::new();
    gate.open();
    gate
}

case!(on both,
    /// Every replay is marked and a fresh answer never is; how long the answer is kept is shown.
    async fn h08_replays_are_marked_and_fresh_answers_are_not(store) {
        let world = World::payments(store).await;
        // An upstream, or a client, that marks answers itself is not believed.
        let reply = Reply::counted(1)
            .header("Idempotent-Replayed", "true")
            .header("Idempotency-Status", "replayed");
        let (first, replay) = first_and_replay(&world, reply).await;
        for answer in [&first, &replay] {
            assert!(answer.header("Idempotency-Expires").is_some(), "{answer:?}");
        }
        for _ in 0..3 {
            world.pay(KEY).await.is_replay_of(&first);
        }
    }
);

case!(on both,
    /// A client cannot slip the gateway's own headers to the upstream.
    async fn h08_markers_from_the_client_are_dropped(store) {
        let world = World::payments(store).await;
        let forged = payment(KEY)
            .header("Idempotency-Status", "fresh")
            .header("Idempotent-Replayed", "true")
            .header("Idempotency-Fence", "1")
            .header("Idempotency-Expires", "never");
        world.send(forged).await.is_fresh(201);
        let seen = world.upstream.the_run();
        for name in ["Idempotency-Status", "Idempotent-Replayed", "Idempotency-Expires"] {
            assert!(!seen.headers.has(name), "{name}: {seen:?}");
        }
        assert_ne!(seen.fence(), Some("1"), "a fence made by a client");
    }
);

case!(on both,
    /// An operation begun over HTTP/1.1 is replayed over HTTP/2, and the other way round.
    async fn h09_a_replay_crosses_versions(store) {
        let world = World::payments(store).await;
        let first = world.pay("\"one-then-two\"").await;
        first.is_fresh(201);
        let replay = world.gateway.send_h2(&payment("\"one-then-two\"")).await;
        replay.is_replay_of(&first);
        for name in ["connection", "keep-alive", "transfer-encoding"] {
            assert!(!replay.headers.has(name), "{name}: {replay:?}");
        }

        let first = world.gateway.send_h2(&payment("\"two-then-one\"")).await;
        first.is_fresh(201);
        world.pay("\"two-then-one\"").await.is_replay_of(&first);
        assert_eq!(world.upstream.runs(), 2);
    }
);
