//! Guests that misbehave: what each one costs, and that the next request does not notice.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use oncegate_plugin_host::{Decision, DeriveError, Host, KeySource, LoadError, Plugin};
use support::{host, host_with, load, post, source};

fn config(behaviour: &str) -> String {
    format!(r#"{{"behaviour":"{behaviour}","when_header":"x-hostile"}}"#)
}

async fn hostile(host: &Host, behaviour: &str) -> Arc<Plugin> {
    load(host, "oncegate-hostile", &config(behaviour)).await.expect("loads while it behaves")
}

async fn provoke(plugin: &Plugin) -> Result<Decision, DeriveError> {
    plugin.derive(&post(&[("x-hostile", b"now")], "{}")).await
}

/// The plugin answers an ordinary request with its key.
async fn works(plugin: &Plugin, context: &str) {
    let decision = plugin.derive(&post(&[("idempotency-key", b"abc")], "{}")).await;
    match decision {
        Ok(Decision::Track(tracking)) => match tracking.key {
            KeySource::Client(key) => assert_eq!(key.expose(), "abc", "{context}"),
            KeySource::Derived(_) => panic!("{context}: derived"),
        },
        other => panic!("{context}: {other:?}"),
    }
}

#[tokio::test]
async fn every_misbehaviour_has_its_error_and_the_next_request_works() {
    let host = host();
    for (behaviour, code) in [
        ("bad-utf8", "invalid-output"),
        ("empty-key", "invalid-output"),
        ("fail", "failed"),
        ("host-call-flood", "host-calls"),
        ("huge-answer", "invalid-output"),
        ("log-flood", "host-calls"),
        ("long-key", "invalid-output"),
        ("many-parts", "invalid-output"),
        ("memory", "memory-limit"),
        ("no-parts", "invalid-output"),
        ("recursion", "trapped"),
        ("regex-bomb", "failed"),
        ("trap", "trapped"),
        ("undeclared-body", "failed"),
        ("undeclared-part", "invalid-output"),
        ("undeclared-principal", "trapped"),
        ("wrong-status", "invalid-output"),
    ] {
        let plugin = hostile(&host, behaviour).await;
        for _ in 0..2 {
            let error = provoke(&plugin).await.expect_err(behaviour);
            assert_eq!(error.code(), code, "{behaviour}: {error}");
            works(&plugin, behaviour).await;
        }
    }
}

#[tokio::test]
async fn the_words_of_a_failing_plugin_reach_the_operator() {
    let host = host();
    let said = async |behaviour: &str| {
        let plugin = hostile(&host, behaviour).await;
        provoke(&plugin).await
    };
    assert_eq!(said("fail").await, Err(DeriveError::Failed("told to fail".into())));
    assert_eq!(said("undeclared-body").await, Err(DeriveError::Failed("not buffered".into())));
}

#[tokio::test]
async fn an_endless_loop_ends_at_its_deadline() {
    let host = host_with(|limits| limits.wall_time = Duration::from_millis(100));
    let plugin = hostile(&host, "loop").await;
    let started = Instant::now();
    assert_eq!(provoke(&plugin).await, Err(DeriveError::TimedOut));
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    works(&plugin, "after a time-out").await;
}

#[tokio::test]
async fn an_endless_loop_lets_other_tasks_run() {
    // One thread for everything, as under one runtime per core.
    let host = host_with(|limits| limits.wall_time = Duration::from_secs(1));
    let plugin = hostile(&host, "loop").await;
    let looping = tokio::spawn({
        let plugin = plugin.clone();
        async move { provoke(&plugin).await }
    });
    let beside = tokio::spawn({
        let (plugin, looping) = (plugin.clone(), looping.abort_handle());
        async move {
            works(&plugin, "beside a loop").await;
            assert!(!looping.is_finished(), "the loop is still running");
        }
    });
    beside.await.expect("joined");
    assert_eq!(looping.await.expect("joined"), Err(DeriveError::TimedOut));
}

#[tokio::test]
async fn nothing_is_left_over_from_the_last_request() {
    let plugin = hostile(&host(), "leak").await;
    for _ in 0..20 {
        let Ok(Decision::Track(tracking)) = provoke(&plugin).await else { panic!("a key") };
        let KeySource::Client(key) = tracking.key else { panic!("the client's") };
        assert_eq!(key.expose(), "call-0");
    }
}

#[tokio::test]
async fn more_calls_than_slots_wait_or_are_turned_away() {
    let host = host_with(|limits| {
        limits.concurrent_instances = 1;
        limits.wall_time = Duration::from_millis(200);
    });
    let plugin = hostile(&host, "loop").await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let plugin = plugin.clone();
            tokio::spawn(async move { provoke(&plugin).await })
        })
        .collect();
    let mut codes = Vec::new();
    for call in calls {
        codes.push(call.await.expect("joined").expect_err("a loop").code());
    }
    assert!(codes.contains(&"timed-out") && codes.contains(&"overloaded"), "{codes:?}");
    works(&plugin, "after the crowd").await;
}

