//! C: crash, lease, completion.

use std::time::{Duration, Instant};

use oncegate_tests::gateway::Launch;
use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::upstream::End;
use oncegate_tests::wait::{patiently, until};
use oncegate_tests::world::{KEY, payment};
use oncegate_tests::{
    Answer, Connection, Gate, Gateway, Policy, Reply, Route, Store, Upstream, World, case,
};

case!(on both,
    /// A gateway that dies after it has sent leaves an unknown outcome: said so, and never run
    /// again.
    async fn c02_a_call_lost_in_a_crash_is_unknown(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = Policy::payments_with(&upstream, "lease", "\"1s\"").to_string();
        let gateway = Gateway::start(&store, &policy).await;
        upstream.next(Reply::counted(1).held_by(&Gate::new()));
        dies_in_flight(gateway, &upstream).await;

        let gateway = Gateway::start(&store, &policy).await;
        until("the lease of the dead gateway to end", async || {
            let answer = gateway.send(payment(KEY)).await;
            if answer.outcome() == Some("unknown") {
                answer.is_unknown();
                return Some(());
            }
            answer.is_in_progress();
            None
        })
        .await;
        gateway.send(payment(KEY)).await.is_unknown();
        assert_eq!(upstream.runs(), 1);
    }
);

/// Kills the gateway while its call is at the upstream; the client is left without an answer.
async fn dies_in_flight(gateway: Gateway, upstream: &Upstream) {
    let mut client = gateway.connect().await;
    client.send(&payment(KEY)).await.expect("the request is sent");
    upstream.until_runs(1).await;
    gateway.kill();
    let answer = patiently("the connection to end", client.answer("POST")).await;
    assert!(answer.is_err(), "an answer from a dead gateway: {answer:?}");
}

case!(on both,
    /// A call three times as long as the lease keeps its key: the lease is renewed meanwhile.
    async fn c03_a_slow_call_keeps_its_reservation(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "lease", "\"1s\"")
        })
        .await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let begun = Instant::now();
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        until("three leases to pass", async || {
            world.pay(KEY).await.is_in_progress();
            (begun.elapsed() > Duration::from_millis(3200)).then_some(())
        })
        .await;
        gate.open();
        let first = first.await.expect("the client lives");
        world.pay(KEY).await.is_replay_of(first.is_fresh(201));
        assert_eq!(world.upstream.runs(), 1);
    }
);

/// A route whose upstream honours the key, so that an abandoned key may be taken over.
fn retried(upstream: &Upstream) -> Policy {
    let route =
        Route::guarded(OPERATION, PAYMENTS).set("lease", "\"1s\"").set("on_unknown", "\"retry\"");
    Policy::with(upstream).route(route)
}

/// Asks until the answer is no longer "in progress".
async fn asked_until_answered(gateway: &Gateway) -> Answer {
    until("the key to be free or finished", async || {
        let answer = gateway.send(payment(KEY)).await;
        (answer.outcome() != Some("in-progress")).then_some(answer)
    })
    .await
}

/// A gateway that stands still while its call is at the upstream, and the client that waits.
async fn stalled(gateway: &Gateway, upstream: &Upstream) -> tokio::task::JoinHandle<Answer> {
    let client = gateway.spawn_send(payment(KEY));
    upstream.until_runs(1).await;
    gateway.pause();
    client
}

case!(on redis,
    /// An owner that stalls past its lease is superseded where the route allows it: the new
    /// owner's answer is the record, and the old one's client still gets its own, marked.
    async fn c04_a_stalled_owner_does_not_overwrite_its_successor(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = retried(&upstream).to_string();
        let one = Gateway::start(&store, &policy).await;
        let two = Gateway::start(&store, &policy).await;
        let gate = Gate::new();
        upstream.next(Reply::counted(1).held_by(&gate));
        let client = stalled(&one, &upstream).await;
        let successor = asked_until_answered(&two).await;
        successor.is_fresh(201);
        gate.open();
        one.resume();
        let own = client.await.expect("the client lives");
        assert_eq!((own.status, own.text().as_str()), (201, "{\"run\":1}"), "{own:?}");
        assert_eq!(own.outcome(), Some("not-stored"), "{own:?}");
        one.send(payment(KEY)).await.is_replay_of(&successor);
        assert_eq!(upstream.runs(), 2);
    }
);

