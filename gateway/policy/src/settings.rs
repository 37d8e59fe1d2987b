//! What the process runs on, as opposed to what it does with requests: addresses, the store,
//! secrets. A reload cannot change most of it; compare two [`Settings`] with
//! [`Settings::needs_restart`] to say so.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::scalar::StoreUrl;
use crate::secret::Secret;

/// Everything outside upstreams, plugins and routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `[listener]`
    pub listener: Listener,
    /// `[admin]`
    pub admin: Admin,
    /// `[store]`
    pub store: Store,
    /// `[drain]`
    pub drain: Drain,
    /// `[secrets]`
    pub secrets: Secrets,
    /// `[plugin_limits]`
    pub plugin_limits: PluginLimits,
    /// `[problems]`
    pub problems: ProblemPages,
}

impl Settings {
    /// The sections that differ and only take effect with a restart.
    pub fn needs_restart(&self, loaded: &Self) -> Vec<&'static str> {
        let sections = [
            ("listener", self.listener == loaded.listener),
            ("admin", self.admin == loaded.admin),
            ("store", self.store == loaded.store),
            ("drain", self.drain == loaded.drain),
            ("secrets", self.secrets == loaded.secrets),
            ("plugin_limits", self.plugin_limits == loaded.plugin_limits),
            ("problems", self.problems == loaded.problems),
        ];
        sections.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}

/// Where clients connect, and how long they may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where to listen.
    pub address: SocketAddr,
    /// From the connection to its first byte.
    pub first_byte_timeout: Duration,
    /// From the connection's first byte, or the end of the request before, to the end of a
    /// request's headers: how long an idle connection is kept, too.
    pub header_timeout: Duration,
    /// From the end of the headers to the end of the body.
    pub body_timeout: Duration,
    /// Connections at a time; more are not accepted until one ends.
    pub max_connections: usize,
}

/// Where operators connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where to listen.
    pub address: SocketAddr,
    /// What a caller must show. Always there unless the address is a loopback one.
    pub token: Option<Secret<String>>,
}

/// Where the records live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Which store.
    pub url: StoreUrl,
    /// Keeps the records of several gateways in one store apart. It is part of every identity.
    pub namespace: String,
    /// How long one command may take.
    pub timeout: Duration,
    /// The login, of a Redis only.
    pub username: Option<String>,
    /// Its password, of a Redis only.
    pub password: Option<Secret<String>>,
    /// Certificates to trust, of a `rediss://` only.
    pub ca_file: Option<PathBuf>,
    /// Whether to start although the Redis may evict records that are still needed.
    pub allow_eviction: bool,
}

/// How the gateway stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long running requests may take to finish.
    pub deadline: Duration,
}

/// Text that must not be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The HMAC key of fingerprints and derived keys, so that a short body cannot be guessed
    /// from its digest. `None` digests without a key.
    pub fingerprint: Option<Secret<String>>,
    /// The others, for plugins.
    pub named: BTreeMap<String, Secret<String>>,
}

/// What one call of a plugin may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginLimits {
    /// Linear memory, in bytes.
    pub memory: usize,
    /// Time on the clock.
    pub wall_time: Duration,
}

/// Where clients read about the gateway's own answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemPages {
    /// Problem types become `{base_url}{code}`; `None` names them by URN.
    pub base_url: Option<String>,
}
