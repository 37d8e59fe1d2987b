//! `oncegate demo`: a gateway on its embedded store, in front of a small payments service that
//! comes with it, and three commands to paste.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use clap::Args;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Failure, Overrides, load_watched};
use crate::app::{App, announce};
use crate::listener::{self, Limits};

pub(super) const EXAMPLES: &str = "\
Examples:
  oncegate demo
      Listens on 127.0.0.1:8080 and prints three curl commands: a charge, its replay, and a
      reused key that is refused. Ctrl-C drains.
  oncegate demo --listen 127.0.0.1:0 --dir /tmp/demo
      Another address, another directory for its policy file and data.";

/// What the demo serves; the same text that users copy.
const POLICY: &str = include_str!("../../../../policies/demo.toml");
/// Where the policy says the payments service is.
const POLICY_ENDPOINT: &str = "http://127.0.0.1:9001";

#[derive(Args)]
pub(super) struct Demo {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// Where the policy file and the store's data go.
    #[arg(long, value_name = "DIR", default_value = "data/demo")]
    dir: PathBuf,
}

pub(super) async fn run(demo: Demo) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let payments = start_payments(stop.clone()).await?;
    let policies = demo.dir.join("policies");
    write_policy(&policies, payments).context("the demo's policy file cannot be written")?;
    let store = format!("embedded:{}", demo.dir.join("store").display());
    let overrides = Overrides { listen: Some(demo.listen), store: Some(store) };
    let (loaded, watched) = load_watched(&policies, overrides)?;
    let app = App::start(loaded, Some(watched)).await?;
    announce(&app)?;
    print_commands(app.address, &policies);
    app.run().await?;
    stop.cancel();
    Ok(())
}

fn write_policy(directory: &Path, payments: SocketAddr) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let text = POLICY.replace(POLICY_ENDPOINT, &format!("http://{payments}"));
    std::fs::write(directory.join("payments.toml"), text)
}

fn print_commands(address: SocketAddr, policies: &Path) {
    // A key of this start: the store remembers the ones of earlier starts, as it should.
    let key = format!(
        "order-{}",
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs())
    );
    let charge = |amount: u32| {
        format!(
            "curl -i http://{address}/v1/payments -H 'X-Api-Key: demo' \\\n     \
             -H 'Idempotency-Key: \"{key}\"' --json '{{\"amount\": {amount}, \"currency\": \"EUR\"}}'"
        )
    };
    println!("\nA payments service is behind it. Paste these into another terminal:\n");
    println!("  # 1. a charge\n  {}\n", charge(500));
    println!("  # 2. the same again: the first answer, and no second charge\n  {}\n", charge(500));
    println!("  # 3. the same key for something else: refused\n  {}\n", charge(900));
    println!(
        "Policies: {} (edit and save: they reload). Ctrl-C drains and ends.",
        policies.display()
    );
}

/// The payments service: counts its charges and never looks at a key.
#[derive(Default)]
struct Payments {
    charges: AtomicU64,
}

async fn start_payments(stop: CancellationToken) -> anyhow::Result<SocketAddr> {
    let tcp =
        TcpListener::bind("127.0.0.1:0").await.context("the payments service cannot listen")?;
    let address = tcp.local_addr()?;
    let router = Router::new()
        .route("/v1/payments", post(charge).get(count))
        .with_state(Arc::new(Payments::default()));
    let open = prometheus_client::metrics::gauge::Gauge::default();
    tokio::spawn(listener::serve(tcp, router, Limits::for_a_demo(), open, stop));
    Ok(address)
}

async fn charge(
    State(payments): State<Arc<Payments>>,
    headers: HeaderMap,
    Json(asked): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let number = payments.charges.fetch_add(1, Ordering::Relaxed) + 1;
    tracing::info!(number, key = headers.contains_key("idempotency-key"), "charged");
    let answer = json!({
        "id": format!("pay_{number}"),
        "amount": asked.get("amount"),
        "currency": asked.get("currency"),
        "charges_so_far": number,
    });
    (StatusCode::CREATED, Json(answer))
}

async fn count(State(payments): State<Arc<Payments>>) -> Json<Value> {
    Json(json!({ "charges_so_far": payments.charges.load(Ordering::Relaxed) }))
}