case!(on redis,
    /// As before, but the old owner's call is declared not executed: what it gives back is its
    /// own reservation, and its successor's survives.
    async fn c05_a_stalled_owner_does_not_release_its_successor(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = retried(&upstream).to_string();
        let one = Gateway::start(&store, &policy).await;
        let two = Gateway::start(&store, &policy).await;
        let (first, second) = (Gate::new(), Gate::new());
        upstream.next(Reply::status(503).held_by(&first));
        upstream.next(Reply::counted(2).held_by(&second));
        let client = stalled(&one, &upstream).await;
        let old_owner = async {
            upstream.until_runs(2).await;
            first.open();
            one.resume();
            assert_eq!(client.await.expect("the client lives").status, 503);
            one.send(payment(KEY)).await.is_in_progress();
            second.open();
        };
        let (successor, ()) = tokio::join!(asked_until_answered(&two), old_owner);
        one.send(payment(KEY)).await.is_replay_of(successor.is_fresh(201));
        assert_eq!(upstream.runs(), 2);
    }
);

case!(on both,
    /// Ten retries meet one abandoned key together: exactly one takes over.
    async fn c06_one_of_many_takes_over(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = retried(&upstream).to_string();
        let gateway = Gateway::start(&store, &policy).await;
        upstream.next(Reply::counted(1).held_by(&Gate::new()));
        dies_in_flight(gateway, &upstream).await;
        let died = Instant::now();

        let gateway = Gateway::start(&store, &policy).await;
        let gate = Gate::new();
        upstream.next(Reply::counted(2).held_by(&gate));
        until("the lease to end", async || {
            (died.elapsed() > Duration::from_millis(1100)).then_some(())
        })
        .await;
        let clients: Vec<_> = (0..10).map(|_| gateway.spawn_send(payment(KEY))).collect();
        upstream.until_runs(2).await;
        gate.open();
        let mut fresh = 0;
        for client in clients {
            let answer = client.await.expect("the client lives");
            match answer.outcome() {
                Some("fresh") => fresh += 1,
                Some("replayed") => {}
                _ => drop(answer.is_in_progress()),
            }
        }
        assert_eq!(fresh, 1);
        assert_eq!(upstream.runs(), 2);
    }
);

case!(on both,
    /// Whether an unknown end runs again after the lease is the route's word: where it says so,
    /// once; C02 is the default, where it never does.
    async fn c18_an_abandoned_call_runs_again_only_where_the_route_says_so(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = retried(&upstream).to_string();
        let gateway = Gateway::start(&store, &policy).await;
        upstream.next(Reply::counted(1).held_by(&Gate::new()));
        dies_in_flight(gateway, &upstream).await;

        let gateway = Gateway::start(&store, &policy).await;
        let again = asked_until_answered(&gateway).await;
        gateway.send(payment(KEY)).await.is_replay_of(again.is_fresh(201));
        assert_eq!(upstream.runs(), 2);
    }
);

