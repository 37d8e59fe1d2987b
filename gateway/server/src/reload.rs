//! Reload while traffic flows: the whole new generation is read, checked, compiled and tried,
//! and only then swapped in by one pointer. Any error: the old generation keeps serving and the
//! reason is in the log, the metric and on the admin listener.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use oncegate_plugin_host::Host;
use oncegate_policy::{Settings, Source, Watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::gateway::{Gateway, ReloadReport};
use crate::generation::Generation;

/// The files that were loaded, watched since before that.
pub(crate) struct Watched {
    pub(crate) source: Source,
    pub(crate) watcher: Watcher,
    pub(crate) changed: mpsc::Receiver<()>,
}

/// What a reload needs besides the gateway.
pub(crate) struct Reloader {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) host: Host,
    /// What the process was started with.
    pub(crate) settings: Settings,
    pub(crate) watched: Watched,
}

impl Reloader {
    /// Reloads whenever a watched file changes or SIGHUP arrives, until `stop` fires.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut hangup = hangup();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                signal = self.watched.changed.recv() => if signal.is_none() { return },
                () = hangup.next() => {}
            }
            self.reload().await;
        }
    }

    async fn reload(&mut self) {
        let number = self.gateway.generation.load().number + 1;
        let source = self.watched.source.clone();
        // Reading files blocks; traffic must not wait for a slow disk.
        let loaded = tokio::task::spawn_blocking(move || oncegate_policy::load(&source)).await;
        let mut loaded = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(problems)) => {
                // Also what repairs a refused policy must be seen.
                self.watch(problems.watched().to_vec());
                return self.refused(problems.to_string());
            }
            Err(_panic) => return self.refused("reading the policies failed".to_owned()),
        };
        let needs_restart = self.settings.needs_restart(&loaded.settings);
        // Another secret would give the same request another key or fingerprint: a retry across
        // the swap would run again, or be refused.
        loaded.settings.secrets = self.settings.secrets.clone();
        self.watch(loaded.policy.files.clone());
        match Generation::build(number, &self.host, loaded).await {
            Ok(generation) => {
                tracing::info!(generation = number, ?needs_restart, "policies reloaded");
                // The report first: whoever sees the new generation finds its report.
                let at = SystemTime::now();
                self.gateway.remember_reload(ReloadReport { at, error: None, needs_restart });
                self.gateway.generation.store(Arc::new(generation));
                self.gateway.metrics.generation.set(number);
                self.gateway.metrics.reloaded("applied");
            }
            Err(problems) => self.refused(problems.to_string()),
        }
    }

    fn watch(&mut self, files: Vec<PathBuf>) {
        if let Err(error) = self.watched.watcher.watch(files) {
            tracing::warn!(%error, "the changed set of files cannot be watched");
        }
    }

    fn refused(&self, error: String) {
        let serving = self.gateway.generation.load().number;
        self.gateway.metrics.reloaded("refused");
        tracing::error!(
            generation = serving,
            error,
            "reload refused; the old policies keep serving"
        );
        let report =
            ReloadReport { at: SystemTime::now(), error: Some(error), needs_restart: Vec::new() };
        self.gateway.remember_reload(report);
    }
}

/// SIGHUP asks for a reload, as operators expect.
struct Hangup(Option<tokio::signal::unix::Signal>);

fn hangup() -> Hangup {
    Hangup(tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok())
}

impl Hangup {
    async fn next(&mut self) {
        let arrived = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if arrived.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
