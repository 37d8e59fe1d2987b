//! W: webhooks.

use oncegate_tests::world::BODY;
use oncegate_tests::{Gate, Policy, Reply, Request, Route, Upstream, World, case};

const HOOK: &str = "/hooks/orders";

/// The id of the message is the key; timestamp and signature change with every delivery.
fn hooks(upstream: &Upstream) -> Policy {
    let config = "{ header = \"webhook-id\", required = true }";
    Policy::new()
        .upstream("payments", &[&upstream.url()])
        .plugin("message-id", "builtin:header-key", config)
        .route(Route::guarded("receive-order", HOOK).set("key", "[\"message-id\"]"))
}

fn delivery(attempt: u32) -> Request {
    Request::post(HOOK)
        .header("webhook-id", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W")
        .header("webhook-timestamp", format!("16744{attempt:05}"))
        .header("webhook-signature", format!("v1,signature-{attempt}"))
        .json(BODY)
}

case!(on both,
    /// A redelivery has a new timestamp and a new signature, and is still the same message.
    async fn w01_a_redelivery_is_the_same_message(store) {
        let world = World::start(store, hooks).await;
        let first = world.send(delivery(1)).await;
        first.is_fresh(201);
        world.send(delivery(2)).await.is_replay_of(&first);
        let run = world.upstream.the_run();
        assert_eq!(run.headers.one("webhook-id"), Some("msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"));
        assert_eq!(run.headers.one("webhook-signature"), Some("v1,signature-1"));
    }
);

case!(on both,
    /// In flight the sender is told to try later; once done it gets a success, so that it stops.
    async fn w02_a_duplicate_makes_the_sender_stop(store) {
        let world = World::start(store, hooks).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(delivery(1));
        world.upstream.until_runs(1).await;
        world.send(delivery(2)).await.is_in_progress();
        gate.open();
        let first = first.await.expect("the client lives");
        let duplicate = world.send(delivery(3)).await;
        duplicate.is_replay_of(first.is_fresh(201));
        assert!((200..300).contains(&duplicate.status));
        assert_eq!(world.upstream.runs(), 1);
    }
);
