//! B: size and streaming.

use oncegate_tests::policy::PAYMENTS;
use oncegate_tests::wait::patiently;
use oncegate_tests::world::{BODY, KEY, payment};
use oncegate_tests::{Gate, Reply, Request, World, case};

/// The default limit of both directions.
const MIB: usize = 1024 * 1024;

case!(on both,
    /// A body over the limit is refused whether or not its length was announced; nothing is
    /// reserved, and nothing passes unprotected. A body at the limit is accepted.
    async fn b01_a_body_over_the_limit_is_refused(store) {
        let world = World::payments(store).await;
        let sized = |size: usize| Request::post(PAYMENTS).key(KEY).body(vec![b'x'; size]);
        world.send(sized(MIB + 1)).await.is_problem(413, "body-too-large", "never");
        world.send(sized(MIB + 1).chunked(8192)).await.is_problem(413, "body-too-large", "never");
        assert_eq!(world.upstream.runs(), 0);
        world.send(sized(MIB)).await.is_fresh(201);
        assert_eq!(world.upstream.the_run().body.len(), MIB);
    }
);

case!(on both,
    /// An answer over the limit reaches its client whole; its retry is told that it was not kept,
    /// and does not run. An answer at the limit is kept.
    async fn b02_an_answer_over_the_limit_is_given_but_not_kept(store) {
        let world = World::payments(store).await;
        for (number, reply) in [
            Reply::status(200).body(vec![b'y'; MIB + 1]),
            Reply::status(200).body(vec![b'y'; MIB + 1]).chunked(),
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("\"large-{number}\"");
            world.upstream.next(reply);
            let first = world.pay(&key).await;
            assert_eq!((first.status, first.body.len()), (200, MIB + 1));
            world.pay(&key).await.is_problem(409, "answer-not-kept", "never");
        }
        world.upstream.next(Reply::status(200).body(vec![b'z'; MIB]));
        let first = world.pay("\"exact\"").await;
        world.pay("\"exact\"").await.is_replay_of(first.is_fresh(200));
        assert_eq!(world.upstream.runs(), 3);
    }
);

case!(on both,
    /// An event stream flows to its client while it is made; its retry does not run it again.
    async fn b02_an_event_stream_flows_and_is_not_kept(store) {
        let world = World::payments(store).await;
        let gate = Gate::new();
        world.upstream.next(
            Reply::status(200)
                .header("Content-Type", "text/event-stream")
                .body("data: 1\n\n")
                .then_after(&gate, "data: 2\n\n")
                .chunked(),
        );
        let mut client = world.gateway.connect().await;
        client.send(&payment(KEY)).await.expect("the request is sent");
        let text = patiently("the first event while the second is held", async {
            let head = client.answer_head("POST").await.expect("a head");
            assert_eq!(head.status, 200, "{head:?}");
            String::from_utf8_lossy(&client.next_bytes().await.expect("bytes")).into_owned()
        })
        .await;
        assert!(text.contains("data: 1") && !text.contains("data: 2"), "{text:?}");
        gate.open();
        let rest = patiently("the second event", async { client.next_bytes().await }).await;
        assert!(String::from_utf8_lossy(&rest.expect("bytes")).contains("data: 2"));
        world.pay(KEY).await.is_problem(409, "answer-not-kept", "never");
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// A client that is still sending holds no reservation: whoever has sent everything goes first.
    async fn b04_a_slow_upload_reserves_nothing(store) {
        let world = World::payments(store).await;
        let mut slow = world.gateway.connect().await;
        let request = payment(KEY).header("Expect", "100-continue");
        slow.send_head(&request).await.expect("the head is sent");
        let interim = patiently("leave to continue", async { slow.next_bytes().await }).await;
        let interim = String::from_utf8_lossy(&interim.expect("bytes")).into_owned();
        assert!(interim.starts_with("HTTP/1.1 100 "), "{interim:?}");
        let (half, rest) = BODY.as_bytes().split_at(10);
        slow.send_bytes(half).await.expect("half the body is sent");

        let first = world.pay(KEY).await;
        first.is_fresh(201);

        slow.send_bytes(rest).await.expect("the rest is sent");
        let late = patiently("the answer to the slow one", async { slow.answer("POST").await }).await;
        late.expect("an answer").is_replay_of(&first);
        let seen = world.upstream.the_run();
        assert!(!seen.headers.has("Expect"), "the expectation was met here: {seen:?}");
    }
);
