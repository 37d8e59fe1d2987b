//! I: while the first attempt still runs.

use oncegate_tests::world::{KEY, payment, payment_of};
use oncegate_tests::{Answer, Gate, Policy, Reply, World, case};

case!(on both,
    /// A retry that comes too early is told to come back, and calls nobody.
    async fn i01_a_retry_in_flight_is_told_to_come_back(store) {
        let world = World::payments(store).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        let early = world.pay(KEY).await;
        early.is_in_progress();
        assert_eq!(early.outcome(), Some("in-progress"));
        gate.open();
        first.await.expect("the client lives").is_fresh(201);
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// Another body is a mismatch also while the first runs: the client must hear of its mistake,
    /// not wait for it.
    async fn i02_another_body_in_flight_is_a_mismatch(store) {
        let world = World::payments(store).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        let other = world.send(payment_of(KEY, "{\"amount\":1}")).await;
        other.is_mismatch();
        assert_eq!(other.outcome(), Some("mismatch"));
        gate.open();
        first.await.expect("the client lives").is_fresh(201);
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// Fifty requests at once with one key are one execution, and nobody sees a failure.
    async fn i03_a_stampede_runs_once(store) {
        let world = World::payments(store).await;
        let clients: Vec<_> = (0..50).map(|_| world.gateway.spawn_send(payment(KEY))).collect();
        let mut answers: Vec<Answer> = Vec::new();
        for client in clients {
            answers.push(client.await.expect("the client lives"));
        }
        assert_eq!(world.upstream.runs(), 1);
        let winner = one_winner(&answers);
        for answer in answers.iter().filter(|answer| answer.outcome() != Some("fresh")) {
            if answer.status == 409 {
                answer.is_in_progress();
            } else {
                answer.is_replay_of(winner);
            }
        }
    }
);

fn one_winner(answers: &[Answer]) -> &Answer {
    let fresh: Vec<_> = answers.iter().filter(|one| one.outcome() == Some("fresh")).collect();
    assert_eq!(fresh.len(), 1, "one winner: {answers:?}");
    fresh[0].is_fresh(201)
}

case!(on both,
    /// Who lost the race and asks after its end gets the answer, not another "in progress".
    async fn i04_the_loser_gets_the_answer_afterwards(store) {
        let world = World::payments(store).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let winner = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        world.pay(KEY).await.is_in_progress();
        gate.open();
        let winner = winner.await.expect("the client lives");
        world.pay(KEY).await.is_replay_of(winner.is_fresh(201));
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// Unless a policy says otherwise, the answer in flight is 409 with a time to come back.
    async fn i09_the_answer_in_flight_is_409_with_retry_after(store) {
        let world = World::payments(store).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        for _ in 0..3 {
            let early = world.pay(KEY).await;
            assert_eq!(early.status, 409, "{early:?}");
            assert!((1..=60).contains(&early.retry_after_s()), "{early:?}");
        }
        gate.open();
        first.await.expect("the client lives").is_fresh(201);
    }
);

case!(on both,
    /// Only a policy changes that code, and the time to come back stays with it.
    async fn i09_the_code_in_flight_is_a_setting(store) {
        for status in [423, 425, 429] {
            let world = World::start(store, |upstream| {
                Policy::payments_with(upstream, "in_flight_status", &status.to_string())
            })
            .await;
            let gate = Gate::new();
            world.upstream.next(Reply::counted(1).held_by(&gate));
            let first = world.gateway.spawn_send(payment(KEY));
            world.upstream.until_runs(1).await;
            let early = world.pay(KEY).await;
            early.is_problem(status, "in-progress", "same-key");
            assert!(early.retry_after_s() >= 1, "{early:?}");
            gate.open();
            first.await.expect("the client lives").is_fresh(201);
            assert_eq!(world.upstream.runs(), 1);
        }
    }
);
