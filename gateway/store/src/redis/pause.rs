//! How long to wait before connecting again.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// A connection that did not last this long was no success: a server that takes connections and
/// fails at once would be met every few milliseconds.
const LASTING: Duration = Duration::from_secs(10);

/// Doubles from attempt to attempt. Each pause is shortened by chance, by up to a half, so that
/// many gateways do not return to a restarted Redis at the same moment.
#[derive(Debug)]
pub(super) struct Pause {
    next: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        Self { next: SHORTEST }
    }
}

impl Pause {
    /// Begins again with short pauses if a connection has lasted.
    pub(super) fn note_connection(&mut self, lasted: Duration) {
        if lasted >= LASTING {
            *self = Self::default();
        }
    }

    pub(super) fn next(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(LONGEST);
        // The standard library's only source of chance; quality does not matter here.
        let chance = RandomState::new().hash_one(()) % 512;
        let shortened = u32::try_from(512 + chance).unwrap_or(1024);
        whole * shortened / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lasting_connection_shortens_the_pauses() {
        let mut pause = Pause { next: LONGEST };
        pause.note_connection(LASTING - Duration::from_millis(1));
        assert_eq!(pause.next, LONGEST);
        pause.note_connection(LASTING);
        assert_eq!(pause.next, SHORTEST);
    }

    #[test]
    fn pauses_grow_to_a_limit_and_differ() {
        let mut pause = Pause::default();
        let pauses: Vec<Duration> = (0..12).map(|_| pause.next()).collect();
        assert!(pauses[0] >= SHORTEST / 2 && pauses[0] <= SHORTEST);
        assert!(pauses[6..].iter().all(|pause| *pause >= LONGEST / 2 && *pause <= LONGEST));
        assert!(pauses[7..].iter().any(|pause| *pause != pauses[6]));
    }
}
