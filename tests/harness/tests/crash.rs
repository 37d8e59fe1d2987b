//! `kill -9` in the middle of things, and what the next gateway makes of it.

use oncegate_tests::wait::{patiently, until};
use oncegate_tests::world::payment;
use oncegate_tests::{Answer, Gate, Gateway, Policy, Reply, Store, Upstream, case};

/// Calls in flight when the gateway dies.
const IN_FLIGHT: usize = 20;

/// Calls that were finished before.
const FINISHED: usize = 20;

fn finished(number: usize) -> String {
    format!("\"finished-{number}\"")
}

fn in_flight(number: usize) -> String {
    format!("\"in-flight-{number}\"")
}

/// A call to a gateway that will not live to answer it.
async fn doomed(gateway: &Gateway, number: usize) -> oncegate_tests::Connection {
    let mut client = gateway.connect().await;
    client.send(&payment(in_flight(number))).await.expect("the request is sent");
    client
}

case!(on both,
    /// What was answered stays answered; what was in flight becomes unknown, is in progress only
    /// until its lease ends, and is never run a second time.
    async fn a_crash_neither_loses_nor_repeats_anything(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = Policy::payments_with(&upstream, "lease", "\"1s\"");
        let gateway = Gateway::start(&store, &policy).await;

        let mut answers: Vec<Answer> = Vec::new();
        for number in 0..FINISHED {
            answers.push(gateway.send(payment(finished(number))).await);
        }
        let gate = Gate::new();
        let held = gate.clone();
        upstream.always(move |execution| Reply::counted(execution.run).held_by(&held));
        let mut clients = Vec::new();
        for number in 0..IN_FLIGHT {
            clients.push(doomed(&gateway, number).await);
        }
        upstream.until_runs(FINISHED + IN_FLIGHT).await;
        gateway.kill();
        for client in &mut clients {
            let answer = patiently("the connection to end", client.answer("POST")).await;
            assert!(answer.is_err(), "an answer from a dead gateway: {answer:?}");
        }
        // Too late: nobody is there to hear it.
        gate.open();

        let gateway = Gateway::start(&store, &policy).await;
        for (number, answer) in answers.iter().enumerate() {
            gateway.send(payment(finished(number))).await.is_replay_of(answer.is_fresh(201));
        }
        for number in 0..IN_FLIGHT {
            until("the lease of the dead gateway to end", async || {
                let answer = gateway.send(payment(in_flight(number))).await;
                if answer.outcome() == Some("in-progress") {
                    answer.is_in_progress();
                    return None;
                }
                answer.is_unknown();
                Some(())
            })
            .await;
        }
        assert_eq!(upstream.runs(), FINISHED + IN_FLIGHT, "nothing ran twice");
        // And new keys work.
        gateway.send(payment("\"after\"")).await.is_fresh(201);
    }
);

case!(on both,
    /// An answer that a client has seen is on record, however soon after it the gateway dies.
    async fn an_answer_that_was_seen_survives_any_crash(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let policy = Policy::payments(&upstream);
        for round in 0..5 {
            let key = format!("\"round-{round}\"");
            let gateway = Gateway::start(&store, &policy).await;
            let first = gateway.send(payment(&key)).await;
            gateway.kill();
            let gateway = Gateway::start(&store, &policy).await;
            gateway.send(payment(&key)).await.is_replay_of(first.is_fresh(201));
            assert_eq!(upstream.runs(), round + 1);
        }
    }
);
