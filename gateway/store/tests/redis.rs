//! The clauses over Redis, with its scripts driven by a test clock, and what only Redis does.

mod support;

use std::time::{Duration, Instant};

use oncegate_core::*;
use oncegate_store::{Certainty, ErrorKind, RedisConfig, RedisStore, ScanFilter, Store};
use oncegate_test_redis::RedisServer;
use support::calls::{LEASE, RETENTION, finish, id, proceed, replayed, reserve};
use support::{PATIENCE, redis_config, redis_name, redis_store};

async fn subject() -> support::Redis {
    support::Redis::new(support::clock()).await
}

oncegate_store::conformance!(subject);

/// Waits for a store that is not fit, and says why.
async fn problem(config: RedisConfig) -> String {
    let store = RedisStore::new(config).expect("good settings");
    // Long enough to have been asked; a fit store would be ready at once.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let health = store.ready(Duration::from_millis(20)).await;
        assert!(!health.ready, "it was taken as fit");
        let problem = health.problem.expect("an unready store says why");
        if problem != "not connected to Redis yet" {
            let refused = store.reserve(&id(1), reserve(1)).await.expect_err("not ready");
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
            assert_eq!(refused.certainty(), Certainty::NotApplied);
            return problem;
        }
        assert!(Instant::now() < deadline, "{problem}");
    }
}

#[tokio::test]
async fn an_evicting_redis_is_refused_unless_allowed() {
    let server = RedisServer::builder().config("maxmemory-policy", "allkeys-lru").start();
    let config = redis_config(&server);
    let said = problem(config.clone()).await;
    assert!(said.contains("allkeys-lru") && said.contains("maxmemory-policy noeviction"), "{said}");
    let store = redis_store(RedisConfig { allow_eviction: true, ..config }).await;
    let warnings = store.health().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("allkeys-lru")), "{warnings:?}");
}

#[tokio::test]
async fn a_replica_is_refused() {
    let primary = RedisServer::start();
    let replica = RedisServer::start();
    let port = primary.port().to_string();
    assert_eq!(replica.cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    let said = problem(redis_config(&replica)).await;
    assert!(said.contains("primary"), "{said}");
}

#[tokio::test]
async fn a_redis_that_forgets_at_a_restart_is_warned_of() {
    let forgetful = RedisServer::start();
    let warnings = redis_store(redis_config(&forgetful)).await.health().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("appendonly yes")), "{warnings:?}");
    let careful = RedisServer::builder().config("appendonly", "yes").start();
    assert!(redis_store(redis_config(&careful)).await.health().warnings.is_empty());
}

#[tokio::test]
async fn an_unreachable_redis_is_unavailable_at_once_and_without_effect() {
    let mut server = RedisServer::start();
    let config = redis_config(&server);
    server.kill();
    let said = problem(config).await;
    assert!(said.contains("cannot connect"), "{said}");
}

#[tokio::test]
async fn a_full_redis_takes_no_reservation_but_finishes_and_replays() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    let claim = proceed(&store, &id(1), 1).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = store.reserve(&id(2), reserve(1)).await.expect_err("Redis is full");
    assert_eq!((full.kind(), full.certainty()), (ErrorKind::Refused, Certainty::NotApplied));
    let told = store.finish(&id(1), finish(claim, b"done")).await.expect("finishing is allowed");
    assert_eq!(told, FinishVerdict::Stored);
    assert_eq!(replayed(&store, &id(1)).await, b"done");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    proceed(&store, &id(2), 1).await;
}

#[tokio::test]
async fn too_few_replicas_are_a_refusal_without_effect() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    let claim = proceed(&store, &id(2), 1).await;
    store.finish(&id(2), finish(claim, b"done")).await.expect("stored");
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = store.reserve(&id(1), reserve(1)).await.expect_err("no replica");
    assert_eq!((refused.kind(), refused.certainty()), (ErrorKind::Refused, Certainty::NotApplied));
    assert_eq!(replayed(&store, &id(2)).await, b"done");
}

#[tokio::test]
async fn a_demoted_primary_is_left_and_taken_back_when_promoted() {
    let other = RedisServer::start();
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let refused = store.reserve(&id(1), reserve(1)).await.expect_err("it is a replica now");
    assert_eq!(refused.certainty(), Certainty::NotApplied);
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    assert!(store.ready(PATIENCE).await.ready);
    proceed(&store, &id(1), 1).await;
}

