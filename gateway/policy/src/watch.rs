//! Tells when policy files or plugins may have changed.
//!
//! *Directories* are watched, not files: an editor replaces a file by renaming another over it,
//! and a Kubernetes ConfigMap swaps a symlink called `..data` beside the files. A watch on the
//! file itself would keep looking at the old one. So for every path of interest we walk the way
//! to it, through all symlinks, and watch each directory in which a swap would change where the
//! way leads.
//!
//! A signal says "may have changed" and nothing else; the loader decides. Signals are debounced
//! and coalesced: after the first event we wait until it has been quiet for a moment, but not
//! for ever. Before each signal everything is watched anew, since the paths may now lead
//! elsewhere; a change that fell between is not lost, because the loader reads afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::load::is_policy_file;

/// How long to wait for a writer to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debounce {
    /// A signal comes when nothing happened for this long…
    pub quiet: Duration,
    /// …or when this long has passed since the first event.
    pub most: Duration,
}

impl Default for Debounce {
    fn default() -> Self {
        Self { quiet: Duration::from_millis(200), most: Duration::from_secs(1) }
    }
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// Something happened that may matter. Holds one permit, so it cannot grow.
    raw: Notify,
    armed: Mutex<Armed>,
}

#[derive(Debug)]
struct Armed {
    paths: Vec<PathBuf>,
    /// Held for its effect, and replaced as a whole: the paths may be the same while what they
    /// name is not.
    _watcher: Option<RecommendedWatcher>,
}

impl Watcher {
    /// Watches these files and directories ([`PolicySet::files`](crate::PolicySet::files)). The
    /// receiver gets one signal for a burst of changes. Call it within a Tokio runtime.
    pub fn start(paths: Vec<PathBuf>) -> io::Result<(Self, mpsc::Receiver<()>)> {
        Self::start_with(paths, Debounce::default())
    }

    /// As [`Watcher::start`], with other times.
    pub fn start_with(
        paths: Vec<PathBuf>,
        debounce: Debounce,
    ) -> io::Result<(Self, mpsc::Receiver<()>)> {
        let armed = Mutex::new(Armed { paths: Vec::new(), _watcher: None });
        let shared = Arc::new(Shared { raw: Notify::new(), armed });
        shared.arm(Some(paths))?;
        // One place: a second signal that nobody has taken yet says nothing new.
        let (signals, receiver) = mpsc::channel(1);
        let task = tokio::spawn(run(Arc::clone(&shared), debounce, signals));
        Ok((Self { shared, task }, receiver))
    }

