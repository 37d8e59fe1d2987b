//! SIGTERM: readiness goes off, running work is finished, and what cannot be finished is left
//! unknown, never "in progress".

use std::time::{Duration, Instant};

use oncegate_tests::wait::until;
use oncegate_tests::world::{KEY, payment};
use oncegate_tests::{Connection, Gate, Gateway, Policy, Reply, Store, Upstream, case};

case!(on both,
    /// While it drains, a gateway is alive and not ready, takes no new connection, and finishes
    /// what it began; the next gateway knows the answer.
    async fn running_work_is_finished(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = Policy::payments(&upstream);
        let mut gateway = Gateway::start(&store, &policy).await;
        assert!(gateway.is_ready().await);
        let gate = Gate::new();
        upstream.next(Reply::counted(1).held_by(&gate));
        let first = gateway.spawn_send(payment(KEY));
        upstream.until_runs(1).await;

        gateway.ask_to_stop();
        until("readiness to go off", async || (!gateway.is_ready().await).then_some(())).await;
        assert_eq!(gateway.ask("/healthz").await.status, 200, "draining is no illness");
        until("the listener to close", async || {
            Connection::try_to(gateway.address()).await.is_err().then_some(())
        })
        .await;

        gate.open();
        let first = first.await.expect("the client lives");
        first.is_fresh(201);
        assert!(gateway.exited().await.success(), "{}", gateway.log());

        let next = Gateway::start(&store, &policy).await;
        next.send(payment(KEY)).await.is_replay_of(&first);
        assert_eq!(upstream.runs(), 1);
    }
);

case!(on both,
    /// What still runs at the drain deadline was sent: it is unknown, and never run again.
    async fn unfinished_work_is_left_unknown(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy =
            Policy::payments(&upstream).section("[drain]\ndeadline = \"300ms\"\n");
        let mut gateway = Gateway::start(&store, &policy).await;
        upstream.next(Reply::counted(1).held_by(&Gate::new()));
        let mut client = gateway.connect().await;
        client.send(&payment(KEY)).await.expect("the request is sent");
        upstream.until_runs(1).await;
        gateway.ask_to_stop();
        if let Ok(answer) = client.answer("POST").await {
            answer.is_ambiguous_failure();
        }
        gateway.exited().await;

        let next = Gateway::start(&store, &policy).await;
        // At once: the stopping gateway wrote it down, so no lease has to end first.
        next.send(payment(KEY)).await.is_unknown();
        assert_eq!(upstream.runs(), 1);
    }
);

case!(on both,
    /// A client that keeps its connection open and says nothing holds nobody up.
    async fn idle_connections_do_not_delay_the_end(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let gateway = Gateway::start(&store, Policy::payments(&upstream)).await;
        let silent = gateway.connect().await;
        let mut idle = gateway.connect().await;
        idle.exchange(&payment(KEY)).await.is_fresh(201);
        let begun = Instant::now();
        let status = gateway.terminate().await;
        assert!(status.success(), "{status}");
        // The deadline of a drain is 30 s; this one had nothing to wait for.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        drop((silent, idle));
    }
);
