//! What one request costs: a fresh instance of a built-in plugin, configured, asked, dropped.
//!
//! `cargo run --release -p oncegate-plugin-host --example fresh_instance`

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http::HeaderValue;
use oncegate_plugin_host::{Host, Limits, Plugin, PluginSource, Request};

const ROUND: u32 = 2_000;
const ROUNDS: usize = 15;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let host = Host::new(Limits::default())?;
    let target = oncegate_guest_build::target_dir(&std::env::current_exe()?);
    for (package, config) in [
        ("oncegate-header-key", "{}"),
        ("oncegate-fingerprint", r#"{"parts":["method","path","body"]}"#),
    ] {
        let bytes: Bytes = oncegate_guest_build::component(package, &target)?.into();
        let size = bytes.len();
        let source = PluginSource {
            name: package.into(),
            bytes,
            config: config.into(),
            sha256: None,
            secrets: Arc::default(),
        };
        let plugin = host.load(source).await?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(&plugin).await?);
        }
        rounds.sort();
        let micros = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(ROUND);
        println!(
            "{package}: {size} bytes, best {:.1} µs, median {:.1} µs",
            micros(rounds[0]),
            micros(rounds[ROUNDS / 2]),
        );
    }
    Ok(())
}

async fn round(plugin: &Plugin) -> Result<Duration> {
    let mut request = Request { method: "POST".into(), ..Request::default() };
    let key = HeaderValue::from_static("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"");
    request.headers.insert("idempotency-key", key);
    let request = Arc::new(request);
    let started = Instant::now();
    for _ in 0..ROUND {
        plugin.derive(&request).await?;
    }
    Ok(started.elapsed())
}
