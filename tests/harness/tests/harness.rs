//! The harness against itself, without a gateway: the client here talks to the upstream directly.
//! A tool that measures must be right before what it measures can be.

use std::io::ErrorKind;

use oncegate_tests::chain::{Keys, scenario};
use oncegate_tests::http1::Framing;
use oncegate_tests::redis_wire::RedisWire;
use oncegate_tests::upstream::End;
use oncegate_tests::world::{BODY, KEY, payment};
use oncegate_tests::{Connection, Gate, Reply, Request, Store, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn bytes_arrive_as_they_were_sent() {
    let upstream = Upstream::start().await;
    let mut client = Connection::to(upstream.address()).await;
    for request in [payment(KEY), payment(KEY).chunked(7)] {
        let request = request.header("X-Twice", "a").header("x-twice", b"\xff");
        let answer = client.exchange(&request).await;
        assert_eq!((answer.status, answer.framing), (201, Framing::Length(9)));
    }
    let runs = upstream.executions();
    assert_eq!(runs.len(), 2);
    for run in &runs {
        assert_eq!((run.key(), run.body.as_slice()), (Some(KEY), BODY.as_bytes()));
        let twice: [&[u8]; 2] = [b"a", b"\xff"];
        assert_eq!(run.headers.all("X-TWICE"), twice);
        assert_eq!(run.connection, 1, "one connection carried both");
    }
}

#[tokio::test]
async fn replies_are_what_was_scripted() {
    let upstream = Upstream::start().await;
    let mut client = Connection::to(upstream.address()).await;
    upstream.next(
        Reply::status(200)
            .after_informational(103)
            .header("Set-Cookie", "a")
            .header("Set-Cookie", "b")
            .body("hello")
            .trailer("grpc-status", "0"),
    );
    let answer = client.exchange(&Request::get("/")).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    assert_eq!(answer.informational, [103]);
    assert_eq!(answer.headers.all("set-cookie").len(), 2);
    assert_eq!(answer.trailers.one("grpc-status"), Some("0"));

    let head = client.exchange(&Request::new("HEAD", "/")).await;
    assert_eq!((head.status, head.framing), (201, Framing::Empty));
    upstream.next(Reply::status(204));
    assert_eq!(client.exchange(&Request::get("/")).await.status, 204);
    assert_eq!(client.exchange(&Request::get("/")).await.text(), "{\"run\":4}");
}

#[tokio::test]
async fn a_gate_holds_the_answer_and_not_the_execution() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.next(Reply::counted(1).held_by(&gate));
    let mut client = Connection::to(upstream.address()).await;
    client.send(&payment(KEY)).await.expect("the request is sent");
    upstream.until_runs(1).await;
    gate.open();
    gate.passed().await;
    assert_eq!(client.answer("POST").await.expect("an answer").status, 201);
}

#[tokio::test]
async fn broken_replies_are_broken() {
    let upstream = Upstream::start().await;
    for (reply, expected) in [
        (Reply::nothing(End::Close), ErrorKind::UnexpectedEof),
        (Reply::nothing(End::Reset), ErrorKind::ConnectionReset),
        (Reply::counted(1).cut_after(10, End::Close), ErrorKind::UnexpectedEof),
        (Reply::status(200).body("hello").cut_after(40, End::Close), ErrorKind::UnexpectedEof),
        (Reply::raw("HTTP/1.1 2x0 OK\r\n\r\n"), ErrorKind::Other),
    ] {
        let shown = format!("{reply:?}");
        upstream.next(reply);
        let mut client = Connection::to(upstream.address()).await;
        client.send(&payment(KEY)).await.expect("the request is sent");
        let error = client.answer("POST").await.expect_err("it was broken");
        assert_eq!(error.kind(), expected, "{shown}");
    }
    assert_eq!(upstream.runs(), 5, "all of them were executed");
}

#[tokio::test]
async fn a_shut_upstream_refuses_and_an_open_one_does_not() {
    let mut upstream = Upstream::shut();
    let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
    assert!(Connection::try_to(upstream.address()).await.is_err_and(refused));
    upstream.open();
    let mut client = Connection::to(upstream.address()).await;
    assert_eq!(client.exchange(&payment(KEY)).await.status, 201);
    upstream.refuse().await;
    assert!(Connection::try_to(upstream.address()).await.is_err_and(refused));
    assert!(client.send(&payment(KEY)).await.is_err() || client.answer("POST").await.is_err());
    upstream.open();
    Connection::to(upstream.address()).await.exchange(&payment(KEY)).await;
    assert_eq!(upstream.runs(), 2);
}

#[tokio::test]
async fn the_wire_counts_commands_and_loses_one_answer() {
    let mut store = Store::redis();
    let wire = RedisWire::before(store.server().port()).await;
    let address = wire.url().replace("redis://", "");
    let mut redis = TcpStream::connect(&address).await.expect("the wire listens");
    redis.write_all(b"*1\r\n$4\r\nping\r\n*1\r\n$4\r\nPING\r\n").await.expect("sent");
    let mut answer = [0; 14];
    redis.read_exact(&mut answer).await.expect("answered");
    assert_eq!(&answer, b"+PONG\r\n+PONG\r\n");
    assert_eq!(wire.commands().get("PING"), Some(&2));

    wire.lose_next_answer();
    let script = "return redis.call('SET', 'landed', '1')";
    let eval = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
    redis.write_all(eval.as_bytes()).await.expect("sent");
    assert_eq!(redis.read(&mut answer).await.unwrap_or_default(), 0, "the answer is lost");
    assert_eq!(wire.lost(), 1);
    assert_eq!(store.cli(&["GET", "landed"]).trim(), "1", "and the command is not");
}

/// The chain without any gateway: that its clients and delays really lead to four charges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_multiply_without_a_gateway() {
    let store = Store::redis();
    let one = scenario(Keys::None, &store).await.expect("the scenario runs");
    assert_eq!((one.charges, one.charges_by_later_retry), (4, 1), "{one:?}");
    assert_eq!((one.first.status, one.first.attempt), (504, None), "{one:?}");
}
