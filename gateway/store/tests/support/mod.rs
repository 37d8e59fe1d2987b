//! The stores as subjects for the conformance clauses.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod calls;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use oncegate_core::{Identity, Timestamp};
use oncegate_store::conformance::Subject;
use oncegate_store::{
    Clock, EmbeddedOptions, EmbeddedStore, MemoryStore, RedisConfig, RedisStore, Store,
};
use oncegate_test_redis::RedisServer;
use tempfile::TempDir;

/// Long enough for a slow machine; nothing waits for it when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A clock that the test moves, starting at a plausible time.
pub(crate) fn clock() -> Clock {
    Clock::manual(Timestamp(1_790_000_000_000_000))
}

pub(crate) struct Memory {
    pub(crate) store: MemoryStore,
    pub(crate) clock: Clock,
}

impl Memory {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { store: MemoryStore::new(clock.clone()), clock }
    }
}

impl Subject for Memory {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn pass(&self, span: Duration) {
        self.clock.pass(span);
    }

    fn plant<'a>(&'a self, id: &'a Identity, bytes: &'a [u8]) -> BoxFuture<'a, ()> {
        async move { self.store.plant(id, bytes) }.boxed()
    }
}

pub(crate) struct Embedded {
    // Before its directory, so that it goes first.
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) clock: Clock,
    pub(crate) dir: TempDir,
}

impl Embedded {
    pub(crate) async fn new(clock: Clock) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        // Swept only when a test says so: the histories compare what is there.
        let sweep_every = Duration::from_secs(3600);
        let options = EmbeddedOptions { clock: clock.clone(), sweep_every, ..Default::default() };
        let store = EmbeddedStore::open(dir.path(), options).await.expect("a store");
        Self { store: Arc::new(store), clock, dir }
    }
}

impl Subject for Embedded {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn pass(&self, span: Duration) {
        self.clock.pass(span);
    }

    fn plant<'a>(&'a self, id: &'a Identity, bytes: &'a [u8]) -> BoxFuture<'a, ()> {
        async move { self.store.plant(id, bytes).await.expect("planted") }.boxed()
    }
}

pub(crate) struct Redis {
    pub(crate) store: RedisStore,
    pub(crate) clock: Clock,
    pub(crate) server: RedisServer,
}

impl Redis {
    pub(crate) async fn new(clock: Clock) -> Self {
        let server = RedisServer::start();
        let config = redis_config(&server);
        let store = RedisStore::with_test_clock(config, clock.clone()).expect("good settings");
        let health = store.ready(PATIENCE).await;
        assert!(health.ready, "{health:?}");
        Self { store, clock, server }
    }
}

impl Subject for Redis {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn pass(&self, span: Duration) {
        self.clock.pass(span);
    }

    fn plant<'a>(&'a self, id: &'a Identity, bytes: &'a [u8]) -> BoxFuture<'a, ()> {
        let told = self.server.command(&[b"SET", redis_name(id).as_bytes(), bytes]);
        async move { assert_eq!(told, "OK") }.boxed()
    }
}

/// Settings for a test server. The time-out is generous: a busy machine is not a fault.
pub(crate) fn redis_config(server: &RedisServer) -> RedisConfig {
    RedisConfig {
        url: server.url(),
        namespace: NAMESPACE.to_owned(),
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        ..RedisConfig::default()
    }
}

pub(crate) const NAMESPACE: &str = "test";

/// The documented name of a record.
pub(crate) fn redis_name(id: &Identity) -> String {
    format!("{NAMESPACE}:{{{}}}", id.to_hex())
}

/// A connected store by Redis's own clock.
pub(crate) async fn redis_store(config: RedisConfig) -> RedisStore {
    let store = RedisStore::new(config).expect("good settings");
    let health = store.ready(PATIENCE).await;
    assert!(health.ready, "{health:?}");
    store
}
