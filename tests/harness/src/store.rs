//! The store behind a gateway: a directory, or a real Redis of this test's own.

use std::path::PathBuf;

use oncegate_test_redis::RedisServer;
use tempfile::TempDir;

/// Which store a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// The embedded store: one gateway, one directory.
    Embedded,
    /// A Redis server: as many gateways as the test likes.
    Redis,
}

/// A store that outlives the gateways in front of it. A gateway that is killed and started again
/// on the same `Store` finds what was on disk.
pub struct Store {
    backing: Backing,
}

enum Backing {
    Embedded(TempDir),
    Redis(Box<RedisServer>),
}

impl Store {
    /// An empty store.
    pub fn start(kind: StoreKind) -> Self {
        let backing = match kind {
            StoreKind::Embedded => {
                Backing::Embedded(tempfile::tempdir().expect("a temporary directory can be made"))
            }
            StoreKind::Redis => Backing::Redis(Box::new(RedisServer::start())),
        };
        Self { backing }
    }

    /// An empty Redis.
    pub fn redis() -> Self {
        Self::start(StoreKind::Redis)
    }

    /// As the policy file names it.
    pub fn url(&self) -> String {
        match &self.backing {
            Backing::Embedded(directory) => format!("embedded:{}", directory.path().display()),
            Backing::Redis(server) => server.url(),
        }
    }

    /// The directory of an embedded store.
    pub fn directory(&self) -> Option<PathBuf> {
        match &self.backing {
            Backing::Embedded(directory) => Some(directory.path().to_owned()),
            Backing::Redis(_) => None,
        }
    }

    /// The Redis server; panics on an embedded store.
    pub fn server(&mut self) -> &mut RedisServer {
        match &mut self.backing {
            Backing::Redis(server) => server,
            Backing::Embedded(_) => panic!("this case is about Redis"),
        }
    }

    /// What one Redis command prints.
    pub fn cli(&self, command: &[&str]) -> String {
        match &self.backing {
            Backing::Redis(server) => server.cli(command),
            Backing::Embedded(_) => panic!("this case is about Redis"),
        }
    }
}
