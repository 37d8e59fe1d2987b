//! Routes that are not guarded: bytes flow through in both directions, whatever their number.

use oncegate_tests::policy::PAYMENTS;
use oncegate_tests::wait::patiently;
use oncegate_tests::world::{BODY, KEY};
use oncegate_tests::{Gate, Policy, Reply, Request, Route, StoreKind, Upstream, World, case};

const STREAM: &str = "/stream";

/// Larger than any limit of a guarded route.
const LARGE: usize = 64 * 1024 * 1024;

fn open_route(upstream: &Upstream) -> Policy {
    Policy::payments(upstream).route(Route::open("stream", &["GET", "POST"], STREAM))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_byte_of_an_answer_does_not_wait_for_the_last() {
    let world = World::start(StoreKind::Embedded, open_route).await;
    let gate = Gate::new();
    world.upstream.next(Reply::status(200).body("first").then_after(&gate, "last").chunked());
    let mut client = world.gateway.connect().await;
    client.send(&Request::get(STREAM)).await.expect("the request is sent");
    let text = patiently("the first byte while the last is held", async {
        let head = client.answer_head("GET").await.expect("a head");
        assert_eq!(head.status, 200, "{head:?}");
        String::from_utf8_lossy(&client.next_bytes().await.expect("bytes")).into_owned()
    })
    .await;
    assert!(text.contains("first") && !text.contains("last"), "{text:?}");
    gate.open();
    let rest = patiently("the last byte", client.next_bytes()).await.expect("bytes");
    assert!(String::from_utf8_lossy(&rest).contains("last"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_byte_of_an_upload_does_not_wait_for_the_last() {
    let world = World::start(StoreKind::Embedded, open_route).await;
    let upload = Request::post(STREAM).body(BODY);
    let (half, rest) = BODY.as_bytes().split_at(10);
    let mut client = world.gateway.connect().await;
    client.send_head(&upload).await.expect("the head is sent");
    client.send_bytes(half).await.expect("half the body is sent");
    world.upstream.until("half the body at the upstream", |seen| seen.body_bytes == 10).await;
    assert_eq!(world.upstream.runs(), 0, "the request is not whole yet");
    client.send_bytes(rest).await.expect("the rest is sent");
    let answer = patiently("the answer", client.answer("POST")).await.expect("an answer");
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(world.upstream.the_run().body, BODY.as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_whole_and_are_not_held_in_memory() {
    let world = World::start(StoreKind::Embedded, open_route).await;
    // No two blocks are alike, so a block lost or swapped would show.
    let large: Vec<u8> = (0..LARGE / 8).flat_map(|block: usize| block.to_le_bytes()).collect();
    let before = world.gateway.memory_bytes();
    world.upstream.next(Reply::status(200).body(&large));
    let answer = world.send(Request::post(STREAM).body(&large).chunked(65_536)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body == large, "the answer arrived changed");
    assert!(world.upstream.the_run().body == large, "the upload arrived changed");
    let grown = world.gateway.memory_bytes().saturating_sub(before);
    assert!(grown < LARGE as u64 / 2, "{grown} bytes held for two bodies of {LARGE}");
}

case!(on redis,
    /// A route that is not guarded asks the store nothing: it works without one, key or no key.
    async fn an_open_route_does_not_need_the_store(store) {
        let mut world = World::start(store, open_route).await;
        world.store.server().kill();
        for run in 1..=2 {
            let answer = world.send(Request::post(STREAM).key(KEY).json(BODY)).await;
            assert_eq!(answer.status, 201, "{answer:?}");
            assert!(!answer.headers.has("Idempotent-Replayed"), "{answer:?}");
            assert_eq!(world.upstream.runs(), run);
        }
        assert_eq!(world.upstream.executions()[0].key(), Some(KEY), "the key is not ours to take");
        let guarded = world.send(Request::post(PAYMENTS).key(KEY).json(BODY)).await;
        guarded.is_problem(503, "store-unavailable", "same-key");
    }
);
