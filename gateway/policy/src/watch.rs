//! Tells when policy files or plugins may have changed.
//!
//! *Directories* are watched, not files: an editor replaces a file by renaming another over it,
//! and a Kubernetes ConfigMap swaps a symlink called `..data` beside the files. A watch on the
//! file itself would keep looking at the old one. So for every path of interest we walk the way
//! to it, through all symlinks, and watch each directory on it: whichever step is swapped, the
//! way leads elsewhere. An ancestor that we may not read cannot be watched, and is left out.
//!
//! A signal says "may have changed" and nothing else; the loader decides. Signals are debounced
//! and coalesced: after the first event we wait until it has been quiet for a moment, but not
//! for ever. Before each signal everything is watched anew, since the paths may now lead
//! elsewhere; a change that fell between is not lost, because the loader reads afterwards.
//!
//! For the same reason the first watch is started *before* the first load, with nothing but the
//! path of the policy. [`Watcher::watch`] then adds what only the policy could tell: the plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::load::{FILES_MAX, is_policy_file};

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
    /// How the files were when this watch began.
    stamps: Stamps,
    /// Held for its effect, and replaced as a whole: the paths may be the same while what they
    /// name is not.
    _watcher: Option<RecommendedWatcher>,
}

impl Watcher {
    /// Watches these files and directories. The receiver gets one signal for a burst of changes.
    /// Call it within a Tokio runtime.
    ///
    /// So that no change is missed, call it before [`load`](crate::load()) with the path of the
    /// policy alone, be it a file or a directory. Of a directory the policy files are watched too,
    /// wherever symlinks lead. What the policy names (the plugins,
    /// [`PolicySet::files`](crate::PolicySet::files)) goes to [`Watcher::watch`] after the load
    /// and before the plugins are read. There is no signal without a change.
    pub fn start(paths: Vec<PathBuf>) -> io::Result<(Self, mpsc::Receiver<()>)> {
        Self::start_with(paths, Debounce::default())
    }

    /// As [`Watcher::start`], with other times.
    pub fn start_with(
        paths: Vec<PathBuf>,
        debounce: Debounce,
    ) -> io::Result<(Self, mpsc::Receiver<()>)> {
        let armed = Mutex::new(Armed { paths: Vec::new(), stamps: Stamps::new(), _watcher: None });
        let shared = Arc::new(Shared { raw: Notify::new(), armed });
        shared.arm(Some(paths))?;
        // One place: a second signal that nobody has taken yet says nothing new.
        let (signals, receiver) = mpsc::channel(1);
        let task = tokio::spawn(run(Arc::clone(&shared), debounce, signals));
        Ok((Self { shared, task }, receiver))
    }

    /// Watches these paths from now on, instead of the ones before: after each load, also after
    /// a refused one ([`Problems::watched`](crate::Problems::watched)). A change that was noticed
    /// before is still signalled.
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
        // A watch is replaced together with its queue, and with what was not read from it yet.
        // When a signal follows anyway that is no loss; otherwise the files themselves tell.
        let changed = paths.is_some() && stamps_of(&armed.paths) != armed.stamps;
        let paths = paths.unwrap_or_else(|| armed.paths.clone());
        let stamps = stamps_of(&paths);
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
        ways.watch(|directory| watcher.watch(directory, RecursiveMode::NonRecursive))?;
        // A swap before its directory was watched: this watch leads elsewhere, so set another.
        if changed || Ways::to(&paths) != ways {
            self.raw.notify_one();
        }
        *armed = Armed { paths, stamps, _watcher: Some(watcher) };
        Ok(())
    }
}

/// Which file each path leads to, when it was written and how long it is; `None` for none.
type Stamps = BTreeMap<PathBuf, Option<(u64, SystemTime, u64)>>;

fn stamps_of(paths: &[PathBuf]) -> Stamps {
    let files = paths.iter().flat_map(|path| match path.is_dir() {
        true => policy_files(path),
        false => vec![path.clone()],
    });
    let stamp = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.ino(), metadata.modified().ok()?, metadata.len()))
    };
    files.map(|file| (file.clone(), stamp(&file))).collect()
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
    /// Whether a way ends here, so that without this watch an edit would go unnoticed.
    end: bool,
}

impl Ways {
    fn to(paths: &[PathBuf]) -> Self {
        let mut ways = Self::default();
        for path in paths {
            match std::path::absolute(path) {
                Ok(path) => {
                    for file in ways.walk(&path).iter().flat_map(|end| policy_files(end)) {
                        ways.walk(&file);
                    }
                }
                Err(error) => tracing::warn!(%error, path = %path.display(), "cannot be watched"),
            }
        }
        ways
    }