    /// Watches these paths from now on, after a reload whose policy names other files.
    pub fn watch(&self, paths: Vec<PathBuf>) -> io::Result<()> {
        self.shared.arm(Some(paths))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(shared: Arc<Shared>, debounce: Debounce, signals: mpsc::Sender<()>) {
    loop {
        settle(&shared.raw, debounce).await;
        if let Err(error) = shared.arm(None) {
            // What was watched before still is; the next event tries again.
            tracing::warn!(%error, "policy files can no longer be watched in full");
        }
        match signals.try_send(()) {
            Ok(()) | Err(mpsc::error::TrySendError::Full(())) => {}
            Err(mpsc::error::TrySendError::Closed(())) => return,
        }
    }
}

/// Returns when something has happened and the writer seems to have finished.
async fn settle(raw: &Notify, debounce: Debounce) {
    raw.notified().await;
    let end = Instant::now() + debounce.most;
    loop {
        let quiet = Instant::now() + debounce.quiet;
        if timeout_at(quiet.min(end), raw.notified()).await.is_err() {
            return;
        }
    }
}

impl Shared {
    /// Watches anew: these paths, or the ones known so far.
    fn arm(self: &Arc<Self>, paths: Option<Vec<PathBuf>>) -> io::Result<()> {
        // A poisoned lock holds whole values all the same: each is replaced in one assignment.
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        let paths = paths.unwrap_or_else(|| armed.paths.clone());
        let ways = Ways::to(&paths);
        let shared = Arc::downgrade(self);
        let interest = ways.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<_>| {
            if event.as_ref().map_or(true, |event| interest.concern(event))
                && let Some(shared) = shared.upgrade()
            {
                shared.raw.notify_one();
            }
        })
        .map_err(io::Error::other)?;
        for directory in ways.directories.keys() {
            match watcher.watch(directory, RecursiveMode::NonRecursive) {
                Ok(()) => {}
                // It went while we looked. Its parent is watched, and tells when it is back.
                Err(error) if !directory.exists() => {
                    tracing::debug!(%error, directory = %directory.display(), "not there to watch");
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        *armed = Armed { paths, _watcher: Some(watcher) };
        Ok(())
    }
}

/// The directories to watch, and what in each of them matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ways {
    directories: BTreeMap<PathBuf, Interest>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Interest {
    /// Entries that lie on the way to a path of interest.
    names: BTreeSet<OsString>,
    /// Whether it is a policy directory, in which a new policy file matters too.
    policies: bool,
}

impl Ways {
    fn to(paths: &[PathBuf]) -> Self {
        let mut ways = Self::default();
        for path in paths {
            match std::path::absolute(path) {
                Ok(path) => ways.walk(&path),
                Err(error) => tracing::warn!(%error, path = %path.display(), "cannot be watched"),
            }
        }
        ways
    }

    /// Follows one path from the root. At each symlink its directory is noted, and the walk goes
    /// on at its target; at the end the directory of the end, and the end if it is a directory.
    fn walk(&mut self, path: &Path) {
        const SYMLINKS_MAX: usize = 40;
        let mut symlinks = 0;
        let mut here = PathBuf::from("/");
        let mut todo: Vec<OsString> = steps(path);
        while let Some(step) = todo.pop() {
            if step == ".." {
                here.pop();
                continue;
            }
            let next = here.join(&step);
            let target = std::fs::read_link(&next).ok().filter(|_| symlinks < SYMLINKS_MAX);
            if target.is_some() || todo.is_empty() || !next.exists() {
                self.note(&here, step);
            }
            match target {
                Some(target) => {
                    symlinks += 1;
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    todo.extend(steps(&target));
                }
                None if !next.exists() => return,
                None => here = next,
            }
        }
        if here.is_dir() {
            self.directories.entry(here).or_default().policies = true;
        }
    }

    fn note(&mut self, directory: &Path, name: OsString) {
        self.directories.entry(directory.to_path_buf()).or_default().names.insert(name);
    }

    /// Whether an event may mean that a policy or a plugin changed.
    fn concern(&self, event: &notify::Event) -> bool {
        match event.kind {
            // Reading, our own included. Only the end of a write counts.
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
            EventKind::Access(_) => return false,
            EventKind::Any
            | EventKind::Create(_)
            | EventKind::Modify(_)
            | EventKind::Remove(_)
            | EventKind::Other => {}
        }
        // Events were lost: anything may have happened.
        event.need_rescan() || event.paths.iter().any(|path| self.concerns_path(path))
    }

    fn concerns_path(&self, path: &Path) -> bool {
        if self.directories.contains_key(path) {
            return true;
        }
        let Some((directory, name)) = path.parent().zip(path.file_name()) else { return false };
        self.directories.get(directory).is_some_and(|interest| {
            interest.names.contains(name) || (interest.policies && is_policy_file(path))
        })
    }
}

/// The names along a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let step = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    let mut steps: Vec<OsString> = path.components().filter_map(step).collect();
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    const DEBOUNCE: Debounce =
        Debounce { quiet: Duration::from_millis(50), most: Duration::from_millis(500) };

    /// A watched directory `policies` in a directory of its own.
    struct Bench {
        root: TempDir,
        watcher: Watcher,
        signals: mpsc::Receiver<()>,
    }

    impl Bench {
        /// `prepare` builds the tree and returns what to watch.
        fn start(prepare: impl FnOnce(&Path) -> Vec<PathBuf>) -> Self {
            let root = tempfile::tempdir().expect("a directory");
            let paths = prepare(root.path());
            let (watcher, signals) = Watcher::start_with(paths, DEBOUNCE).expect("watching");
            Self { root, watcher, signals }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        async fn signal(&mut self, what: &str) {
            let signal = tokio::time::timeout(Duration::from_secs(20), self.signals.recv()).await;
            assert_eq!(signal, Ok(Some(())), "no signal for: {what}");
        }

        /// Takes what is left of a burst, until it has been quiet for several times the debounce.
        async fn drain(&mut self) -> usize {
            let mut count = 0;
            while let Ok(Some(())) =
                tokio::time::timeout(DEBOUNCE.quiet * 8, self.signals.recv()).await
            {
                count += 1;
            }
            count
        }
    }

    fn directory_with_a_file(root: &Path) -> Vec<PathBuf> {
        let policies = root.join("policies");
        fs::create_dir(&policies).expect("created");
        fs::write(policies.join("a.toml"), "old").expect("written");
        vec![policies.clone(), policies.join("a.toml")]
    }

    #[tokio::test]
    async fn an_edit_a_rename_a_new_file_and_a_removal_are_signalled() {
        let mut bench = Bench::start(directory_with_a_file);
        fs::write(bench.path("policies/a.toml"), "new").expect("written");
        bench.signal("an edit in place").await;
        bench.drain().await;

        fs::write(bench.path("policies/.a.toml.tmp"), "newer").expect("written");
        fs::rename(bench.path("policies/.a.toml.tmp"), bench.path("policies/a.toml"))
            .expect("renamed");
        bench.signal("a file renamed over another").await;
        bench.drain().await;

        fs::write(bench.path("policies/b.yaml"), "b").expect("written");
        bench.signal("a new file").await;
        bench.drain().await;

        fs::remove_file(bench.path("policies/b.yaml")).expect("removed");
        bench.signal("a removal").await;
    }

    #[tokio::test]
    async fn the_symlink_swap_of_a_config_map_is_signalled() {
        let generation = |root: &Path, name: &str| {
            fs::create_dir(root.join(name)).expect("created");
            fs::write(root.join(name).join("a.toml"), name).expect("written");
        };
        let mut bench = Bench::start(|root| {
            let policies = root.join("policies");
            fs::create_dir(&policies).expect("created");
            generation(&policies, "..2026_1");
            symlink("..2026_1", policies.join("..data")).expect("linked");
            symlink("..data/a.toml", policies.join("a.toml")).expect("linked");
            vec![policies.clone(), policies.join("a.toml")]
        });
        // Twice: the second swap happens behind a watch that was renewed after the first.
        for name in ["..2026_2", "..2026_3"] {
            generation(&bench.path("policies"), name);
            symlink(name, bench.path("policies/..data_tmp")).expect("linked");
            fs::rename(bench.path("policies/..data_tmp"), bench.path("policies/..data"))
                .expect("renamed");
            bench.signal(name).await;
            bench.drain().await;
            let now = fs::read_to_string(bench.path("policies/a.toml")).expect("read");
            assert_eq!(now, name);
        }
    }

    #[tokio::test]
    async fn a_directory_behind_a_symlink_is_followed_when_the_link_moves() {
        let mut bench = Bench::start(|root| {
            for name in ["one", "two"] {
                fs::create_dir_all(root.join(name).join("policies")).expect("created");
                fs::write(root.join(name).join("policies/a.toml"), name).expect("written");
            }
            symlink("one", root.join("current")).expect("linked");
            vec![root.join("current/policies")]
        });
        symlink("two", bench.path("next")).expect("linked");
        fs::rename(bench.path("next"), bench.path("current")).expect("renamed");
        bench.signal("a swap of the link").await;
        bench.drain().await;
        fs::write(bench.path("two/policies/a.toml"), "edited").expect("written");
        bench.signal("an edit behind the new target").await;
    }

    #[tokio::test]
    async fn a_directory_that_is_replaced_is_watched_again() {
        let mut bench = Bench::start(directory_with_a_file);
        fs::rename(bench.path("policies"), bench.path("policies.old")).expect("renamed");
        bench.signal("the directory has gone").await;
        bench.drain().await;
        directory_with_a_file(bench.root.path());
        bench.signal("the directory is back").await;
        bench.drain().await;
        fs::write(bench.path("policies/a.toml"), "edited").expect("written");
        bench.signal("an edit in the new directory").await;
    }

    #[tokio::test]
    async fn a_burst_gives_few_signals() {
        let mut bench = Bench::start(directory_with_a_file);
        for n in 0..200 {
            fs::write(bench.path("policies/a.toml"), format!("{n}")).expect("written");
        }
        bench.signal("a burst").await;
        let rest = bench.drain().await;
        assert!(rest <= 3, "{rest} more signals for one burst");
    }

    #[tokio::test]
    async fn reading_and_files_beside_are_not_signalled() {
        let mut bench = Bench::start(directory_with_a_file);
        fs::read_to_string(bench.path("policies/a.toml")).expect("read");
        fs::write(bench.path("policies/notes.txt"), "x").expect("written");
        fs::write(bench.path("policies/.a.toml.swp"), "x").expect("written");
        fs::write(bench.path("unrelated"), "x").expect("written");
        assert_eq!(bench.drain().await, 0);
        // The watch does work: the next edit is seen.
        fs::write(bench.path("policies/a.toml"), "new").expect("written");
        bench.signal("an edit").await;
    }

    #[tokio::test]
    async fn a_plugin_can_be_watched_after_the_start() {
        let mut bench = Bench::start(directory_with_a_file);
        let plugin = bench.path("plugin.wasm");
        fs::write(&plugin, "old").expect("written");
        bench.watcher.watch(vec![bench.path("policies"), plugin.clone()]).expect("watching");
        fs::write(&plugin, "new").expect("written");
        bench.signal("an edit of the plugin").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_waits_for_quiet_but_not_for_ever() {
        let raw = Arc::new(Notify::new());
        let debounce = Debounce::default();
        let started = Instant::now();
        raw.notify_one();
        settle(&raw, debounce).await;
        assert_eq!(started.elapsed(), debounce.quiet);

        let writer = Arc::clone(&raw);
        let busy = tokio::spawn(async move {
            loop {
                writer.notify_one();
                tokio::time::sleep(debounce.quiet / 2).await;
            }
        });
        let started = Instant::now();
        settle(&raw, debounce).await;
        assert_eq!(started.elapsed(), debounce.most);
        busy.abort();
    }

    #[test]
    fn an_overflow_of_events_concerns_us() {
        let lost = notify::Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
        assert!(Ways::default().concern(&lost));
        assert!(!Ways::default().concern(&notify::Event::new(EventKind::Any)));
    }
}
