//! Waiting: for a gate, for a condition, and never for longer than [`PATIENCE`].

use std::time::Duration;

use tokio::sync::watch;

/// How long anything may take before the test calls it stuck. Generous, because it is only ever
/// reached by a failure: a passing test is woken by the event it waits for.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How often [`until`] asks again.
const PAUSE: Duration = Duration::from_millis(20);

/// A door that starts shut, is opened once, and stays open. Clones are the same door.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    /// A shut door.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Lets everybody through who waits now or comes later.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Returns once the door is open.
    pub async fn passed(&self) {
        // This handle is a sender itself, so the channel cannot close under us.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// Gives `work` at most [`PATIENCE`], and names what was being waited for if that is not enough.
#[track_caller]
pub fn patiently<T, F: Future<Output = T>>(
    what: &str,
    work: F,
) -> impl Future<Output = T> + use<T, F> {
    let caller = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(value) => value,
            Err(_) => panic!("{caller}: waited {PATIENCE:?} in vain for {what}"),
        }
    }
}

/// Asks `probe` again and again until it has a value. For things outside this process that give
/// no signal: a server that comes up, a lease or a retention that ends by the store's clock.
#[track_caller]
pub fn until<T, P: AsyncFnMut() -> Option<T>>(
    what: &str,
    mut probe: P,
) -> impl Future<Output = T> + use<T, P> {
    patiently(what, async move {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}
