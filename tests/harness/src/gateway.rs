//! The gateway under test: the real binary in a process of its own.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::answer::Answer;
use crate::http1::{Connection, Request};
use crate::http2;
use crate::store::Store;
use crate::wait::{patiently, until};

/// What the binary prints once its listener, and its admin listener, take connections.
const LISTENING: &str = "listening on http://";
const ADMIN: &str = "admin on http://";

/// How a gateway is started. [`Gateway::start`] is the short form.
pub struct Launch {
    settings: String,
    policy: String,
    namespace: String,
    environment: Vec<(String, String)>,
    /// A directory that the test itself fills, instead of one file that the harness writes.
    config: Option<PathBuf>,
}

impl Launch {
    /// On this store, under this policy.
    pub fn new(store: &Store, policy: impl Display) -> Self {
        Self::on_url(&store.url(), policy)
    }

    /// On a store that is reached by another way than its own address, or not there at all.
    pub fn on_url(store_url: &str, policy: impl Display) -> Self {
        Self {
            settings: format!("url = {store_url:?}"),
            policy: policy.to_string(),
            namespace: "test".to_owned(),
            environment: Vec::new(),
            config: None,
        }
    }

    /// Another namespace in the store than `test`.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.to_owned();
        self
    }

    /// One variable of its environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Reads this directory, which the test fills and changes itself.
    pub fn config_directory(mut self, directory: &Path) -> Self {
        self.config = Some(directory.to_owned());
        self
    }

    /// The whole document: what the harness adds, and the policy.
    pub fn document(&self) -> String {
        document(&self.settings, &self.namespace, &self.policy)
    }

    /// Starts the process and waits until it listens.
    pub async fn start(self) -> Gateway {
        let mut gateway = self.spawn();
        let mut output = gateway.stdout.text.subscribe();
        let both = |text: &Text| {
            text.closed || (text.lines.contains(LISTENING) && text.lines.contains(ADMIN))
        };
        let output = patiently("the gateway to listen", async {
            output.wait_for(both).await.expect("the reader is alive").lines.clone()
        })
        .await;
        match (address_after(&output, LISTENING), address_after(&output, ADMIN)) {
            (Some(listener), Some(admin)) => (gateway.listener, gateway.admin) = (listener, admin),
            (_, _) => {
                let exit = gateway.exited().await;
                panic!("the gateway did not start ({exit}):\n{output}\n{}", gateway.log());
            }
        }
        gateway
    }

    /// Starts the process and waits until it has refused to run.
    pub async fn refused(self) -> Refusal {
        let mut gateway = self.spawn();
        for output in [&gateway.stdout, &gateway.stderr] {
            let mut output = output.text.subscribe();
            patiently("the gateway to refuse its configuration", async {
                output.wait_for(|text| text.closed).await.expect("the reader is alive");
            })
            .await;
        }
        let status = gateway.exited().await;
        Refusal { code: status.code(), log: gateway.log() }
    }

    fn spawn(self) -> Gateway {
        let scratch = tempfile::tempdir().expect("a temporary directory can be made");
        let file = scratch.path().join("oncegate.toml");
        let config = self.config.clone().unwrap_or_else(|| {
            fs::write(&file, self.document()).expect("the policy can be written");
            file.clone()
        });
        let mut child = Command::new(binary())
            .args(["serve", "--config"])
            .arg(&config)
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be run");
        let stdout = Output::reading(child.stdout.take().expect("stdout is a pipe"));
        let stderr = Output::reading(child.stderr.take().expect("stderr is a pipe"));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Gateway {
            child,
            listener: nowhere,
            admin: nowhere,
            stdout,
            stderr,
            file,
            settings: self.settings,
            namespace: self.namespace,
            _scratch: scratch,
        }
    }
}

/// How a gateway said no to its configuration.
#[derive(Debug)]
pub struct Refusal {
    /// The exit code.
    pub code: Option<i32>,
    /// What it wrote to stderr.
    pub log: String,
}

/// A running gateway. Killed and reaped when dropped.
pub struct Gateway {
    child: Child,
    listener: SocketAddr,
    admin: SocketAddr,
    stdout: Output,
    stderr: Output,
    file: PathBuf,
    settings: String,
    namespace: String,
    _scratch: TempDir,
}

impl Gateway {
    /// Starts a gateway on this store under this policy, and waits until it listens.
    pub async fn start(store: &Store, policy: impl Display) -> Self {
        Launch::new(store, policy).start().await
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.listener
    }

    /// Where operators connect.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// `http://127.0.0.1:PORT` of the listener.
    pub fn url(&self) -> String {
        format!("http://{}", self.listener)
    }

