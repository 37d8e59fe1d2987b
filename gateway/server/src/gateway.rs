//! What every request shares: the store, the current generation, the upstream client, the
//! metrics, and the tasks that outlive their clients.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use oncegate_policy::Settings;
use oncegate_store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::generation::Generation;
use crate::metrics::Metrics;
use crate::upstream::UpstreamClient;
use crate::waiting::Waiting;

/// The outcome of the latest reload attempt, as the admin listener shows it.
#[derive(Clone, Debug)]
pub(crate) struct ReloadReport {
    /// When it was tried.
    pub(crate) at: SystemTime,
    /// Every reason it was refused; `None` when it was applied or changed nothing.
    pub(crate) error: Option<String>,
    /// What it touched that only a restart applies.
    pub(crate) needs_restart: Vec<&'static str>,
}

/// See the module.
pub(crate) struct Gateway {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) generation: ArcSwap<Generation>,
    pub(crate) upstream: UpstreamClient,
    pub(crate) metrics: Metrics,
    /// Callers that wait for another's answer.
    pub(crate) waiting: Arc<Waiting>,
    /// Part of every identity, so that gateways of different installations share a store.
    pub(crate) namespace: String,
    /// How long a guarded request's body may take to arrive.
    pub(crate) body_timeout: Duration,
    /// Base URL of problem pages.
    pub(crate) problem_base: Option<String>,
    /// Work that goes on when its client leaves: reservations, upstream calls, recordings.
    pub(crate) tasks: TaskTracker,
    /// Fires when the drain deadline is over: what still runs is released or left unknown.
    pub(crate) drain_over: CancellationToken,
    pub(crate) last_reload: Mutex<Option<ReloadReport>>,
    draining: AtomicBool,
}

impl Gateway {
    /// Puts the parts together; the composition root is `app.rs`.
    pub(crate) fn new(store: Arc<dyn Store>, generation: Generation, settings: &Settings) -> Self {
        let metrics = Metrics::new();
        metrics.generation.set(generation.number);
        Self {
            store,
            generation: ArcSwap::from_pointee(generation),
            upstream: UpstreamClient::new(),
            metrics,
            waiting: Arc::default(),
            namespace: settings.store.namespace.clone(),
            body_timeout: settings.listener.body_timeout,
            problem_base: settings.problems.base_url.clone(),
            tasks: TaskTracker::new(),
            drain_over: CancellationToken::new(),
            last_reload: Mutex::new(None),
            draining: AtomicBool::new(false),
        }
    }

    /// From here on the gateway is not ready and takes no new connections.
    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether [`Gateway::start_draining`] was called.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The latest reload attempt, if there was one.
    pub(crate) fn last_reload(&self) -> Option<ReloadReport> {
        self.last_reload.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Remembers a reload attempt for the admin listener.
    pub(crate) fn remember_reload(&self, report: ReloadReport) {
        *self.last_reload.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(report);
    }
}
