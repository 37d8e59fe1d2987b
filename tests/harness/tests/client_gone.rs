//! Clients that leave: during the upload, while the upstream works, while the answer is sent.

use std::time::Duration;

use oncegate_tests::policy::PAYMENTS;
use oncegate_tests::wait::{patiently, until};
use oncegate_tests::world::{BODY, KEY, payment};
use oncegate_tests::{Answer, Gate, Reply, Request, StoreKind, World, case, http2};

/// How long these clients wait before they leave.
const IMPATIENCE: Duration = Duration::from_millis(50);

/// How long the upstream takes: what makes the client leave is the subject of this test.
const UPSTREAM_TAKES: Duration = Duration::from_secs(1);

/// A world whose upstream executes at once and answers a second later.
async fn slow_world(store: StoreKind) -> World {
    let world = World::payments(store).await;
    let gate = Gate::new();
    world.upstream.next(Reply::counted(1).held_by(&gate));
    tokio::spawn(async move {
        tokio::time::sleep(UPSTREAM_TAKES).await;
        gate.open();
    });
    world
}

/// Asks again until the answer is there; in between it may only be "in progress".
async fn retried(world: &World) -> Answer {
    until("the answer to be stored", async || {
        let answer = world.pay(KEY).await;
        if answer.status == 409 {
            answer.is_in_progress();
            return None;
        }
        Some(answer)
    })
    .await
}

case!(on both,
    /// A client gives up after 50 ms on a call that takes a second: it runs once, and the retry
    /// gets its answer.
    async fn a_client_that_leaves_gets_the_answer_later(store) {
        let world = slow_world(store).await;
        let mut client = world.gateway.connect().await;
        client.send(&payment(KEY)).await.expect("the request is sent");
        let answer = tokio::time::timeout(IMPATIENCE, client.answer("POST")).await;
        assert!(answer.is_err(), "the upstream was not slow: {answer:?}");
        drop(client);

        let retry = retried(&world).await;
        assert_eq!((retry.outcome(), retry.text().as_str()), (Some("replayed"), "{\"run\":1}"));
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// The same over HTTP/2, where leaving is the reset of one stream.
    async fn a_stream_that_is_reset_cancels_nothing(store) {
        let world = slow_world(store).await;
        let request = payment(KEY);
        let answer =
            tokio::time::timeout(IMPATIENCE, http2::send(world.gateway.address(), &request)).await;
        assert!(answer.is_err(), "the upstream was not slow: {answer:?}");

        let retry = retried(&world).await;
        assert_eq!(retry.text(), "{\"run\":1}");
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// A client that leaves in the middle of its upload has asked for nothing.
    async fn half_an_upload_is_no_request(store) {
        let world = World::payments(store).await;
        let mut client = world.gateway.connect().await;
        client.send_head(&payment(KEY)).await.expect("the head is sent");
        client.send_bytes(&BODY.as_bytes()[..10]).await.expect("a part is sent");
        drop(client);
        world.pay(KEY).await.is_fresh(201);
        assert_eq!(world.upstream.the_run().body, BODY.as_bytes());
    }
);

case!(on both,
    /// A client that leaves while it reads gets the whole answer on its retry.
    async fn half_a_download_is_no_loss(store) {
        let world = World::payments(store).await;
        let large = "x".repeat(900 * 1024);
        world.upstream.next(Reply::status(201).body(&large));
        let mut client = world.gateway.connect().await;
        client.send(&payment(KEY)).await.expect("the request is sent");
        let first = patiently("the first bytes", client.next_bytes()).await.expect("bytes");
        assert!(first.starts_with(b"HTTP/1.1 201"), "{:?}", String::from_utf8_lossy(&first));
        drop(client);

        let retry = world.send(Request::post(PAYMENTS).key(KEY).json(BODY)).await;
        assert_eq!((retry.status, retry.outcome()), (201, Some("replayed")), "{:?}", retry.headers);
        assert_eq!(retry.body, large.as_bytes());
        assert_eq!(world.upstream.runs(), 1);
    }
);
