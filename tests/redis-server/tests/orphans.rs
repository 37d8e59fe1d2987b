//! A test process that is killed leaves no server behind.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use oncegate_test_redis::RedisServer;

const ROLE: &str = "ONCEGATE_ORPHAN_CHILD";
const PATIENCE: Duration = Duration::from_secs(10);

/// Not a test of its own: starts a server, says where, and waits to be killed.
#[test]
fn child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let redis = RedisServer::start();
    println!("\nport {}", redis.port());
    sleep(PATIENCE);
}

#[test]
fn a_killed_test_takes_its_server_along() {
    let own = std::env::current_exe().expect("this test");
    let mut child = Command::new(own)
        .args(["--exact", "child", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let port: u16 = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("port ")?.parse().ok())
        .expect("the child says where");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
        assert!(Instant::now() < deadline, "the server outlived its test");
        sleep(Duration::from_millis(5));
    }
}
