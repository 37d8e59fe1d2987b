//! Marked secrets go in by every door, and come out by none: not in the log, not in the metrics,
//! not on the status page, not in the names of Redis keys.

use oncegate_tests::gateway::Launch;
use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::upstream::End;
use oncegate_tests::{Gateway, Policy, Reply, Request, Route, Store, Upstream};

/// What must not be seen again.
const CANARIES: &[&str] = &[
    "canary-key-5b1d",
    "canary-credential-77aa",
    "canary-cookie-90cf",
    "canary-request-body-3e21",
    "canary-answer-body-c4d8",
    "canary-query-1f6e",
    "canary-secret-0a9b0a9b0a9b0a9b0a9b",
];

fn policy(upstream: &Upstream) -> Policy {
    let route = Route::guarded(OPERATION, PAYMENTS)
        .set("key", "[\"client-key\", \"body\"]")
        .scope_header("Authorization");
    Policy::with(upstream)
        .fingerprint("body", &["method", "path", "query", "body"])
        .section("[secrets]\nfingerprint = \"canary-secret-0a9b0a9b0a9b0a9b0a9b\"\n")
        .route(route)
}

fn secret_request(key: Option<&str>) -> Request {
    let request = Request::post(&format!("{PAYMENTS}?token=canary-query-1f6e"))
        .header("Authorization", "Bearer canary-credential-77aa")
        .header("Cookie", "session=canary-cookie-90cf")
        .json("{\"card\":\"canary-request-body-3e21\"}");
    match key {
        Some(key) => request.key(key),
        None => request,
    }
}

/// Every way through the gateway, the failures above all: those are the ones that log.
async fn exercise(gateway: &Gateway, upstream: &Upstream) {
    let body = "{\"iban\":\"canary-answer-body-c4d8\"}";
    upstream.always(move |_| Reply::status(201).json(body));
    let key = "\"canary-key-5b1d\"";
    gateway.send(secret_request(Some(key))).await.is_fresh(201);
    let replay = gateway.send(secret_request(Some(key))).await;
    assert_eq!(replay.outcome(), Some("replayed"), "{replay:?}");
    gateway.send(secret_request(Some(key)).body("canary-request-body-3e21")).await.is_mismatch();
    gateway.send(secret_request(None)).await.is_fresh(201);
    for broken in ["\"canary-key-5b1d", "canary-key-5b1d canary-key-5b1d", "\"canary-key-5b1d-é\""]
    {
        gateway.send(secret_request(Some(broken))).await.is_invalid_key();
    }
    upstream.next(Reply::nothing(End::Reset));
    let lost = "\"canary-key-5b1d-lost\"";
    gateway.send(secret_request(Some(lost))).await.is_ambiguous_failure();
    gateway.send(secret_request(Some(lost))).await.is_unknown();
    upstream.next(Reply::raw("HTTP/1.1 canary-answer-body-c4d8\r\n\r\n"));
    let garbled = "\"canary-key-5b1d-garbled\"";
    gateway.send(secret_request(Some(garbled))).await.is_ambiguous_failure();
    upstream.next(Reply::status(500).body("canary-answer-body-c4d8"));
    gateway.send(secret_request(Some("\"canary-key-5b1d-failed\""))).await;
}

/// Panics with the place when a canary is found in it.
fn quiet(place: &str, text: &str) {
    assert!(!text.is_empty(), "nothing to search in {place}");
    for canary in CANARIES {
        let found = text.lines().find(|line| line.contains(canary));
        assert_eq!(found, None, "{canary} in {place}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_comes_out() {
    let mut upstream = Upstream::start().await;
    let mut store = Store::redis();
    // As talkative as an operator in trouble would make it.
    let gateway = Launch::new(&store, policy(&upstream)).env("RUST_LOG", "debug").start().await;
    exercise(&gateway, &upstream).await;
    upstream.refuse().await;
    let refused = gateway.send(secret_request(Some("\"canary-key-5b1d-refused\""))).await;
    refused.is_problem(502, "upstream-unreachable", "same-key");

    let names = store.cli(&["KEYS", "*"]);
    quiet("the names of Redis keys", &names);
    // A derived key and a client's key, both finished, and three of the failures.
    assert!(names.lines().count() >= 4, "{names}");

    store.server().kill();
    let refused = gateway.send(secret_request(Some("\"canary-key-5b1d-late\""))).await;
    refused.is_problem(503, "store-unavailable", "same-key");

    quiet("the metrics", &gateway.metrics().await.text);
    quiet("the status page", &gateway.status().await.to_string());
    let readiness = gateway.ask("/readyz").await;
    quiet("the readiness page", &readiness.text());
    quiet("the standard output", &gateway.printed());
    quiet("the log", &gateway.log());
}

/// What a client sent is never kept, only its digest; what is kept is the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_not_in_the_records() {
    let upstream = Upstream::start().await;
    let store = Store::redis();
    let gateway = Gateway::start(&store, policy(&upstream)).await;
    exercise(&gateway, &upstream).await;
    let mut dump = String::new();
    for name in store.cli(&["KEYS", "*"]).lines() {
        // Prints every byte that is not text escaped, so a canary stays readable.
        dump.push_str(&store.cli(&["DUMP", name.trim()]));
        dump.push('\n');
    }
    assert!(dump.contains("canary-answer-body"), "the search must be able to find: {dump}");
    for canary in CANARIES.iter().filter(|canary| !canary.contains("answer")) {
        assert!(!dump.contains(canary), "{canary} in a record");
    }
}