#[tokio::test]
async fn somebody_elses_type_under_our_name_is_unknown_and_no_run() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    server.cli(&["RPUSH", &redis_name(&id(1)), "not ours"]);
    let unreadable = ReserveVerdict::Unknown { reason: UnknownReason::Unreadable, answer: None };
    // Never an error: a route that runs without its store would take it for an outage.
    assert_eq!(store.reserve(&id(1), reserve(1)).await.expect("a verdict"), unreadable);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(store.reserve(&id(1), reserve(1)).await.expect("a verdict"), unreadable);
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let claim = Claim { owner: OwnerToken([1; 16]), fence: Fence(1) };
    let error = store.finish(&id(1), finish(claim, b"x")).await.expect_err("a list");
    assert_eq!((error.kind(), error.certainty()), (ErrorKind::Corrupt, Certainty::NotApplied));
    assert_eq!(server.cli(&["LRANGE", &redis_name(&id(1)), "0", "-1"]), "not ours");
    // The connection is none the worse for it, and neither is a listing.
    proceed(&store, &id(2), 1).await;
    assert_eq!(store.scan(10, ScanFilter::All).await.expect("a listing").len(), 1);
}

#[tokio::test]
async fn a_text_under_our_name_is_unknown_and_no_run() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    server.cli(&["SET", &redis_name(&id(1)), "not ours"]);
    let told = store.reserve(&id(1), reserve(1)).await.expect("a verdict");
    let reason = UnknownReason::Unreadable;
    assert_eq!(told, ReserveVerdict::Unknown { reason, answer: None });
}

#[tokio::test]
async fn redis_keeps_a_record_as_long_as_its_retention() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    let left = || {
        let left: u64 = server.cli(&["PTTL", &redis_name(&id(1))]).parse().expect("a number");
        Duration::from_millis(left)
    };
    // Redis forgets by whole milliseconds, rounded up.
    let about = |span: Duration| span - Duration::from_secs(30)..=span + Duration::from_millis(1);
    let claim = proceed(&store, &id(1), 1).await;
    assert!(about(LEASE + RETENTION).contains(&left()), "{:?}", left());
    store.finish(&id(1), finish(claim, b"done")).await.expect("stored");
    assert!(about(RETENTION).contains(&left()), "{:?}", left());
    server.cli(&["PEXPIRE", &redis_name(&id(1)), "0"]);
    proceed(&store, &id(1), 2).await;
}

#[tokio::test]
async fn the_time_is_that_of_redis() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    let redis_now = || {
        let time = server.cli(&["TIME"]);
        let (seconds, micros) = time.split_once('\n').expect("two numbers");
        seconds.parse::<u64>().expect("seconds") * 1_000_000
            + micros.parse::<u64>().expect("microseconds")
    };
    let before = redis_now();
    let told = store.reserve(&id(1), reserve(1)).await.expect("a verdict");
    let ReserveVerdict::Proceed { fence, now } = told else { panic!("{told:?}") };
    assert_eq!(fence, Fence(now.0));
    assert!((before..=redis_now()).contains(&now.0));
}

#[tokio::test]
async fn two_namespaces_share_a_redis_and_nothing_else() {
    let server = RedisServer::start();
    let config = redis_config(&server);
    let one = redis_store(config.clone()).await;
    let two = redis_store(RedisConfig { namespace: "test2".to_owned(), ..config }).await;
    proceed(&one, &id(1), 1).await;
    proceed(&two, &id(1), 1).await;
    assert_eq!(one.scan(10, ScanFilter::All).await.expect("a listing").len(), 1);
}

#[tokio::test]
async fn a_listing_of_many_records_is_complete() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    for n in 0..700 {
        proceed(&store, &id(n), 1).await;
    }
    let mut listed = store.scan(usize::MAX, ScanFilter::InFlight).await.expect("a listing");
    listed.sort_by_key(|(id, _)| *id);
    listed.dedup_by_key(|(id, _)| *id);
    assert_eq!(listed.len(), 700);
    assert_eq!(store.scan(10, ScanFilter::All).await.expect("a listing").len(), 10);
}