    /// Follows one path from the root. At each step its directory is noted; at a symlink the walk
    /// goes on at its target. If the end is a directory, it is noted too and returned.
    fn walk(&mut self, path: &Path) -> Option<PathBuf> {
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
            let interest = self.directories.entry(here.clone()).or_default();
            interest.names.insert(step);
            match target {
                Some(target) => {
                    symlinks += 1;
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    todo.extend(steps(&target));
                }
                None if next.is_dir() => here = next,
                // A file, or nothing: what comes and goes here is what we want to know.
                None => {
                    interest.end = true;
                    return None;
                }
            }
        }
        let interest = self.directories.entry(here.clone()).or_default();
        interest.policies = true;
        interest.end = true;
        Some(here)
    }

    /// Watches each of the directories by `watch`, but for those that are not needed or gone.
    fn watch(&self, mut watch: impl FnMut(&Path) -> notify::Result<()>) -> io::Result<()> {
        for (directory, interest) in &self.directories {
            let Err(error) = watch(directory) else { continue };
            let shown = directory.display();
            if !interest.end && is_denied(&error) {
                // We may pass through it and not read it, which is all that a load needs.
                tracing::debug!(%error, directory = %shown, "an ancestor cannot be watched");
            } else if !directory.exists() {
                // It went while we looked. Its parent is watched, and tells when it is back.
                tracing::debug!(%error, directory = %shown, "not there to watch");
            } else {
                return Err(io::Error::other(error));
            }
        }
        Ok(())
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

fn is_denied(error: &notify::Error) -> bool {
    matches!(&error.kind, notify::ErrorKind::Io(e) if e.kind() == io::ErrorKind::PermissionDenied)
}

/// The policy files in a directory, as many as a policy may have. Each may be a symlink.
fn policy_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_policy_file(path)).take(FILES_MAX).collect()
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

    #[tokio::test]
    async fn a_change_between_the_start_and_the_load_is_signalled() {
        // A directory, as a ConfigMap, with nothing known but its path.
        let mut bench = Bench::start(|root| {
            let policies = root.join("policies");
            fs::create_dir_all(policies.join("..1")).expect("created");
            fs::create_dir(policies.join("..2")).expect("created");
            fs::write(policies.join("..1/a.toml"), "1").expect("written");
            fs::write(policies.join("..2/a.toml"), "2").expect("written");
            symlink("..1", policies.join("..data")).expect("linked");
            symlink("..data/a.toml", policies.join("a.toml")).expect("linked");
            vec![policies]
        });
        assert_eq!(bench.drain().await, 0, "a signal without a change");
        symlink("..2", bench.path("policies/next")).expect("linked");
        fs::rename(bench.path("policies/next"), bench.path("policies/..data")).expect("renamed");
        let files = vec![bench.path("policies"), bench.path("policies/a.toml")];
        bench.watcher.watch(files).expect("watching");
        bench.signal("a swap before the files were known").await;

        // One file.
        let mut bench = Bench::start(|root| {
            fs::write(root.join("policy.toml"), "old").expect("written");
            vec![root.join("policy.toml")]
        });
        fs::write(bench.path("policy.toml"), "new").expect("written");
        let files = vec![bench.path("policy.toml"), bench.path("plugin.wasm")];
        bench.watcher.watch(files).expect("watching");
        bench.signal("an edit before the files were known").await;
        assert_eq!(bench.drain().await, 0, "a second signal");
    }

    #[tokio::test]
    async fn a_change_just_before_other_files_are_watched_is_signalled() {
        for _ in 0..20 {
            let mut bench = Bench::start(directory_with_a_file);
            let files = vec![bench.path("policies"), bench.path("plugin.wasm")];
            fs::write(bench.path("policies/a.toml"), "new").expect("written");
            bench.watcher.watch(files).expect("watching");
            bench.signal("an edit just before").await;
        }
    }

    #[tokio::test]
    async fn an_ancestor_that_is_replaced_is_signalled_and_watched_again() {
        let build = |root: &Path, name: &str| {
            let policies = root.join(name).join("etc/policies");
            fs::create_dir_all(&policies).expect("created");
            fs::write(policies.join("a.toml"), name).expect("written");
        };
        let mut bench = Bench::start(|root| {
            build(root, "x");
            build(root, "new");
            vec![root.join("x/etc/policies")]
        });
        fs::rename(bench.path("x"), bench.path("x.old")).expect("renamed");
        fs::rename(bench.path("new"), bench.path("x")).expect("renamed");
        bench.signal("an ancestor replaced").await;
        bench.drain().await;
        fs::write(bench.path("x/etc/policies/a.toml"), "edited").expect("written");
        bench.signal("an edit below the new ancestor").await;
    }

    #[test]
    fn an_ancestor_that_may_not_be_read_is_left_out() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("x/policies")).expect("created");
        fs::write(root.path().join("x/plugin.wasm"), "").expect("written");
        let denied = |path: &str, closed: &str| {
            let closed = root.path().join(closed);
            Ways::to(&[root.path().join(path)]).watch(|directory| match directory == closed {
                true => Err(notify::Error::io(io::ErrorKind::PermissionDenied.into())),
                false => Ok(()),
            })
        };
        assert!(denied("x/policies", "").is_ok());
        assert!(denied("x/policies", "x").is_ok());
        assert!(denied("x/policies", "x/policies").is_err());
        assert!(denied("x/plugin.wasm", "x").is_err());
        assert!(denied("x/gone.wasm", "x").is_err());
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
