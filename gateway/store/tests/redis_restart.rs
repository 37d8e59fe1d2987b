//! Redis goes away, comes back, hangs, and forgets its scripts.

mod support;

use std::time::Duration;

use oncegate_core::{FinishVerdict, ReserveVerdict};
use oncegate_store::{Certainty, ErrorKind, RedisConfig, RedisStore, Store};
use oncegate_test_redis::RedisServer;
use support::calls::{finish, id, proceed, replayed, reserve};
use support::{PATIENCE, redis_config, redis_store};

/// Waits until the store has noticed that its connection is gone.
async fn noticed(store: &RedisStore) {
    let gone = async {
        while store.health().ready {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the loss was noticed");
}

#[tokio::test]
async fn a_killed_redis_is_noticed_and_used_again_after_its_restart() {
    let mut server =
        RedisServer::builder().config("appendonly", "yes").config("appendfsync", "always").start();
    let store = redis_store(redis_config(&server)).await;
    let claim = proceed(&store, &id(1), 1).await;

    server.kill();
    noticed(&store).await;
    let refused = store.reserve(&id(2), reserve(1)).await.expect_err("Redis is down");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(refused.certainty(), Certainty::NotApplied);
    assert!(store.health().problem.is_some());

    // Its scripts are gone, its records are not.
    server.restart();
    assert!(store.ready(PATIENCE).await.ready);
    let told = store.finish(&id(1), finish(claim, b"done")).await.expect("stored");
    assert_eq!(told, FinishVerdict::Stored);
    assert_eq!(replayed(&store, &id(1)).await, b"done");
}

#[tokio::test]
async fn a_redis_that_forgot_everything_restores_what_is_finished() {
    let mut server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    let claim = proceed(&store, &id(1), 1).await;
    server.restart();
    noticed(&store).await;
    assert!(store.ready(PATIENCE).await.ready);
    let told = store.finish(&id(1), finish(claim, b"done")).await.expect("stored");
    assert_eq!(told, FinishVerdict::Restored);
}

#[tokio::test]
async fn forgotten_scripts_are_not_noticed_by_callers() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    let claim = proceed(&store, &id(1), 1).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    store.finish(&id(1), finish(claim, b"done")).await.expect("stored");
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(replayed(&store, &id(1)).await, b"done");
}

#[tokio::test]
async fn a_hanging_redis_times_out_and_its_late_answers_reach_nobody() {
    let server = RedisServer::start();
    let timeout = Duration::from_millis(200);
    let store = redis_store(RedisConfig { timeout, ..redis_config(&server) }).await;
    let claim = proceed(&store, &id(1), 1).await;
    store.finish(&id(1), finish(claim, b"of one")).await.expect("stored");

    server.pause();
    let late = store.reserve(&id(1), reserve(2)).await.expect_err("it hangs");
    assert_eq!((late.kind(), late.certainty()), (ErrorKind::TimedOut, Certainty::MaybeApplied));
    let refused = store.reserve(&id(2), reserve(2)).await.expect_err("its connection is gone");
    assert_eq!(refused.certainty(), Certainty::NotApplied);

    server.resume();
    assert!(store.ready(PATIENCE).await.ready);
    // The first answer now would be the one above, were the connection still the same.
    let told = store.reserve(&id(3), reserve(1)).await.expect("a verdict");
    assert!(matches!(told, ReserveVerdict::Proceed { .. }), "{told:?}");
    assert_eq!(replayed(&store, &id(1)).await, b"of one");
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_shift_the_answers() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    for n in 0..20 {
        let claim = proceed(&store, &id(n), 1).await;
        store.finish(&id(n), finish(claim, &n.to_be_bytes())).await.expect("stored");
    }
    for n in 0..20u64 {
        let left = tokio::time::timeout(Duration::ZERO, store.reserve(&id(n), reserve(9))).await;
        drop(left);
        let next = (n + 7) % 20;
        assert_eq!(replayed(&store, &id(next)).await, next.to_be_bytes());
    }
}

#[tokio::test]
async fn one_timeout_does_not_break_many() {
    let server = RedisServer::start();
    let store = redis_store(redis_config(&server)).await;
    let calls = (0..200).map(|n| {
        let store = &store;
        async move { proceed(store, &id(n), 1).await }
    });
    assert_eq!(futures::future::join_all(calls).await.len(), 200);
}
