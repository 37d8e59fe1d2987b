//! A process that is killed loses nothing that it was told is stored.
//!
//! The test starts itself again as a child, which reserves and finishes and prints what was
//! acknowledged. The parent kills it in the middle and looks.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use oncegate_core::*;
use oncegate_store::{Certainty, EmbeddedOptions, EmbeddedStore, ErrorKind, Store};
use support::calls::{finish, id, proceed, replayed, reserve};

const ROLE: &str = "ONCEGATE_CRASH_CHILD";
const FULL_DISK_ROLE: &str = "ONCEGATE_FULL_DISK_CHILD";
const TASKS: u64 = 16;

/// Not a test of its own: what the child does. Without its variable it does nothing.
#[test]
fn child() {
    let Some(path) = std::env::var_os(ROLE) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(work(Path::new(&path)));
}

/// Works until it is killed.
async fn work(path: &Path) {
    let store = EmbeddedStore::open(path, EmbeddedOptions::default()).await.expect("a store");
    let store = Arc::new(store);
    let first = std::env::var("ONCEGATE_CRASH_FIRST").expect("a number");
    let first: u64 = first.parse().expect("a number");
    let workers = (0..TASKS).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            for n in (first + task..).step_by(TASKS as usize) {
                let claim = proceed(&*store, &id(n), 1).await;
                say("reserved", n);
                if n % 3 != 0 {
                    let body = vec![n as u8; 1024];
                    store.finish(&id(n), finish(claim, &body)).await.expect("stored");
                    say("finished", n);
                }
            }
        })
    });
    futures::future::join_all(workers).await;
}

/// Not a test of its own: a child whose disk takes no more at some point.
#[test]
fn child_on_a_full_disk() {
    let Some(path) = std::env::var_os(FULL_DISK_ROLE) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(work_until_full(Path::new(&path)));
}

async fn work_until_full(path: &Path) {
    let store = EmbeddedStore::open(path, EmbeddedOptions::default()).await.expect("a store");
    let mut n = 0;
    let first = loop {
        match store.reserve(&id(n), reserve(1)).await {
            Ok(_) => say("reserved", n),
            Err(error) => break error,
        }
        n += 1;
    };
    assert_eq!(first.certainty(), Certainty::MaybeApplied, "{first:?}");
    assert_eq!(first.kind(), ErrorKind::Refused, "{first:?}");
    for id in [id(0), id(n + 1)] {
        let later = store.reserve(&id, reserve(2)).await.expect_err("it takes no more");
        assert_eq!(later.certainty(), Certainty::NotApplied, "{later:?}");
    }
    let health = store.health();
    assert!(!health.ready && health.problem.is_some_and(|said| said.contains("no more writes")));
    say("refused", n);
}

/// One write, so that lines stay whole.
fn say(what: &str, n: u64) {
    let line = format!("\n{what} {n}\n");
    std::io::stdout().write_all(line.as_bytes()).expect("the parent listens");
}

fn start(path: &Path, first: u64) -> Child {
    let own = std::env::current_exe().expect("this test");
    Command::new(own)
        .args(["--exact", "child", "--nocapture"])
        .env(ROLE, path)
        .env("ONCEGATE_CRASH_FIRST", first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// Kills the child after so many lines and returns all that it said.
fn kill_after(mut child: Child, lines: usize) -> Vec<(String, u64)> {
    let mut said = Vec::new();
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    for line in output.lines() {
        let line = line.expect("text");
        if let Some((what @ ("reserved" | "finished"), n)) = line.split_once(' ')
            && let Ok(n) = n.parse()
        {
            said.push((what.to_owned(), n));
        }
        if said.len() == lines {
            child.kill().expect("killed");
        }
    }
    child.wait().expect("reaped");
    assert!(said.len() >= lines, "the child ended by itself after {} lines", said.len());
    said
}

#[tokio::test]
async fn what_was_acknowledged_survives_sigkill() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut reserved = Vec::new();
    let mut finished = Vec::new();
    for round in 0..4 {
        let child = start(dir.path(), round * 1_000_000);
        for (what, n) in kill_after(child, 300 + 400 * round as usize) {
            if what == "reserved" { reserved.push(n) } else { finished.push(n) }
        }
        let store = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await;
        let store = store.expect("a killed process leaves no lock");
        for n in &finished {
            assert_eq!(replayed(&store, &id(*n)).await, vec![*n as u8; 1024], "finished {n}");
        }
        for n in &reserved {
            let told = store.reserve(&id(*n), reserve(2)).await.expect("a verdict");
            assert!(!matches!(told, ReserveVerdict::Proceed { .. }), "reserved {n}: {told:?}");
        }
        store.close().await;
    }
    assert!(finished.len() > 500, "{} were finished", finished.len());
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = start(dir.path(), 0);
    // Kept open until the child is gone, or it would stop with a broken pipe.
    let mut output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let working = output.by_ref().map_while(Result::ok).any(|line| line.starts_with("reserved"));
    assert!(working, "the child works");
    let second = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await;
    child.kill().expect("killed");
    let pid = child.id();
    child.wait().expect("reaped");
    let error = second.err().expect("it is locked");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains(&pid.to_string()), "{error}");
}

/// The child's files may not grow any more from some point on, which is how a full disk looks to
/// it. The shell lets it see that as an error and not as a signal.
#[tokio::test]
async fn a_full_disk_stops_the_store_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = std::env::current_exe().expect("this test");
    let mut child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" --exact child_on_a_full_disk --nocapture"])
        .arg(own)
        .env(FULL_DISK_ROLE, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let (mut reserved, mut refused) = (Vec::new(), Vec::new());
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        match line.split_once(' ').and_then(|(what, n)| Some((what, n.parse::<u64>().ok()?))) {
            Some(("reserved", n)) => reserved.push(n),
            Some(("refused", n)) => refused.push(n),
            Some(_) | None => {}
        }
        if reserved.len() == 100 && line.starts_with("reserved") {
            let pid = child.id().to_string();
            let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=4096"]).status();
            assert!(limited.is_ok_and(|status| status.success()), "prlimit (of util-linux) works");
        }
    }
    assert!(child.wait().expect("reaped").success(), "the child found all as expected");
    assert_eq!(refused.len(), 1);

    let store = EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await;
    let store = store.expect("there is room again");
    for n in reserved {
        let told = store.reserve(&id(n), reserve(2)).await.expect("a verdict");
        assert!(matches!(told, ReserveVerdict::Busy { .. }), "reserved {n}: {told:?}");
    }
    // What was refused may be there or not; it is answered either way.
    store.reserve(&id(refused[0]), reserve(2)).await.expect("a verdict");
}
