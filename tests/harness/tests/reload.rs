//! Reloads under load: no request fails, none runs twice, and the new policy is in force.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oncegate_tests::gateway::Launch;
use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::wait::until;
use oncegate_tests::world::{BODY, KEY, payment};
use oncegate_tests::{
    Connection, Gateway, Policy, Request, Route, Store, StoreKind, Upstream, case, guests,
};

/// How many clients make the load.
const CLIENTS: usize = 8;

/// How long the load lasts: short in every run, longer where it is asked for.
fn load_time() -> Duration {
    let seconds = env::var("ONCEGATE_LOAD_SECONDS").ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("ONCEGATE_LOAD_SECONDS is no number: {text:?}"))
    });
    Duration::from_secs(seconds.unwrap_or(4))
}

/// The policy number `number`: a plugin from a file, and one route that no other number has.
fn numbered(upstream: &Upstream, plugin: &Path, number: usize) -> Policy {
    let config = "{ header = \"Idempotency-Key\", required = true }";
    let guarded =
        |operation: &str, path: &str| Route::guarded(operation, path).set("key", "[\"from-file\"]");
    Policy::new()
        .upstream("payments", &[&upstream.url()])
        .plugin("from-file", &plugin.display().to_string(), config)
        .route(guarded(OPERATION, PAYMENTS))
        .route(guarded("marker", &format!("/marker/{number}")))
}

/// The digests of the plugins in force.
async fn plugins(gateway: &Gateway) -> String {
    gateway.status().await["plugins"].to_string()
}

/// The routes in force.
async fn routes(gateway: &Gateway) -> String {
    gateway.status().await["routes"].to_string()
}

/// One client: every key once, and once more, until it is told to stop. Anything but a fresh
/// answer and its replay is a failure.
async fn client(gateway: std::net::SocketAddr, number: usize, stop: Arc<AtomicBool>) -> usize {
    let mut connection = Connection::to(gateway).await;
    let mut keys = 0;
    while !stop.load(Ordering::Relaxed) {
        let request = payment(format!("\"client-{number}-key-{keys}\""));
        let first = connection.exchange(&request).await;
        connection.exchange(&request).await.is_replay_of(first.is_fresh(201));
        keys += 1;
    }
    keys
}

case!(on both,
    /// A new policy every second, a new plugin file between, and clients that notice nothing.
    async fn reloads_under_load_cost_nobody_anything(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let component = guests::header_key();
        let plugin = guests::write(directory.path(), "key.wasm", component);
        let gateway = Gateway::start(&store, numbered(&upstream, &plugin, 0)).await;

        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| tokio::spawn(client(gateway.address(), number, stop.clone())))
            .collect();
        let begun = Instant::now();
        let mut second = tokio::time::interval(Duration::from_secs(1));
        let mut number = 0;
        while begun.elapsed() < load_time() {
            second.tick().await;
            number += 1;
            gateway.write(numbered(&upstream, &plugin, number));
            // Not just any new generation: the plugin file of the round before may cause one too.
            until("the new policy to be in force", async || {
                routes(&gateway).await.contains(&format!("/marker/{number}\"")).then_some(())
            })
            .await;
            let marker = |number: usize| {
                let key = format!("\"marker-{number}\"");
                Request::post(&format!("/marker/{number}")).key(&key).json(BODY)
            };
            assert_eq!(gateway.send(marker(number)).await.status, 201, "policy {number} serves");
            assert_eq!(gateway.send(marker(number - 1)).await.status, 404, "the old one does not");

            let before = plugins(&gateway).await;
            let relabelled = guests::relabelled(component, &format!("number {number}"));
            guests::write(directory.path(), "key.wasm", &relabelled);
            until("the new plugin to be in force", async || {
                (plugins(&gateway).await != before).then_some(())
            })
            .await;
        }
        stop.store(true, Ordering::Relaxed);
        let mut keys = 0;
        for client in clients {
            keys += client.await.expect("no request failed");
        }
        assert!(number >= 2, "{number} reloads are no test");
        assert!(keys > 10 * number, "{keys} keys in {number} reloads are no load");

        println!("{number} reloads and {number} plugin swaps, {} requests, 0 failed", 2 * keys);

        let mut runs: BTreeMap<String, usize> = BTreeMap::new();
        for run in upstream.executions().iter().filter(|run| run.path() == PAYMENTS) {
            *runs.entry(run.key().expect("a key").to_owned()).or_default() += 1;
        }
        assert_eq!(runs.len(), keys, "every key ran");
        assert!(runs.values().all(|count| *count == 1), "some key ran twice: {runs:?}");
    }
);

