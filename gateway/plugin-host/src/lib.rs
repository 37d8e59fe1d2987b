//! The boundary to plugins: what a guest may see, do, cost and return.
//!
//! A plugin is a WebAssembly component that somebody else wrote. It is trusted to *decide* (an
//! operator put it into the policy) and with nothing else:
//!
//! - **It sees** one request, through functions that are bound to one call (`imports`), and its
//!   own configuration. No clock, randomness, file, socket, environment or other request: an
//!   import outside `oncegate:plugin` keeps it from loading, and a fresh instance per request
//!   means that nothing is left over from the last one.
//! - **It does** nothing to the outside, except log lines that are cut, counted and marked.
//! - **It costs** at most the [`Limits`]: time, memory, host calls, size of its answer. Time is
//!   watched by a ticker, so an endless loop ends within a millisecond of its limit; bulk memory
//!   operations cannot be interrupted, and are bounded by the memory. Past a limit the instance
//!   is thrown away and the request gets a [`DeriveError`]; the next request is not affected.
//! - **It returns** a decision that is checked rule by rule (`decision`). Keys are made from
//!   *parts* on this side (`parts`), so no guest hashes or joins values.
//!
//! A plugin must be a pure function, because a retry is recognised by getting the same key. That
//! is enforced by the imports, by engine settings that make floating point deterministic
//! (`engine`), and probed when a plugin is loaded: two fresh instances must agree about the
//! manifest and about sample requests (`golden`).
//!
//! Reading order: `plugin` (loading and asking), `derive` (one call), then the files above.

mod bindings;
mod canonical;
mod catalog;
mod decision;
mod derive;
mod engine;
mod error;
mod golden;
mod imports;
mod multipart;
mod parts;
mod plugin;
mod request;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use wasmtime::Engine;

pub use decision::{Decision, KeySource, Refusal, Tracking};
pub use error::{DeriveError, LoadError, Problem};
pub use parts::{Part, PartError, Resolved, derived_key, digest, resolve};
pub use plugin::{Manifest, Needs, Plugin, PluginSource};
pub use request::{Cache, Request};

/// What a guest may cost. Every plugin of a host has the same limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// All memories of one instance together: 64 MiB.
    pub memory_bytes: usize,
    /// `configure` and `derive` of one request together: 50 ms.
    pub wall_time: Duration,
    /// The component file: 32 MiB.
    pub component_bytes: usize,
    /// Calls of host functions for one request: 10 000.
    pub host_calls: u32,
    /// All text of one decision together: 64 KiB.
    pub output_bytes: usize,
    /// Instances at work at the same time; more wait, for `wall_time` at most: 32.
    pub concurrent_instances: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 * 1024 * 1024,
            wall_time: Duration::from_millis(50),
            component_bytes: 32 * 1024 * 1024,
            host_calls: 10_000,
            output_bytes: 64 * 1024,
            concurrent_instances: 32,
        }
    }
}

/// Runs plugins. Cheap to clone; one per process is enough.
#[derive(Clone)]
pub struct Host(Arc<Runtime>);

/// What all plugins of a host share.
pub(crate) struct Runtime {
    pub(crate) engine: Engine,
    pub(crate) limits: Limits,
    /// As many as the engine has room for, so that waiting happens here and not by polling.
    pub(crate) slots: Semaphore,
    pub(crate) catalog: catalog::Catalog,
}

impl Host {
    /// Starts the engine and its ticker.
    pub fn new(limits: Limits) -> Result<Self, LoadError> {
        let failed = |error: wasmtime::Error| LoadError::Engine(format!("{error:#}"));
        let engine = engine::start(&limits).map_err(failed)?;
        let catalog = catalog::Catalog::new(&engine).map_err(failed)?;
        let slots = Semaphore::new(limits.concurrent_instances.max(1) as usize);
        Ok(Self(Arc::new(Runtime { engine, limits, slots, catalog })))
    }

    /// Checks, compiles (off the request path, once per content), configures and tries out a
    /// plugin. What comes back is ready; on an error nothing is left behind.
    pub async fn load(&self, source: PluginSource) -> Result<Arc<Plugin>, LoadError> {
        Plugin::load(&self.0, source).await.map(Arc::new)
    }

    /// How many different components are compiled and in use: what a gauge would show. It
    /// follows the policy, not the number of reloads.
    pub fn components_in_use(&self) -> usize {
        self.0.catalog.in_use()
    }
}
