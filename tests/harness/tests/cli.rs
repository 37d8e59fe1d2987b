//! The command line, as its users meet it: `check`, `explain`, `serve` without a file, `demo`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use oncegate_tests::gateway::{binary, send_signal};

/// Runs a command to its end.
fn oncegate(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn demo_policy() -> String {
    repository().join("policies/demo.toml").display().to_string()
}

#[test]
fn check_prints_the_route_table_of_the_examples() {
    let examples = repository().join("policies/examples");
    let output = oncegate(&["check", "--config", &examples.display().to_string()]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.starts_with("OPERATION"), "{out}");
    assert!(out.contains("create-payment   POST api.example.com/v1/payments "), "{out}");
    assert!(out.lines().last().is_some_and(|line| line.starts_with("ok: ")), "{out}");
}

#[test]
fn check_exits_with_2_and_every_error() {
    let wrong = repository().join("policies/invalid/unknown-keys.toml");
    let output = oncegate(&["check", "--config", &wrong.display().to_string()]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("route[0].retension: is not a known key; did you mean `retention`?"),
        "{err}"
    );
    assert!(err.contains("route[0].colour"), "{err}");
}

/// `explain` of one POST to the demo's route, with these further arguments.
fn explain(arguments: &[&str]) -> String {
    let policy = demo_policy();
    let mut all = vec!["explain", "--config", &policy];
    all.extend(arguments);
    let output = oncegate(&all);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn explain_shows_route_plugin_identity_and_canonical_form_and_masks_secrets() {
    let out = explain(&[
        "/v1/payments",
        "-H",
        "X-Api-Key: tenant-secret-1",
        "-H",
        "Idempotency-Key: \"8e03978e-40d5-43dd\"",
        "-d",
        "{\"b\": 1.0, \"a\": \"x\"}",
    ]);
    for expected in [
        "route        create-payment (POST /v1/payments) -> upstream payments",
        "plugin       client-key: client's key 8e03****",
        "scope        header x-api-key",
        "retention    1day",
        r#"{"a":"x","b":1}"#,
    ] {
        assert!(out.replace("\\\"", "\"").contains(expected), "{expected}\n{out}");
    }
    assert!(!out.contains("tenant-secret-1"), "{out}");
    assert!(!out.contains("8e03978e-40d5-43dd"), "{out}");
}

#[test]
fn explain_says_what_a_request_without_a_key_gets() {
    let out = explain(&["/v1/payments", "-H", "X-Api-Key: k"]);
    assert!(out.contains("pass: no key here"), "{out}");
    assert!(out.contains("no plugin found a key; missing_key = reject"), "{out}");
    let out = explain(&["-X", "GET", "/v1/payments"]);
    assert!(out.contains("streamed through"), "{out}");
}

#[test]
fn explain_compares_two_requests_and_names_what_differs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, key: &str, body: &str| {
        let path = directory.path().join(name);
        let message = format!(
            "POST /v1/payments HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nIdempotency-Key: {key}\r\n\r\n{body}"
        );
        std::fs::write(&path, message).expect("written");
        path.display().to_string()
    };
    let first = write("first.http", "\"k-1\"", r#"{"a":1,"b":2}"#);
    let compare = |second: &str| explain(&["--request", &first, "--against", second]);

    let reordered = compare(&write("reordered.http", "k-1", r#"{ "b": 2, "a": 1 }"#));
    assert!(
        reordered.contains("match: the second would be answered from the first"),
        "{reordered}"
    );
    let other_body = compare(&write("other.http", "\"k-1\"", r#"{"a":1,"b":3}"#));
    assert!(other_body.contains("422 key-reused"), "{other_body}");
    assert!(other_body.contains("body-json differs"), "{other_body}");
    let other_key = compare(&write("key.http", "\"k-2\"", r#"{"a":1,"b":2}"#));
    assert!(other_key.contains("the key differs"), "{other_key}");
}

#[test]
fn help_has_examples() {
    for command in ["serve", "check", "explain", "demo"] {
        let output = oncegate(&[command, "--help"]);
        assert!(text(&output.stdout).contains("Examples:"), "{command}");
    }
}

/// A process that is ended with the test.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(binary())
            .args(arguments)
            .env("ONCEGATE_ADMIN__ADDRESS", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        Self(child)
    }

    /// What it prints up to and including a line that contains `last`.
    fn printed_until(&mut self, last: &str) -> String {
        let stdout = self.0.stdout.as_mut().expect("piped");
        let mut printed = String::new();
        let mut lines = BufReader::new(stdout);
        while !printed.contains(last) {
            let read = lines.read_line(&mut printed).expect("text");
            assert!(read > 0, "it ended early:\n{printed}");
        }
        printed
    }

    /// Ctrl-C, and how it ends.
    fn interrupted(mut self) -> Option<i32> {
        send_signal(self.0.id(), "-INT");
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The newcomer's first minute: paste the three commands that the demo prints.
#[test]
fn the_demo_charges_once_replays_and_refuses_a_reused_key() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dir = directory.path().display().to_string();
    let mut demo = Running::start(&["demo", "--listen", "127.0.0.1:0", "--dir", &dir]);
    let printed = demo.printed_until("Ctrl-C drains");
    let commands: Vec<String> = printed
        .replace("\\\n", " ")
        .lines()
        .filter(|line| line.trim_start().starts_with("curl "))
        .map(str::to_owned)
        .collect();
    assert_eq!(commands.len(), 3, "{printed}");
    let answers: Vec<String> = commands
        .iter()
        .map(|command| {
            let output =
                Command::new("bash").args(["-c", command]).output().expect("bash and curl");
            text(&output.stdout)
        })
        .collect();
    for (answer, status, said) in [
        (&answers[0], "201", "idempotency-status: fresh"),
        (&answers[1], "201", "idempotent-replayed: true"),
        (&answers[2], "422", "urn:oncegate:problem:key-reused"),
    ] {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.contains(said), "{answer}");
    }
    assert!(answers[1].contains(r#""charges_so_far":1"#), "{}", answers[1]);
    assert_eq!(demo.interrupted(), Some(0), "Ctrl-C drains and ends");
}

/// `serve --upstream`: no file at all.
#[tokio::test]
async fn serving_without_a_file_guards_writes_with_a_key() {
    use oncegate_tests::world::{BODY, KEY};
    use oncegate_tests::{Connection, Request, Upstream};

    let upstream = Upstream::start().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = format!("embedded:{}", directory.path().join("store").display());
    let url = upstream.url();
    let arguments = ["serve", "--upstream", &url, "--listen", "127.0.0.1:0", "--store", &store];
    let mut gateway = Running::start(&arguments);
    let printed = gateway.printed_until("admin on");
    let address = printed
        .lines()
        .find_map(|line| line.strip_prefix("listening on http://"))
        .expect("an address")
        .parse()
        .expect("an address");
    let mut connection = Connection::to(address).await;
    let keyed = Request::post("/anything").header("Authorization", "Bearer t").key(KEY).json(BODY);
    let first = connection.exchange(&keyed).await;
    first.is_fresh(201);
    connection.exchange(&keyed).await.is_replay_of(&first);
    let nobody = Request::post("/anything").key(KEY).json(BODY);
    connection.exchange(&nobody).await.is_problem(401, "scope-missing", "same-key");
    let keyless = connection.exchange(&Request::post("/anything").json(BODY)).await;
    assert_eq!(keyless.outcome(), Some("unprotected"));
    assert_eq!(upstream.runs(), 2);
    assert_eq!(gateway.interrupted(), Some(0));
}
