//! Redis goes away, comes back, hangs, and forgets its scripts.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncegate_core::{FinishVerdict, ReserveVerdict};
use oncegate_store::{Certainty, ErrorKind, RedisConfig, RedisStore, Store};
use oncegate_test_redis::RedisServer;
use support::calls::{finish, id, proceed, replayed, reserve};
use support::{PATIENCE, redis_config, redis_store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

/// Stands between the store and its Redis and lets answers through slowly. Counts connections.
async fn slow_proxy(to: u16, bytes_per_step: usize, step: Duration) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let server = TcpStream::connect(("127.0.0.1", to)).await.expect("Redis");
            let (mut asks, mut is_told) = client.into_split();
            let (mut answers, mut hears) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut asks, &mut hears).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; bytes_per_step];
                while let Ok(len @ 1..) = answers.read(&mut buffer).await {
                    if is_told.write_all(&buffer[..len]).await.is_err() {
                        return;
                    }
                    // Small answers pass as they are.
                    if len == bytes_per_step {
                        tokio::time::sleep(step).await;
                    }
                }
            });
        }
    });
    (port, connections)
}

#[tokio::test]
async fn a_slow_answer_does_not_take_the_connection_from_everybody() {
    let server = RedisServer::start();
    let direct = redis_store(redis_config(&server)).await;
    for n in 0..4u64 {
        let claim = proceed(&direct, &id(n), 1).await;
        let body = [n as u8; 400 << 10];
        direct.finish(&id(n), finish(claim, &body)).await.expect("stored");
    }
    let claim = proceed(&direct, &id(4), 1).await;
    direct.finish(&id(4), finish(claim, b"small")).await.expect("stored");
    // Some 400 ms for each large answer.
    let (port, connections) = slow_proxy(server.port(), 32 << 10, Duration::from_millis(30)).await;
    let url = format!("redis://127.0.0.1:{port}/0");
    let timeout = Duration::from_millis(600);
    let store = redis_store(RedisConfig { url, timeout, ..redis_config(&server) }).await;
    let ids: Vec<_> = (0..4).map(id).collect();
    let told = futures::future::join_all(ids.iter().map(|id| store.reserve(id, reserve(9)))).await;
    let late: Vec<_> = told.into_iter().filter_map(Result::err).collect();
    assert!(!late.is_empty(), "none of them had to wait for others");
    for error in late {
        let said = (error.kind(), error.certainty());
        assert_eq!(said, (ErrorKind::TimedOut, Certainty::MaybeApplied), "{error:?}");
        assert!(store.health().ready, "{:?}", store.health());
    }
    // What nobody waits for any more goes by, and reaches nobody.
    let told = async {
        loop {
            match store.reserve(&id(9), reserve(1)).await {
                Ok(told) => return told,
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}"),
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await.expect("it is only slow");
    assert!(matches!(told, ReserveVerdict::Proceed { .. }), "{told:?}");
    assert_eq!(replayed(&store, &id(4)).await, b"small");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
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