    /// Opens a connection of one's own.
    pub async fn connect(&self) -> Connection {
        Connection::to(self.listener).await
    }

    /// Sends one request over a connection of its own and reads the answer.
    #[track_caller]
    pub fn send(&self, request: Request) -> impl Future<Output = Answer> + Send + use<> {
        let peer = self.listener;
        let what = format!("an answer to {} {}", request.method(), request.target());
        patiently(&what, async move { Connection::to(peer).await.exchange(&request).await })
    }

    /// As [`Gateway::send`], in a task of its own: for a call that must wait for others.
    #[track_caller]
    pub fn spawn_send(&self, request: Request) -> tokio::task::JoinHandle<Answer> {
        tokio::spawn(self.send(request))
    }

    /// Sends one request over HTTP/2.
    pub async fn send_h2(&self, request: &Request) -> Answer {
        http2::send(self.listener, request).await
    }

    /// Asks the admin listener.
    pub async fn ask(&self, path: &str) -> Answer {
        Connection::to(self.admin).await.exchange(&Request::get(path)).await
    }

    /// `/status`.
    pub async fn status(&self) -> Value {
        let answer = self.ask("/status").await;
        serde_json::from_slice(&answer.body)
            .unwrap_or_else(|error| panic!("/status is not JSON ({error}): {}", answer.text()))
    }

    /// The number of the policy generation in force.
    pub async fn generation(&self) -> u64 {
        let status = self.status().await;
        status["generation"].as_u64().unwrap_or_else(|| panic!("no generation in {status}"))
    }

    /// `/metrics`.
    pub async fn metrics(&self) -> Metrics {
        Metrics::parse(&self.ask("/metrics").await.text())
    }

    /// Whether `/readyz` says yes.
    pub async fn is_ready(&self) -> bool {
        self.ask("/readyz").await.status == 200
    }

    /// Replaces the policy and waits until the new one is in force.
    pub async fn reload(&self, policy: impl Display) {
        let before = self.generation().await;
        self.write(policy);
        until("the new policy to be in force", async || {
            (self.generation().await > before).then_some(())
        })
        .await;
    }

    /// Replaces the policy by one that must be refused, and waits until `/status` says so with
    /// this reason.
    pub async fn reload_refused(&self, policy: impl Display, reason: &str) {
        self.write(policy);
        until(&format!("the new policy to be refused for {reason:?}"), async || {
            let last = self.status().await["last_reload"].take();
            let refused = last["ok"] == Value::Bool(false);
            (refused && last["error"].to_string().contains(reason)).then_some(())
        })
        .await;
    }

    /// Writes the policy file in one step, as a careful editor does.
    pub fn write(&self, policy: impl Display) {
        let text = document(&self.settings, &self.namespace, &policy.to_string());
        replace_file(&self.file, text.as_bytes());
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.stderr.text.borrow().lines.clone()
    }

    /// What it has printed to stdout so far.
    pub fn printed(&self) -> String {
        self.stdout.text.borrow().lines.clone()
    }

    /// Waits until the log contains this text.
    pub async fn until_logged(&self, text: &str) {
        let mut log = self.stderr.text.subscribe();
        patiently(&format!("{text:?} in the log"), async {
            let seen = |log: &Text| log.closed || log.lines.contains(text);
            let log = log.wait_for(seen).await.expect("the reader is alive");
            assert!(log.lines.contains(text), "the gateway ended without logging {text:?}");
        })
        .await;
    }

    /// Resident memory of the process.
    pub fn memory_bytes(&self) -> u64 {
        let file = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&file).expect("a running process has a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
        let kib: u64 = kib.and_then(|text| text.trim().parse().ok()).expect("VmRSS in kB");
        kib * 1024
    }

    /// SIGKILL, as a power cut would: nothing is said and nothing is saved.
    pub fn kill(mut self) {
        self.end();
    }

    /// SIGTERM, without waiting.
    pub fn ask_to_stop(&self) {
        self.signal("-TERM");
    }

    /// SIGSTOP: it stands still, as a suspended machine does, until [`Gateway::resume`].
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// SIGTERM, and waits for the end.
    pub async fn terminate(mut self) -> ExitStatus {
        self.ask_to_stop();
        self.exited().await
    }

    /// Waits for the process to end by itself.
    pub async fn exited(&mut self) -> ExitStatus {
        let mut output = self.stdout.text.subscribe();
        patiently("the gateway to exit", async {
            output.wait_for(|text| text.closed).await.expect("the reader is alive");
        })
        .await;
        // Its output is closed, so this returns at once.
        self.child.wait().expect("the child can be waited for")
    }

