//! The composition root: the only file that names concrete stores, sockets and signals.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use oncegate_policy::{Loaded, Settings, StoreUrl};
use oncegate_store::{EmbeddedOptions, EmbeddedStore, RedisConfig, RedisStore, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::exchange::exchange;
use crate::gateway::Gateway;
use crate::generation::Generation;
use crate::listener::{self, Limits};
use crate::reload::{Reloader, Watched};
use crate::{admin, plugins};

/// After the drain deadline: how long releases and unknown marks may still take.
const LAST_WRITES: Duration = Duration::from_secs(3);

/// How long one attempt to reach a Redis may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A running gateway.
pub(crate) struct App {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    /// Where operators connect.
    pub(crate) admin_address: SocketAddr,
    gateway: Arc<Gateway>,
    settings: Settings,
    stop: CancellationToken,
    /// The admin listener stays up while the gateway drains, to say so.
    stop_admin: CancellationToken,
    clients: tokio::task::JoinHandle<()>,
    operators: tokio::task::JoinHandle<()>,
}

impl App {
    /// Builds everything and starts to listen. `watched` are the files to reload, if there are
    /// files at all.
    pub(crate) async fn start(loaded: Loaded, watched: Option<Watched>) -> anyhow::Result<Self> {
        let settings = loaded.settings.clone();
        let host = plugins::host(&settings)?;
        if let Some(watched) = &watched {
            // Before the plugins are read, so that no change to them is missed.
            let files = loaded.policy.files.clone();
            watched.watcher.watch(files).context("the policy's files cannot be watched")?;
        }
        let generation = Generation::build(1, &host, loaded).await?;
        let store = open_store(&settings).await?;
        let gateway = Arc::new(Gateway::new(store, generation, &settings));
        let tcp = bind("listener.address", settings.listener.address).await?;
        let admin_tcp = bind("admin.address", settings.admin.address).await?;
        let (address, admin_address) = (tcp.local_addr()?, admin_tcp.local_addr()?);
        let (stop, stop_admin) = (CancellationToken::new(), CancellationToken::new());
        if let Some(watched) = watched {
            let (gateway, settings) = (Arc::clone(&gateway), settings.clone());
            let reloader = Reloader { gateway, host, settings, watched };
            tokio::spawn(reloader.run(stop.clone()));
        }
        let clients = tokio::spawn(listener::serve(
            tcp,
            edge(Arc::clone(&gateway)),
            limits(&settings),
            gateway.metrics.connections.clone(),
            stop.clone(),
        ));
        let token = settings.admin.token.as_ref().map(|token| token.expose().to_owned());
        let operators = tokio::spawn(listener::serve(
            admin_tcp,
            admin::router(Arc::clone(&gateway), token),
            limits(&settings),
            prometheus_client::metrics::gauge::Gauge::default(),
            stop_admin.clone(),
        ));
        Ok(Self { address, admin_address, gateway, settings, stop, stop_admin, clients, operators })
    }

    /// Serves until SIGTERM or SIGINT, then drains: stops accepting, finishes what runs under
    /// its own deadline, releases or marks unknown what is left at the drain deadline. A second
    /// signal means that the deadline is now.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        interrupted().await?;
        let Self { gateway, settings, stop, stop_admin, mut clients, operators, .. } = self;
        let patience = settings.drain.deadline;
        tracing::info!(deadline = ?patience, "draining");
        gateway.start_draining();
        stop.cancel();
        gateway.tasks.close();
        let finished = async {
            gateway.tasks.wait().await;
            // Answers are still being written; idle connections were closed at once.
            drop((&mut clients).await);
            // A request that was still arriving may have begun something in between.
            gateway.tasks.wait().await;
        };
        tokio::select! {
            () = finished => {}
            () = tokio::time::sleep(patience) => cut_short(&gateway, &mut clients).await,
            _ = interrupted() => cut_short(&gateway, &mut clients).await,
        }
        stop_admin.cancel();
        drop(tokio::time::timeout(LAST_WRITES, operators).await);
        gateway.store.close().await;
        tracing::info!("drained");
        Ok(())
    }
}

/// The drain deadline is over: what still runs is dropped, and its permits write down why.
async fn cut_short(gateway: &Gateway, clients: &mut tokio::task::JoinHandle<()>) {
    tracing::warn!("the drain deadline is over; what still runs is released or marked unknown");
    gateway.drain_over.cancel();
    drop(tokio::time::timeout(LAST_WRITES, gateway.tasks.wait()).await);
    if !clients.is_finished() {
        drop(tokio::time::timeout(LAST_WRITES, clients).await);
    }
}

/// Binds the whole edge to one function: axum is the service inside, every request is ours.
fn edge(gateway: Arc<Gateway>) -> Router {
    async fn any(
        State(gateway): State<Arc<Gateway>>,
        request: Request,
    ) -> axum::response::Response {
        exchange(gateway, request).await
    }
    Router::new().fallback(any).with_state(gateway)
}

async fn bind(setting: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{setting}: cannot listen on {address}"))
}

fn limits(settings: &Settings) -> Limits {
    let listener = &settings.listener;
    Limits {
        first_byte: listener.first_byte_timeout,
        header: listener.header_timeout,
        connections: listener.max_connections,
        header_lines: 64,
        head_bytes: 32 * 1024,
        streams: 100,
    }
}

async fn open_store(settings: &Settings) -> anyhow::Result<Arc<dyn Store>> {
    let store = &settings.store;
    match &store.url {
        StoreUrl::Embedded(path) => {
            let opened = EmbeddedStore::open(path, EmbeddedOptions::default()).await;
            let opened =
                opened.with_context(|| format!("store.url: embedded:{}", path.display()))?;
            Ok(Arc::new(opened))
        }
        StoreUrl::Redis(url) => {
            let ca_pem = match &store.ca_file {
                Some(path) => Some(std::fs::read(path).with_context(|| {
                    format!("store.ca_file: {} cannot be read", path.display())
                })?),
                None => None,
            };
            let redis = RedisStore::new(RedisConfig {
                url: url.clone(),
                namespace: store.namespace.clone(),
                username: store.username.clone(),
                password: store.password.as_ref().map(|secret| secret.expose().to_owned()),
                ca_pem,
                timeout: store.timeout,
                connect_timeout: CONNECT_TIMEOUT,
                allow_eviction: store.allow_eviction,
            })
            .context("store.url")?;
            // A store that is away does not keep the gateway from starting: it is not ready,
            // says why, and tries on.
            let health = redis.ready(CONNECT_TIMEOUT * 2).await;
            for warning in &health.warnings {
                tracing::warn!(warning, "store");
            }
            if !health.ready {
                let problem = health.problem.as_deref().unwrap_or("no answer yet");
                tracing::error!(
                    problem,
                    "the store is not ready; guarded requests are refused until it is"
                );
            }
            Ok(Arc::new(redis))
        }
    }
}

/// SIGTERM or SIGINT.
async fn interrupted() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be watched")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be watched")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Tells whoever started the process where it listens, one line each.
pub(crate) fn announce(app: &App) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on http://{}", app.address)?;
    writeln!(out, "admin on http://{}", app.admin_address)?;
    out.flush()
}
