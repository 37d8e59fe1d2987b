//! What goes over the wire, counted by Redis itself.

mod support;

use std::collections::BTreeMap;

use oncegate_core::{Release, ReserveVerdict};
use oncegate_store::Store;
use oncegate_test_redis::RedisServer;
use support::calls::{finish, id, proceed, replayed, reserve};
use support::{redis_config, redis_store};

/// How often each command came from a client since the last reset. The commands that scripts
/// call are counted too, under their own names; what we asked with the test's own connection is
/// left out.
fn counts(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats = server.cli(&["INFO", "commandstats"]);
    let lines = stats.lines().filter_map(|line| line.trim().strip_prefix("cmdstat_"));
    let counts = lines.filter_map(|line| {
        let (name, rest) = line.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    });
    counts.filter(|(name, _)| name != "info" && !name.starts_with("config")).collect()
}

fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[tokio::test]
async fn a_first_execution_is_two_commands_and_a_replay_is_one() {
    let server = RedisServer::start();
    let config = redis_config(&server);
    // A database other than 0, where a careless client would select before each command.
    let url = format!("redis://127.0.0.1:{}/5", server.port());
    let store = redis_store(oncegate_store::RedisConfig { url, ..config }).await;

    server.cli(&["CONFIG", "RESETSTAT"]);
    let claim = proceed(&store, &id(1), 1).await;
    store.finish(&id(1), finish(claim, &[b'x'; 1024])).await.expect("stored");
    // Inside: the clock, the record, and one write, for each of the two.
    let first = expected(&[("evalsha", 2), ("time", 2), ("get", 2), ("set", 2)]);
    assert_eq!(counts(&server), first);

    server.cli(&["CONFIG", "RESETSTAT"]);
    assert_eq!(replayed(&store, &id(1)).await.len(), 1024);
    assert_eq!(counts(&server), expected(&[("evalsha", 1), ("time", 1), ("get", 1)]));
}

#[tokio::test]
async fn a_busy_caller_and_a_release_are_one_command_each() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    let claim = proceed(&store, &id(1), 1).await;

    server.cli(&["CONFIG", "RESETSTAT"]);
    let told = store.reserve(&id(1), reserve(2)).await.expect("a verdict");
    assert!(matches!(told, ReserveVerdict::Busy { .. }));
    let release = Release { owner: claim.owner, fence: Some(claim.fence) };
    store.release(&id(1), release).await.expect("released");
    let both = expected(&[("evalsha", 2), ("time", 2), ("get", 2), ("del", 1)]);
    assert_eq!(counts(&server), both);
}

#[tokio::test]
async fn a_forgotten_script_costs_one_load() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    proceed(&store, &id(1), 1).await;
    proceed(&store, &id(2), 1).await;
    let counted = counts(&server);
    assert_eq!(counted.get("evalsha"), Some(&3), "{counted:?}");
    assert_eq!(counted.get("script|load"), Some(&1), "{counted:?}");
}
