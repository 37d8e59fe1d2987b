//! Many at once: one key, two gateway processes, one Redis.

use oncegate_tests::world::{KEY, payment};
use oncegate_tests::{Answer, Gateway, Policy, Store, Upstream};

/// Half of them through each gateway.
const REQUESTS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_requests_through_two_gateways_run_once() {
    let upstream = Upstream::start().await;
    let store = Store::redis();
    let policy = Policy::payments(&upstream);
    let gateways = [Gateway::start(&store, &policy).await, Gateway::start(&store, &policy).await];

    let clients: Vec<_> =
        (0..REQUESTS).map(|number| gateways[number % 2].spawn_send(payment(KEY))).collect();
    let mut answers = Vec::new();
    for client in clients {
        answers.push(client.await.expect("the client lives"));
    }

    assert_eq!(upstream.runs(), 1, "one execution, whatever else");
    let (fresh, others): (Vec<&Answer>, Vec<&Answer>) =
        answers.iter().partition(|answer| answer.outcome() == Some("fresh"));
    assert_eq!(fresh.len(), 1, "one winner");
    let winner = fresh[0].is_fresh(201);
    for answer in others {
        if answer.status == 409 {
            answer.is_in_progress();
        } else {
            answer.is_replay_of(winner);
        }
    }

    // Afterwards both know the answer.
    for gateway in &gateways {
        gateway.send(payment(KEY)).await.is_replay_of(winner);
    }
    assert_eq!(upstream.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_between_two_bodies_has_one_winner() {
    let upstream = Upstream::start().await;
    let store = Store::redis();
    let policy = Policy::payments(&upstream);
    let gateways = [Gateway::start(&store, &policy).await, Gateway::start(&store, &policy).await];
    let body = |number: usize| format!("{{\"amount\":{}}}", number % 2);

    let clients: Vec<_> = (0..40)
        .map(|number| {
            let request = oncegate_tests::world::payment_of(KEY, &body(number));
            // Every body comes through every gateway.
            (number, gateways[number / 2 % 2].spawn_send(request))
        })
        .collect();
    let mut answers = Vec::new();
    for (number, client) in clients {
        answers.push((body(number), client.await.expect("the client lives")));
    }

    let run = upstream.the_run();
    for (body, answer) in &answers {
        if body.as_bytes() == run.body {
            assert!(matches!(answer.status, 201 | 409), "{body}: {answer:?}");
        } else {
            answer.is_mismatch();
        }
    }
}
