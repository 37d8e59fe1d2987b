//! The time of the stores that have no server to ask.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oncegate_core::{Timestamp, time::micros};

/// Where a store's time comes from.
#[derive(Clone, Default)]
pub struct Clock(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Wall,
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clock.
    pub fn wall() -> Self {
        Self(Source::Wall)
    }

    /// A clock that a test moves with [`Clock::pass`]. Clones show the same time.
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(start.0))))
    }

    /// Moves a manual clock on. The machine's clock needs no help.
    pub fn pass(&self, span: Duration) {
        match &self.0 {
            Source::Wall => {}
            Source::Manual(time) => {
                time.fetch_add(micros(span), Ordering::SeqCst);
            }
        }
    }

    /// What a manual clock shows; `None` for the machine's clock.
    pub(crate) fn manual_now(&self) -> Option<Timestamp> {
        match &self.0 {
            Source::Wall => None,
            Source::Manual(time) => Some(Timestamp(time.load(Ordering::SeqCst))),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Wall => f.write_str("Clock(wall)"),
            Source::Manual(time) => write!(f, "Clock({}µs)", time.load(Ordering::SeqCst)),
        }
    }
}

/// A clock that never goes back, not even across restarts: it starts from the latest time the
/// store has written, and when the machine's clock falls behind, it goes on at the pace of the
/// monotonic clock. Standing still instead would keep leases and retention from ever ending.
pub(crate) struct Steady {
    clock: Clock,
    anchor: Timestamp,
    anchored_at: Instant,
}

impl Steady {
    pub(crate) fn new(clock: Clock, not_before: Timestamp) -> Self {
        Self { clock, anchor: not_before, anchored_at: Instant::now() }
    }

    pub(crate) fn now(&mut self) -> Timestamp {
        match self.clock.manual_now() {
            Some(time) => self.advance(time, Duration::ZERO),
            None => {
                let elapsed = self.anchored_at.elapsed();
                self.advance(wall_now(), elapsed)
            }
        }
    }

    /// `elapsed` is what the monotonic clock says since the anchor.
    fn advance(&mut self, wall: Timestamp, elapsed: Duration) -> Timestamp {
        let steady = self.anchor.after(elapsed);
        if wall > steady {
            self.anchor = wall;
            self.anchored_at = Instant::now();
            return wall;
        }
        steady
    }
}

fn wall_now() -> Timestamp {
    // Before 1970 means a broken clock; the anchor is then all we have.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(micros(since_epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn follows_the_wall_while_it_rises() {
        let mut steady = Steady::new(Clock::wall(), Timestamp(0));
        assert_eq!(steady.advance(Timestamp(5_000_000), Duration::ZERO), Timestamp(5_000_000));
        assert_eq!(steady.advance(Timestamp(9_000_000), SECOND), Timestamp(9_000_000));
    }

    #[test]
    fn goes_on_at_its_own_pace_when_the_wall_falls_back() {
        let mut steady = Steady::new(Clock::wall(), Timestamp(0));
        steady.advance(Timestamp(9_000_000), Duration::ZERO);
        assert_eq!(steady.advance(Timestamp(3_000_000), SECOND), Timestamp(10_000_000));
        assert_eq!(steady.advance(Timestamp(4_000_000), 2 * SECOND), Timestamp(11_000_000));
    }

    #[test]
    fn starts_no_earlier_than_what_was_written() {
        let clock = Clock::manual(Timestamp(10));
        let mut steady = Steady::new(clock.clone(), Timestamp(100));
        assert_eq!(steady.now(), Timestamp(100));
        clock.pass(Duration::from_micros(95));
        assert_eq!(steady.now(), Timestamp(105));
    }
}
