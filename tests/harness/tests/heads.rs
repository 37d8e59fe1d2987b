//! Request heads that two servers could read differently: refused before anything is reserved,
//! and never forwarded.

use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::world::{BODY, KEY, payment};
use oncegate_tests::{Connection, Policy, Request, Route, StoreKind, World};

/// A POST to the guarded route with exactly these bytes as its head's lines after the first.
fn raw(method: &str, target: &str, lines: &[&str]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    for line in lines {
        head.push_str(line);
        head.push_str("\r\n");
    }
    head.push_str(&format!("X-Api-Key: tenant\r\nIdempotency-Key: {KEY}\r\n"));
    head.push_str(&format!("Content-Length: {}\r\n\r\n{BODY}", BODY.len()));
    head.into_bytes()
}

#[tokio::test]
async fn an_ambiguous_head_is_refused_and_nothing_is_forwarded() {
    let world = World::payments(StoreKind::Embedded).await;
    for (method, target, lines) in [
        ("POST", PAYMENTS, vec![]),
        ("POST", PAYMENTS, vec!["Host: a.example", "Host: b.example"]),
        ("POST", PAYMENTS, vec!["Host: a.example/b"]),
        ("POST", PAYMENTS, vec!["Host: user@a.example"]),
        ("POST", "http://b.example/v1/payments", vec!["Host: a.example"]),
        ("post", PAYMENTS, vec!["Host: a.example"]),
        ("POST", "/v1//payments", vec!["Host: a.example"]),
        ("POST", "/v1/%2e%2e/payments", vec!["Host: a.example"]),
        ("POST", "/v1/payments%2f", vec!["Host: a.example"]),
        ("POST", "/v1/payments;x=1", vec!["Host: a.example"]),
    ] {
        let mut connection = Connection::to(world.gateway.address()).await;
        connection.send_bytes(&raw(method, target, &lines)).await.expect("sent");
        let answer = connection.answer("POST").await.expect("an answer");
        answer.is_problem(400, "bad-request", "never");
    }
    assert_eq!(world.upstream.runs(), 0);
    world.pay(KEY).await.is_fresh(201);
}

/// What `Connection` takes away does not count: a scope that does not go upstream is no scope.
#[tokio::test]
async fn a_scope_named_in_connection_is_absent() {
    let world = World::start(StoreKind::Embedded, |upstream| {
        Policy::with(upstream).route(Route::guarded(OPERATION, PAYMENTS).scope_header("X-Api-Key"))
    })
    .await;
    let tenant = || payment(KEY).header("X-Api-Key", "tenant");
    let stripped = world.send(tenant().header("Connection", "X-Api-Key")).await;
    stripped.is_problem(401, "scope-missing", "same-key");
    assert_eq!(world.upstream.runs(), 0);
    world.send(tenant()).await.is_fresh(201);
}

#[tokio::test]
async fn early_data_is_sent_back() {
    let world = World::payments(StoreKind::Embedded).await;
    let early = world.send(payment(KEY).header("Early-Data", "1")).await;
    early.is_problem(425, "too-early", "same-key");
    assert_eq!(world.upstream.runs(), 0);
    world.pay(KEY).await.is_fresh(201);
}

/// An empty body goes upstream with its length said.
#[tokio::test]
async fn an_empty_body_is_announced_as_empty() {
    let world = World::payments(StoreKind::Embedded).await;
    world.send(Request::post(PAYMENTS).key(KEY)).await.is_fresh(201);
    let run = world.upstream.the_run();
    assert_eq!(run.headers.one("content-length"), Some("0"));
}
