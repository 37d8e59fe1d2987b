//! The clauses over the embedded store, and what only it does.

mod support;

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use oncegate_core::*;
use oncegate_store::{Clock, EmbeddedOptions, EmbeddedStore, ErrorKind, Store};
use support::calls::{LEASE, RETENTION, finish, id, proceed, replayed, reserve};

async fn subject() -> support::Embedded {
    support::Embedded::new(support::clock()).await
}

oncegate_store::conformance!(subject);

async fn open(path: &Path, clock: &Clock) -> EmbeddedStore {
    let options = EmbeddedOptions { clock: clock.clone(), ..EmbeddedOptions::default() };
    EmbeddedStore::open(path, options).await.expect("a store")
}

#[tokio::test]
async fn records_are_there_after_closing_and_opening() {
    let (dir, clock) = (tempfile::tempdir().expect("a directory"), support::clock());
    let store = open(dir.path(), &clock).await;
    assert!(store.health().warnings[0].contains("new and empty"), "{:?}", store.health());
    let claim = proceed(&store, &id(1), 1).await;
    store.finish(&id(1), finish(claim, b"done")).await.expect("stored");
    proceed(&store, &id(2), 1).await;
    store.close().await;

    let store = open(dir.path(), &clock).await;
    assert!(store.health().warnings.is_empty(), "{:?}", store.health());
    assert_eq!(replayed(&store, &id(1)).await, b"done");
    let told = store.reserve(&id(2), reserve(2)).await.expect("a verdict");
    assert!(matches!(told, ReserveVerdict::Busy { .. }), "{told:?}");
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_it() {
    let (dir, clock) = (tempfile::tempdir().expect("a directory"), support::clock());
    let _first = open(dir.path(), &clock).await;
    let second = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await;
    let error = second.err().expect("it is locked");
    assert_eq!(error.kind(), ErrorKind::Locked);
    let said = error.to_string();
    assert!(said.contains(&dir.path().display().to_string()), "{said}");
    assert!(said.contains(&std::process::id().to_string()), "{said}");
}

#[tokio::test]
async fn a_store_whose_data_is_gone_is_not_made_anew() {
    let (dir, clock) = (tempfile::tempdir().expect("a directory"), support::clock());
    let store = open(dir.path(), &clock).await;
    proceed(&store, &id(1), 1).await;
    store.close().await;
    std::fs::remove_dir_all(dir.path().join("data")).expect("removed");
    let error = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.err();
    let error = error.expect("every key would run again");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("missing"), "{error}");
}

#[tokio::test]
async fn a_store_of_a_later_version_is_not_touched() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("format"), "oncegate store 2\n").expect("written");
    let error = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.err();
    assert_eq!(error.expect("unknown format").kind(), ErrorKind::Corrupt);
    assert!(!dir.path().join("data").exists());
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_a_setting_that_cannot_work() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let error = EmbeddedStore::open(&file.join("store"), EmbeddedOptions::default()).await.err();
    assert_eq!(error.expect("not a directory").kind(), ErrorKind::Misconfigured);
}

#[tokio::test]
async fn time_does_not_go_back_over_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let late = Clock::manual(Timestamp(2_000_000_000_000_000));
    let store = open(dir.path(), &late).await;
    let before = proceed(&store, &id(1), 1).await;
    store.close().await;
    let early = Clock::manual(Timestamp(1_000_000_000_000_000));
    let store = open(dir.path(), &early).await;
    let after = proceed(&store, &id(2), 1).await;
    assert!(after.fence >= before.fence, "{after:?} after {before:?}");
    let told = store.reserve(&id(1), reserve(2)).await.expect("a verdict");
    assert!(matches!(told, ReserveVerdict::Busy { lease_left, .. } if lease_left <= LEASE));
}

