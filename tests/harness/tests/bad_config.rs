//! What a gateway does with a configuration or a store that it cannot use.

use std::fs;

use oncegate_tests::gateway::Launch;
use oncegate_tests::wait::until;
use oncegate_tests::world::{KEY, payment};
use oncegate_tests::{Policy, Route, Store, StoreKind, Upstream};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_errors_are_printed_at_once_with_file_and_field() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let policy = Policy::payments(&upstream)
        .plugin("nothing", "builtin:no-such-plugin", "{}")
        .route(Route::guarded("op-a", "/a").set("retention", "\"soon\""))
        .route(Route::guarded("op-b", "/b").set("upstream", "\"nowhere\""))
        .route(Route::guarded("op-c", "/c").set("key", "[\"ghost\"]"))
        .route(Route::guarded("op-d", "/d").set("colour", "\"blue\""))
        .route(Route::guarded("op-e", "/e").set("on_unknown", "\"shrug\""));
    let refusal = Launch::new(&store, policy).refused().await;
    assert_eq!(refusal.code, Some(2), "{}", refusal.log);
    for told in [
        "oncegate.toml",
        "no-such-plugin",
        "retention",
        "soon",
        "nowhere",
        "ghost",
        "colour",
        "on_unknown",
        "shrug",
    ] {
        assert!(refusal.log.contains(told), "{told} is not mentioned in:\n{}", refusal.log);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_there_is_named() {
    let store = Store::start(StoreKind::Embedded);
    let nowhere = std::path::Path::new("/nonexistent/policies");
    let refusal = Launch::new(&store, "").config_directory(nowhere).refused().await;
    assert_eq!(refusal.code, Some(2), "{}", refusal.log);
    assert!(refusal.log.contains("/nonexistent/policies"), "{}", refusal.log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_toml_is_refused_with_its_place() {
    let store = Store::start(StoreKind::Embedded);
    let refusal = Launch::new(&store, "[[route]\noperation = ").refused().await;
    assert_eq!(refusal.code, Some(2), "{}", refusal.log);
    assert!(refusal.log.contains("oncegate.toml"), "{}", refusal.log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_not_there_yet_is_waited_for() {
    let upstream = Upstream::start().await;
    let mut store = Store::redis();
    store.server().kill();
    let gateway = Launch::new(&store, Policy::payments(&upstream)).start().await;

    assert_eq!(gateway.ask("/healthz").await.status, 200);
    let readiness = gateway.ask("/readyz").await;
    assert_eq!(readiness.status, 503, "{readiness:?}");
    assert!(readiness.text().contains("store"), "the reason: {}", readiness.text());
    gateway.until_logged("store").await;
    gateway.send(payment(KEY)).await.is_problem(503, "store-unavailable", "same-key");
    assert_eq!(upstream.runs(), 0);

    store.server().restart();
    until("the gateway to become ready", async || gateway.is_ready().await.then_some(())).await;
    gateway.send(payment(KEY)).await.is_fresh(201);
    assert_eq!(upstream.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_cannot_open_one_embedded_store() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let policy = Policy::payments(&upstream);
    let first = Launch::new(&store, &policy).start().await;
    let refusal = Launch::new(&store, &policy).refused().await;
    assert_ne!(refusal.code, Some(0), "{refusal:?}");
    let directory = store.directory().expect("an embedded store");
    let name = directory.display().to_string();
    assert!(refusal.log.contains(&name), "{name} is not named:\n{}", refusal.log);
    first.send(payment(KEY)).await.is_fresh(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_read_as_one_policy() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let launch = Launch::new(&store, Policy::with(&upstream));
    let write = |name: &str, text: &str| {
        fs::write(directory.path().join(name), text).expect("the file can be written");
    };
    write("10-base.toml", &launch.document());
    let route = Route::guarded("create-payment", "/v1/payments");
    write("20-route.toml", &Policy::new().route(route).to_string());
    write("notes.txt", "not a policy = [");
    let gateway = launch.config_directory(directory.path()).start().await;
    gateway.send(payment(KEY)).await.is_fresh(201);
}