case!(on redis,
    /// When the answer cannot be stored, the client still gets it, marked; the retry is not run.
    async fn c08_an_answer_that_cannot_be_stored_is_still_given(store) {
        let mut world = World::payments(store).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        world.store.server().pause();
        gate.open();
        let first = first.await.expect("the client lives");
        assert_eq!((first.status, first.text().as_str()), (201, "{\"run\":1}"), "{first:?}");
        assert_ne!(first.outcome(), Some("fresh"), "it must be marked: {first:?}");
        world.store.server().resume();
        // The gateway keeps the token and stores the answer once the store is back.
        let retry = until("the answer to be stored after all", async || {
            let answer = world.pay(KEY).await;
            (answer.outcome() == Some("replayed")).then_some(answer)
        })
        .await;
        assert_eq!(retry.text(), "{\"run\":1}");
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// A refused connection proves that nothing ran: the key is free at once.
    async fn c10_a_refused_connection_releases_the_key(store) {
        let mut upstream = Upstream::shut();
        let store = Store::start(store);
        let gateway = Gateway::start(&store, Policy::payments(&upstream)).await;
        let refused = gateway.send(payment(KEY)).await;
        assert!(matches!(refused.status, 502 | 503), "{refused:?}");
        refused.is_problem(refused.status, "upstream-unreachable", "same-key");
        assert_eq!(refused.outcome(), Some("released"));
        upstream.open();
        gateway.send(payment(KEY)).await.is_fresh(201);
        assert_eq!(upstream.runs(), 1);
    }
);

case!(on both,
    /// A connection that is reset after the request was sent proves nothing: unknown, not released.
    async fn c11_a_reset_before_the_answer_is_unknown(store) {
        let world = World::payments(store).await;
        for (number, end) in [End::Reset, End::Close].into_iter().enumerate() {
            let key = format!("\"reset-{number}\"");
            world.upstream.next(Reply::nothing(end));
            world.pay(&key).await.is_ambiguous_failure();
            world.pay(&key).await.is_unknown();
            assert_eq!(world.upstream.runs(), number + 1);
        }
    }
);

case!(on both,
    /// An answer that breaks off, at its head or in its body, proves nothing either.
    async fn c11_a_broken_answer_is_unknown(store) {
        let world = World::payments(store).await;
        let replies = [
            Reply::counted(1).cut_after(5, End::Close),
            Reply::counted(1).cut_after(40, End::Reset),
            Reply::raw("HTTP/1.1 201 Created\r\nContent-Length: 50\r\n\r\n{\"run\""),
            Reply::raw("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
            Reply::raw("HTTP/1.1 2x1 Created\r\n\r\n"),
            Reply::raw("SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        ];
        for (number, reply) in replies.into_iter().enumerate() {
            let key = format!("\"broken-{number}\"");
            world.upstream.next(reply);
            world.pay(&key).await.is_ambiguous_failure();
            world.pay(&key).await.is_unknown();
            assert_eq!(world.upstream.runs(), number + 1);
        }
    }
);

case!(on both,
    /// A client that leaves cancels nothing: the work is finished, and its retry gets the answer.
    async fn c13_a_leaving_client_cancels_nothing(store) {
        let world = World::payments(store).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let mut client = world.gateway.connect().await;
        client.send(&payment(KEY)).await.expect("the request is sent");
        world.upstream.until_runs(1).await;
        drop(client);
        world.pay(KEY).await.is_in_progress();
        gate.open();
        let retry = until("the answer to be stored", async || {
            let answer = world.pay(KEY).await;
            (answer.status != 409).then_some(answer)
        })
        .await;
        assert_eq!((retry.outcome(), retry.text().as_str()), (Some("replayed"), "{\"run\":1}"));
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// A gateway that is told to stop finishes what it began and leaves no key in progress.
    async fn c15_a_stopping_gateway_finishes_what_it_began(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = Policy::payments(&upstream);
        let mut gateway = Gateway::start(&store, &policy).await;
        let gate = Gate::new();
        upstream.next(Reply::counted(1).held_by(&gate));
        let first = gateway.spawn_send(payment(KEY));
        upstream.until_runs(1).await;
        gateway.ask_to_stop();
        until("the listener to close", async || {
            Connection::try_to(gateway.address()).await.is_err().then_some(())
        })
        .await;
        gate.open();
        let first = first.await.expect("the client lives");
        first.is_fresh(201);
        assert!(gateway.exited().await.success(), "{}", gateway.log());

        let gateway = Launch::new(&store, &policy).start().await;
        gateway.send(payment(KEY)).await.is_replay_of(&first);
        assert_eq!(upstream.runs(), 1);
    }
);

case!(on both,
    /// An answer without a body ends the reservation like any other.
    async fn c16_an_answer_without_a_body_ends_the_reservation(store) {
        let world = World::payments(store).await;
        let replies = [
            Reply::status(200),
            Reply::status(204),
            Reply::raw("HTTP/1.1 200 OK\r\n\r\n"),
            Reply::status(201).chunked(),
        ];
        for (number, reply) in replies.into_iter().enumerate() {
            let key = format!("\"bodiless-{number}\"");
            world.upstream.next(reply);
            let first = world.pay(&key).await;
            first.is_fresh(first.status);
            assert!((200..300).contains(&first.status), "{first:?}");
            world.pay(&key).await.is_replay_of(&first);
            assert_eq!(world.upstream.runs(), number + 1);
        }
    }
);

case!(on both,
    /// Whatever the gateway answers, a machine can read from it what to do next.
    async fn c19_every_answer_says_what_to_do_next(store) {
        let world = World::payments(store).await;
        // A failure that was stored is given again, and marked: this key will say nothing else.
        world.upstream.next(Reply::status(422).json("{\"error\":\"no such account\"}"));
        let failed = world.pay("\"failed\"").await;
        failed.is_fresh(422);
        world.pay("\"failed\"").await.is_replay_of(&failed);

        world.upstream.next(Reply::nothing(End::Close));
        world.pay("\"lost\"").await.is_ambiguous_failure();
        world.pay("\"lost\"").await.is_problem(409, "outcome-unknown", "after-resolution");

        world.upstream.next(Reply::status(200).body(vec![b'x'; 1024 * 1024 + 1]));
        assert_eq!(world.pay("\"large\"").await.status, 200);
        world.pay("\"large\"").await.is_problem(409, "answer-not-kept", "never");

        world.pay("\"").await.is_problem(400, "key-invalid", "new-key");
        assert_eq!(world.upstream.runs(), 3);
    }
);
