//! Ends a server whose test process died without a chance to clean up.

use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A shell that waits for its standard input to close, which the kernel does when we die, and
/// then kills the server and removes its directory.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
    // Held open on purpose, and closed only by our death: `stand_down` kills the shell first.
    _open: Option<ChildStdin>,
}

impl Watchdog {
    pub(crate) fn over(pid: u32, dir: &Path) -> io::Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", "read -r _; kill -KILL \"$1\"; rm -rf -- \"$2\"", "redis-watchdog"])
            .arg(pid.to_string())
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let open = shell.stdin.take();
        Ok(Self { shell, _open: open })
    }

    pub(crate) fn stand_down(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Sends a signal by the shell's own `kill`, so that no `unsafe` and no further crate is needed.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", "kill \"-$1\" \"$2\"", "signal", name, &pid.to_string()])
        .status();
    assert!(
        matches!(sent, Ok(status) if status.success()),
        "cannot send SIG{name} to Redis: {sent:?}"
    );
}