#[tokio::test]
async fn expired_records_are_swept_and_live_ones_are_kept() {
    let subject = subject().await;
    let (store, clock) = (&subject.store, &subject.clock);
    let ids: Vec<Identity> = (0..1500).map(id).collect();
    join_all(ids.iter().map(|id| proceed(&**store, id, 1))).await;
    clock.pass(RETENTION);
    // Kept beyond its first appointment with the sweep.
    let claim = proceed(&**store, &id(2000), 1).await;
    clock.pass(LEASE + RETENTION - Duration::from_micros(1));
    store.finish(&id(2000), finish(claim, b"late")).await.expect("stored");
    assert_eq!(store.sweep().await.expect("swept"), 1, "1500 have expired");
    clock.pass(Duration::from_micros(1));
    assert_eq!(store.sweep().await.expect("swept"), 1);
    assert_eq!(replayed(&**store, &id(2000)).await, b"late");
    clock.pass(RETENTION);
    assert_eq!(store.sweep().await.expect("swept"), 0);
    proceed(&**store, &id(2000), 2).await;
}

#[tokio::test]
async fn a_released_and_reserved_key_is_swept_once_at_its_own_time() {
    let subject = subject().await;
    let (store, clock) = (&subject.store, &subject.clock);
    for n in 1..=20 {
        let claim = proceed(&**store, &id(1), n).await;
        clock.pass(Duration::from_secs(10));
        let release = Release { owner: claim.owner, fence: Some(claim.fence) };
        store.release(&id(1), release).await.expect("released");
    }
    let claim = proceed(&**store, &id(1), 99).await;
    store.finish(&id(1), finish(claim, b"done")).await.expect("stored");
    clock.pass(RETENTION - Duration::from_micros(1));
    assert_eq!(store.sweep().await.expect("swept"), 1);
    assert_eq!(replayed(&**store, &id(1)).await, b"done");
}

#[tokio::test]
async fn the_sweep_never_takes_what_it_cannot_read() {
    let subject = subject().await;
    let (store, clock) = (&subject.store, &subject.clock);
    store.plant(&id(1), b"rubbish").await.expect("planted");
    for _ in 0..3 {
        clock.pass(Duration::from_secs(2 * 24 * 60 * 60));
        assert_eq!(store.sweep().await.expect("swept"), 1);
    }
    let told = store.reserve(&id(1), reserve(1)).await.expect("a verdict");
    assert!(matches!(told, ReserveVerdict::Unknown { reason: UnknownReason::Unreadable, .. }));
    // Resolved and used again, the key has an end like any other.
    let never =
        Resolve { fence: None, resolution: Resolution::NeverHappened, retention: RETENTION };
    store.resolve(&id(1), never).await.expect("resolved");
    proceed(&**store, &id(1), 1).await;
    clock.pass(2 * RETENTION);
    assert_eq!(store.sweep().await.expect("swept"), 0);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_without_effect() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = EmbeddedOptions { queue_max: 2, ..EmbeddedOptions::default() };
    let store = EmbeddedStore::open(dir.path(), options).await.expect("a store");
    let ids: Vec<Identity> = (0..500).map(id).collect();
    let told = join_all(ids.iter().map(|id| store.reserve(id, reserve(1)))).await;
    for (id, told) in ids.iter().zip(told) {
        let kept = store.peek(id).await.expect("a look").is_some();
        match told {
            Ok(verdict) => {
                assert!(kept && matches!(verdict, ReserveVerdict::Proceed { .. }), "{verdict:?}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(!kept, "it was refused");
            }
        }
    }
}

#[tokio::test]
async fn one_batch_sees_its_own_changes_in_order() {
    let subject = subject().await;
    let store = &subject.store;
    // All are queued before the first is synced, so most of them share batches.
    for round in 0..50 {
        let (a, b) = (id(round), id(round + 1000));
        let told = futures::join!(
            store.reserve(&a, reserve(1)),
            store.reserve(&a, reserve(2)),
            store.reserve(&b, reserve(1)),
            store.release(&a, Release { owner: OwnerToken([1; 16]), fence: None }),
            store.reserve(&a, reserve(3)),
        );
        assert!(matches!(told.0, Ok(ReserveVerdict::Proceed { .. })), "{told:?}");
        assert!(matches!(told.1, Ok(ReserveVerdict::Busy { .. })), "{told:?}");
        assert!(matches!(told.2, Ok(ReserveVerdict::Proceed { .. })), "{told:?}");
        assert!(matches!(told.3, Ok(ReleaseVerdict::Released)), "{told:?}");
        assert!(matches!(told.4, Ok(ReserveVerdict::Proceed { .. })), "{told:?}");
    }
}
