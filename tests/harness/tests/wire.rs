//! What a request costs on the wire to Redis: two commands the first time, one for a replay.

use std::collections::BTreeMap;

use oncegate_tests::gateway::Launch;
use oncegate_tests::redis_wire::RedisWire;
use oncegate_tests::world::payment;
use oncegate_tests::{Answer, Gateway, Policy, Store, Upstream};

/// First executions, and as many replays.
const REQUESTS: usize = 1000;

/// How many clients share the work.
const CLIENTS: usize = 4;

/// What a connection may say besides, not once for each request.
const HOUSEKEEPING: &[&str] = &["PING", "HELLO", "CLIENT", "INFO", "CONFIG", "ROLE", "TIME"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_execution_costs_two_commands_and_a_replay_one() {
    let upstream = Upstream::start().await;
    let mut store = Store::redis();
    let wire = RedisWire::before(store.server().port()).await;
    let gateway = Launch::on_url(&wire.url(), Policy::payments(&upstream)).start().await;
    // The first call of each script loads it, once in the life of a server.
    gateway.send(payment("\"warm\"")).await.is_fresh(201);
    gateway.send(payment("\"warm\"")).await;
    store.cli(&["CONFIG", "RESETSTAT"]);

    wire.reset();
    pay_all(&gateway, "fresh").await;
    assert_eq!(upstream.runs(), REQUESTS + 1);
    assert_eq!(scripts(&wire.commands()), 2 * REQUESTS, "{:?}", wire.commands());

    wire.reset();
    pay_all(&gateway, "replayed").await;
    assert_eq!(upstream.runs(), REQUESTS + 1);
    assert_eq!(scripts(&wire.commands()), REQUESTS, "{:?}", wire.commands());

    // The server counted the same.
    let statistics = store.cli(&["INFO", "commandstats"]);
    assert_eq!(calls(&statistics, "eval"), 3 * REQUESTS, "{statistics}");
}

/// Sends every payment once, and checks what became of it.
async fn pay_all(gateway: &Gateway, outcome: &str) {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut connection = None;
            let address = gateway.address();
            tokio::spawn(async move {
                let mut answers: Vec<Answer> = Vec::new();
                for number in (client..REQUESTS).step_by(CLIENTS) {
                    let connection = match &mut connection {
                        Some(connection) => connection,
                        empty => empty.insert(oncegate_tests::Connection::to(address).await),
                    };
                    answers.push(connection.exchange(&payment(format!("\"n-{number}\""))).await);
                }
                answers
            })
        })
        .collect();
    for client in clients {
        for answer in client.await.expect("the client lives") {
            assert_eq!((answer.status, answer.outcome()), (201, Some(outcome)), "{answer:?}");
        }
    }
}

/// Script calls among the commands; nothing else may travel but housekeeping.
fn scripts(commands: &BTreeMap<String, usize>) -> usize {
    let script = |name: &str| matches!(name, "EVALSHA" | "EVAL" | "FCALL");
    for name in commands.keys() {
        assert!(script(name) || HOUSEKEEPING.contains(&name.as_str()), "{name} in {commands:?}");
    }
    commands.iter().filter(|(name, _)| script(name)).map(|(_, count)| count).sum()
}

/// The calls of all commands whose name begins so: `cmdstat_evalsha:calls=3000,usec=…`.
fn calls(statistics: &str, prefix: &str) -> usize {
    let prefix = format!("cmdstat_{prefix}");
    let counts = statistics.lines().filter(|line| line.starts_with(&prefix)).map(|line| {
        let calls = line.split_once("calls=").and_then(|(_, rest)| rest.split(',').next());
        calls.and_then(|count| count.parse::<usize>().ok()).unwrap_or_else(|| panic!("{line}"))
    });
    counts.sum()
}