    fn signal(&self, signal: &str) {
        send_signal(self.child.id(), signal);
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
        if thread::panicking() {
            // Shown by the test runner, which keeps the output of a test that fails.
            println!("--- log of the gateway on {}\n{}", self.listener, self.log());
        }
    }
}

/// The policy file: settings of the process first, then the policy.
fn document(store: &str, namespace: &str, policy: &str) -> String {
    format!(
        "[listener]\naddress = \"127.0.0.1:0\"\n\n\
         [admin]\naddress = \"127.0.0.1:0\"\n\n\
         [store]\n{store}\nnamespace = {namespace:?}\n\n\
         {policy}"
    )
}

/// Puts new content in place by a rename, so that no reader ever sees half of it.
pub fn replace_file(path: &Path, content: &[u8]) {
    let draft = path.with_extension("draft");
    fs::write(&draft, content).expect("the file can be written");
    fs::rename(&draft, path).expect("the file can be replaced");
}

/// Sends a signal such as `-TERM`. By the shell's own `kill`: a bare machine has no other.
pub fn send_signal(pid: u32, signal: &str) {
    let script = format!("kill {signal} {pid}");
    let status = Command::new("sh").args(["-c", &script]).status();
    assert!(status.is_ok_and(|status| status.success()), "{script}");
}

/// The binary: `ONCEGATE_BIN`, or the one beside this test in the target directory.
pub fn binary() -> PathBuf {
    let path = match env::var_os("ONCEGATE_BIN") {
        Some(path) => PathBuf::from(path),
        None => beside_us().join("oncegate"),
    };
    assert!(
        path.is_file(),
        "no gateway at {}: run `cargo build` (or `make test`) first, or set ONCEGATE_BIN",
        path.display()
    );
    path
}

/// `target/<profile>`: a test runs from `deps/` below it, a program from there itself.
fn beside_us() -> PathBuf {
    let mut directory = env::current_exe().expect("a process knows its program");
    directory.pop();
    if directory.ends_with("deps") {
        directory.pop();
    }
    directory
}

fn address_after(output: &str, label: &str) -> Option<SocketAddr> {
    let line = output.lines().find_map(|line| line.strip_prefix(label))?;
    line.trim().parse().ok()
}

/// One stream of a child, collected by a thread.
struct Output {
    text: watch::Sender<Text>,
}

#[derive(Default)]
struct Text {
    lines: String,
    closed: bool,
}

impl Output {
    fn reading(stream: impl Read + Send + 'static) -> Self {
        let text = watch::Sender::new(Text::default());
        let sender = text.clone();
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let piece = String::from_utf8_lossy(&line).into_owned();
                sender.send_modify(|text| text.lines.push_str(&piece));
                line.clear();
            }
            sender.send_modify(|text| text.closed = true);
        });
        Self { text }
    }
}

/// One sample of `/metrics`.
#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// What `/metrics` said at one moment.
#[derive(Clone, Debug)]
pub struct Metrics {
    samples: Vec<Sample>,
    /// The page as it was.
    pub text: String,
}

impl Metrics {
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self { samples: lines.filter_map(sample).collect(), text: text.to_owned() }
    }

    /// The sum of all samples of this name that carry these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let carries = |sample: &&Sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(key, value)| sample.labels.get(*key).is_some_and(|found| found == value))
        };
        let sum: f64 = self.samples.iter().filter(carries).map(|sample| sample.value).sum();
        sum as u64
    }

    /// How many requests ended so.
    pub fn outcome(&self, outcome: &str) -> u64 {
        self.sum("oncegate_requests_total", &[("outcome", outcome)])
    }

    /// How many requests ended at all.
    pub fn requests(&self) -> u64 {
        self.sum("oncegate_requests_total", &[])
    }
}

/// `name{key="value",…} number`, without escapes: the gateway uses none in its labels.
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        Some((key.to_owned(), value.trim_matches('"').to_owned()))
    };
    let labels =
        labels.split(',').filter(|text| !text.is_empty()).map(pair).collect::<Option<_>>()?;
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_the_labels_not_asked_for() {
        let metrics = Metrics::parse(
            "# TYPE oncegate_requests counter\n\
             oncegate_requests_total{operation=\"a\",outcome=\"fresh\"} 2\n\
             oncegate_requests_total{operation=\"b\",outcome=\"fresh\"} 3\n\
             oncegate_requests_total{operation=\"b\",outcome=\"replayed\"} 7\n\
             # EOF\n",
        );
        assert_eq!(metrics.outcome("fresh"), 5);
        assert_eq!(metrics.requests(), 12);
        assert_eq!(metrics.outcome("unknown"), 0);
    }
}