#[tokio::test]
async fn a_plugin_that_breaks_at_once_is_not_loaded() {
    let host = host();
    for (config, code) in [
        (r#"{"behaviour":"trap"}"#, "trapped"),
        (r#"{"behaviour":"memory"}"#, "memory-limit"),
        (r#"{"behaviour":"empty-key"}"#, "invalid-output"),
        (r#"{"behaviour":"trap-configure","when_header":"x"}"#, "trapped"),
        (r#"{"behaviour":"peek-configure","when_header":"x"}"#, "trapped"),
        (r#"{"behaviour":"unheard-of"}"#, "configuration"),
    ] {
        let error = load(&host, "oncegate-hostile", config).await.expect_err(config);
        assert_eq!(error.code(), code, "{config}: {error}");
    }
    // Saying that there is no answer is not breaking.
    load(&host, "oncegate-hostile", r#"{"behaviour":"fail"}"#).await.expect("loads");
}

#[tokio::test]
async fn bytes_that_are_no_plugin_are_refused_with_the_way_out() {
    let host = host_with(|limits| limits.component_bytes = 1024 * 1024);
    let check = async |bytes: Vec<u8>, code: &str, says: &str| {
        let mut source = source("oncegate-header-key", "{}");
        source.bytes = Bytes::from(bytes);
        let error = host.load(source).await.expect_err(code);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    check(vec![0; 1024 * 1024 + 1], "too-large", "1048577 bytes").await;
    check(b"\0asm\x01\0\0\0".to_vec(), "core-module", "wasm-tools component new").await;
    check(b"not wasm".to_vec(), "compile", "").await;
    check(vec![], "compile", "").await;
    check(b"\0asm\x0d\0\x01\0".to_vec(), "wrong-interface", "oncegate:plugin@1.0.0").await;
    let good = support::guest("oncegate-header-key");
    check(good[..good.len() / 2].to_vec(), "compile", "").await;
}

/// A component that imports one empty instance by this name.
fn importing(name: &str) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    // Type section: one instance type without declarations.
    bytes.extend([7, 3, 1, 0x42, 0]);
    // Import section: one import of instance type 0.
    let mut import = vec![1, 0, u8::try_from(name.len()).expect("short")];
    import.extend(name.as_bytes());
    import.extend([5, 0]);
    bytes.extend([10, u8::try_from(import.len()).expect("short")]);
    bytes.extend(import);
    bytes
}

#[tokio::test]
async fn a_forbidden_import_is_named_with_the_flag_that_removes_it() {
    let host = host();
    let check = async |import: &str, says: &str| {
        let mut source = source("oncegate-header-key", "{}");
        source.bytes = importing(import).into();
        let error = host.load(source).await.expect_err(import);
        assert!(
            matches!(&error, LoadError::ForbiddenImport { import: named, .. } if named == import),
            "{error:?}"
        );
        assert!(error.to_string().contains(says), "{error}");
    };
    check("wasi:clocks/wall-clock@0.2.6", "--stub-wasi").await;
    check("wasi:random/random@0.2.6", "wasm32-unknown-unknown").await;
    check("oncegate:plugin/request@2.0.0", "version 1").await;
    check("evil:corp/exfiltrate", "remove it").await;
}

#[tokio::test]
async fn reloading_does_not_grow_the_catalogue() {
    let host = host();
    assert_eq!(host.components_in_use(), 0);
    let mut serving = hostile(&host, "fail").await;
    for _ in 0..10 {
        // As a reload does: the new generation is ready before the old one goes.
        let (config, bad) = (config("trap"), config("unheard-of"));
        let (next, twin, refused) = tokio::join!(
            load(&host, "oncegate-hostile", &config),
            load(&host, "oncegate-header-key", "{}"),
            load(&host, "oncegate-hostile", &bad),
        );
        assert!(refused.is_err());
        serving = next.expect("loads");
        assert_eq!(host.components_in_use(), 2);
        drop(twin);
    }
    assert_eq!(host.components_in_use(), 1);
    works(&serving, "after many reloads").await;
    drop(serving);
    assert_eq!(host.components_in_use(), 0);
}