/// One generation of a mounted directory: the files in a folder of their own, reached through
/// `..data`, which is replaced in one step.
fn mount(directory: &Path, name: &str, document: &str) {
    let folder = directory.join(name);
    fs::create_dir(&folder).expect("the folder can be made");
    fs::write(folder.join("oncegate.toml"), document).expect("the file can be written");
    let draft = directory.join("..data_tmp");
    symlink(name, &draft).expect("the link can be made");
    fs::rename(&draft, directory.join("..data")).expect("the link can be swapped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_symlink_is_a_reload() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let receipts = || Request::post("/v1/receipts").key(KEY).json(BODY);
    let one = Launch::new(&store, Policy::payments(&upstream));
    let with_receipts = Route::guarded("create-receipt", "/v1/receipts");
    let two = Launch::new(&store, Policy::payments(&upstream).route(with_receipts));

    mount(directory.path(), "..2026_01", &one.document());
    symlink("..data/oncegate.toml", directory.path().join("oncegate.toml")).expect("a link");
    let gateway = one.config_directory(directory.path()).start().await;
    let before = gateway.generation().await;
    assert_eq!(gateway.send(receipts()).await.status, 404);

    mount(directory.path(), "..2026_02", &two.document());
    fs::remove_dir_all(directory.path().join("..2026_01")).expect("the old folder goes");
    until("the swapped directory to be in force", async || {
        (gateway.generation().await > before).then_some(())
    })
    .await;
    gateway.send(receipts()).await.is_fresh(201);
}

/// Another fingerprint secret would make other keys of the same requests: a retry across the
/// reload would run again. It takes a restart, and the reload says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_secret_waits_for_a_restart() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let with_secret = |secret: &str| {
        Policy::new()
            .upstream("payments", &[&upstream.url()])
            .fingerprint("body", &["method", "path", "body"])
            .section(&format!("[secrets]\nfingerprint = {secret:?}\n"))
            .route(Route::guarded(OPERATION, PAYMENTS).set("key", "[\"body\"]"))
    };
    let gateway = Gateway::start(&store, with_secret("0123456789abcdef-one")).await;
    let request = || Request::post(PAYMENTS).json(BODY);
    let first = gateway.send(request()).await;
    first.is_fresh(201);
    gateway.reload(with_secret("0123456789abcdef-two")).await;
    gateway.send(request()).await.is_replay_of(&first);
    let status = gateway.status().await;
    assert_eq!(status["last_reload"]["needs_restart"][0], "secrets", "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_policy_is_not_loaded_and_says_why() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let gateway = Gateway::start(&store, Policy::payments(&upstream)).await;
    let before = gateway.generation().await;
    let first = gateway.send(payment(KEY)).await;
    first.is_fresh(201);

    for (policy, reason) in [
        (Policy::payments_with(&upstream, "upstream", "\"nowhere\"").to_string(), "nowhere"),
        ("[[route]\n".to_owned(), "oncegate.toml"),
    ] {
        gateway.reload_refused(&policy, reason).await;
        gateway.until_logged(reason).await;
        assert_eq!(gateway.generation().await, before);
        gateway.send(payment(KEY)).await.is_replay_of(&first);
    }

    gateway.reload(Policy::payments_with(&upstream, "retention", "\"48h\"")).await;
    let status = gateway.status().await;
    assert_eq!(status["last_reload"]["ok"], true, "{status}");
    assert!(status["last_reload"]["error"].is_null(), "{status}");
}
