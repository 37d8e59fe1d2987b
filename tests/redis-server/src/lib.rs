//! Real Redis servers for tests: each on a port of its own, in a directory of its own, and gone
//! when the test is, however it ended.
//!
//! ```no_run
//! let redis = oncegate_test_redis::RedisServer::start();
//! redis.cli(&["SET", "greeting", "hello"]);
//! assert_eq!(redis.cli(&["GET", "greeting"]), "hello");
//! ```
//!
//! A test that needs Redis and cannot have it **fails**, with a sentence on how to install it:
//! a skipped test looks like a passed one.
//!
//! Ending the server must not depend on the test ending well. `Drop` covers panics; for a test
//! process that is killed, each server has a `watchdog` that sees its own standard input
//! close. The parent-death signal would be shorter, but it follows the *thread* that started
//! the server, and test threads end early.

mod resp;
mod watchdog;

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::watchdog::Watchdog;

const START_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Somebody else may take a port between our finding it free and Redis binding it.
const PORT_ATTEMPTS: usize = 10;

/// The files of a TLS listener.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The server's certificate, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Who signed it, PEM.
    pub ca: PathBuf,
}

/// What the server is started with.
#[derive(Debug, Default)]
pub struct Builder {
    args: Vec<String>,
    files: Vec<(String, String)>,
    tls: Option<Tls>,
}

impl Builder {
    /// One more setting, as in `redis.conf`: `config("appendonly", "yes")`.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.args.push(format!("--{name}"));
        self.args.push(value.to_owned());
        self
    }

    /// Puts a file into the server's directory, for a setting to name it.
    pub fn file(mut self, name: &str, contents: &str) -> Self {
        self.files.push((name.to_owned(), contents.to_owned()));
        self
    }

    /// An ACL file with these lines. The default user stays, for [`RedisServer::cli`].
    pub fn acl(self, lines: &str) -> Self {
        let contents = format!("user default on nopass ~* &* +@all\n{lines}\n");
        self.file("users.acl", &contents).config("aclfile", "users.acl")
    }

    /// Also listens for TLS, on a port of its own: [`RedisServer::tls_port`].
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> RedisServer {
        let dir = tempfile::Builder::new()
            .prefix("oncegate-redis-")
            .tempdir()
            .unwrap_or_else(|error| panic!("cannot make a directory for Redis: {error}"));
        for (name, contents) in &self.files {
            fs::write(dir.path().join(name), contents)
                .unwrap_or_else(|error| panic!("cannot write {name}: {error}"));
        }
        for _ in 0..PORT_ATTEMPTS {
            let ports = Ports { plain: free_port(), tls: self.tls.as_ref().map(|_| free_port()) };
            let args = self.arguments(ports);
            match Running::launch(&args, dir.path(), ports.plain) {
                Ok(running) => return RedisServer { ports, args, dir, running: Some(running) },
                Err(Failure::PortTaken) => continue,
                Err(Failure::Other(why)) => panic!("{why}"),
            }
        }
        panic!("no free port for Redis in {PORT_ATTEMPTS} attempts");
    }

    fn arguments(&self, ports: Ports) -> Vec<String> {
        let mut args: Vec<String> = ["--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]
            .into_iter()
            .map(str::to_owned)
            .collect();
        args.extend(["--port".to_owned(), ports.plain.to_string()]);
        if let (Some(tls), Some(port)) = (&self.tls, ports.tls) {
            args.extend(["--tls-port".to_owned(), port.to_string()]);
            for (name, file) in [
                ("--tls-cert-file", &tls.cert),
                ("--tls-key-file", &tls.key),
                ("--tls-ca-cert-file", &tls.ca),
            ] {
                args.extend([name.to_owned(), file.display().to_string()]);
            }
            args.extend(["--tls-auth-clients".to_owned(), "no".to_owned()]);
        }
        args.extend(self.args.iter().cloned());
        args
    }
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    plain: u16,
    tls: Option<u16>,
}

/// A running server. Dropping it ends it and removes its directory.
#[derive(Debug)]
pub struct RedisServer {
    ports: Ports,
    args: Vec<String>,
    dir: TempDir,
    running: Option<Running>,
}

impl RedisServer {
    /// A server without persistence and otherwise with Redis's own defaults.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// For a server with settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.ports.plain)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports.plain
    }

    /// Its TLS port, when it was started with [`Builder::tls`].
    pub fn tls_port(&self) -> Option<u16> {
        self.ports.tls
    }

    /// Its directory: configuration files, append-only files and `redis.log`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends it with SIGKILL, as a crash would, and waits until it is gone.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Starts it again on the same port and directory, after [`RedisServer::kill`].
    pub fn restart(&mut self) {
        self.kill();
        match Running::launch(&self.args, self.dir.path(), self.ports.plain) {
            Ok(running) => self.running = Some(running),
            Err(Failure::PortTaken) => {
                panic!("port {} was taken while Redis was down", self.ports.plain)
            }
            Err(Failure::Other(why)) => panic!("{why}"),
        }
    }

    /// Stops it with SIGSTOP: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on after [`RedisServer::pause`].
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let running = self.running.as_ref().expect("the server runs");
        watchdog::signal(running.child.id(), name);
    }

    /// Runs one command as the default user and gives the answer as text: array members on a
    /// line each, nil as nothing, an error as `(error) …`.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn cli(&self, command: &[&str]) -> String {
        let command: Vec<&[u8]> = command.iter().map(|part| part.as_bytes()).collect();
        self.command(&command)
    }

    /// As [`RedisServer::cli`], for arguments that are not text.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn command(&self, command: &[&[u8]]) -> String {
        resp::ask(self.ports.plain, command)
            .unwrap_or_else(|error| panic!("Redis did not answer: {error}"))
    }
}

#[derive(Debug)]
enum Failure {
    PortTaken,
    Other(String),
}

/// The server process and the watchdog that outlives us.
#[derive(Debug)]
struct Running {
    child: Child,
    watchdog: Watchdog,
}

impl Running {
    fn launch(args: &[String], dir: &Path, port: u16) -> Result<Self, Failure> {
        let other = |what: &str, error: io::Error| Failure::Other(format!("{what}: {error}"));
        let log_path = dir.join("redis.log");
        let log =
            File::create(&log_path).map_err(|error| other("cannot write redis.log", error))?;
        let mut child = Command::new("redis-server")
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn()
            .map_err(why_not_started)?;
        let watchdog = Watchdog::over(child.id(), dir).map_err(|error| {
            let _ = child.kill();
            let _ = child.wait();
            other("cannot start the watchdog", error)
        })?;
        let mut running = Self { child, watchdog };
        running.wait_until_ready(&log_path, port)?;
        Ok(running)
    }

    /// The log is asked first: a port that answers might be somebody else's server.
    fn wait_until_ready(&mut self, log_path: &Path, port: u16) -> Result<(), Failure> {
        let deadline = Instant::now() + START_WITHIN;
        while Instant::now() < deadline {
            let log = fs::read_to_string(log_path).unwrap_or_default();
            if log.contains("Ready to accept connections") && resp::answers(port) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let log = fs::read_to_string(log_path).unwrap_or_default();
                if log.contains("Address already in use") {
                    return Err(Failure::PortTaken);
                }
                return Err(Failure::Other(format!("redis-server ended ({status}):\n{log}")));
            }
            sleep(LOOK_EVERY);
        }
        let log = fs::read_to_string(log_path).unwrap_or_default();
        Err(Failure::Other(format!("redis-server not ready within {START_WITHIN:?}:\n{log}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // First the watchdog, so that it cannot hit whoever gets the process id next.
        self.watchdog.stand_down();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn why_not_started(error: io::Error) -> Failure {
    let advice = "These tests run against a real Redis 7.0 or later; install it \
                  (Debian and Ubuntu: `apt-get install -y redis-server`) so that \
                  `redis-server` is found on the PATH.";
    Failure::Other(format!("cannot start redis-server: {error}. {advice}"))
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .unwrap_or_else(|error| panic!("no free port on 127.0.0.1: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_do_not_meet() {
        let (one, two) = (RedisServer::start(), RedisServer::start());
        one.cli(&["SET", "k", "of one"]);
        assert_ne!(one.port(), two.port());
        assert_eq!(one.cli(&["GET", "k"]), "of one");
        assert_eq!(two.cli(&["GET", "k"]), "");
    }

    #[test]
    fn a_restarted_server_keeps_its_port_and_its_append_only_file() {
        let mut redis = RedisServer::builder()
            .config("appendonly", "yes")
            .config("appendfsync", "always")
            .start();
        let port = redis.port();
        redis.cli(&["SET", "k", "v"]);
        redis.kill();
        assert!(!resp::answers(port));
        redis.restart();
        assert_eq!((redis.port(), redis.cli(&["GET", "k"])), (port, "v".to_owned()));
    }

    #[test]
    fn a_paused_server_goes_on_when_told() {
        let redis = RedisServer::start();
        redis.pause();
        redis.resume();
        assert_eq!(redis.cli(&["PING"]), "PONG");
    }

    #[test]
    fn dropping_ends_the_process_and_removes_its_directory() {
        let redis = RedisServer::start();
        let (port, dir) = (redis.port(), redis.dir().to_owned());
        drop(redis);
        assert!(!resp::answers(port));
        assert!(!dir.exists());
    }

    #[test]
    fn errors_and_arrays_are_readable() {
        let redis = RedisServer::start();
        assert!(redis.cli(&["NONSENSE"]).starts_with("(error) ERR unknown command"));
        redis.cli(&["RPUSH", "list", "a", "b"]);
        assert_eq!(redis.cli(&["LRANGE", "list", "0", "-1"]), "a\nb");
        assert_eq!(redis.cli(&["LLEN", "list"]), "2");
    }
}
