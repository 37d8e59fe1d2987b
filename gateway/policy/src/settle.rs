//! What the status of an upstream's answer means for the reservation.

/// What an answer says about the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// It ended like this: keep the answer and replay it.
    Store,
    /// It was not executed: give the key back.
    Release,
    /// Nobody can tell whether it was executed.
    Unknown,
}

/// A status or a class of them, as a route writes it: `503` or `"5xx"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusPattern {
    /// One status, 200 to 599.
    Code(u16),
    /// Its hundreds, 2 to 5.
    Class(u16),
}

impl StatusPattern {
    /// Whether `status` is one of these.
    pub fn covers(self, status: u16) -> bool {
        match self {
            Self::Code(code) => code == status,
            Self::Class(class) => class == status / 100,
        }
    }
}

/// Statuses by which an upstream says that it did not execute the request. A 401 or 403 is no
/// lasting answer either: the client repairs its credentials and asks again.
pub const RELEASED_BY_DEFAULT: &[u16] = &[401, 403, 408, 421, 425, 429, 501, 503];

/// The meaning of every status on one route.
///
/// What the route wrote comes first, a status before its class; then the defaults. So a route
/// that writes `unknown = ["5xx"]` gets just that, also for a 503 which it did not mention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettleTable {
    written: Vec<(StatusPattern, Meaning)>,
    /// Whether final answers are kept; when not, a finished operation leaves a tombstone.
    pub keep: bool,
}

impl SettleTable {
    /// A table with these entries over the defaults. Of two entries that cover a status equally
    /// precisely the first counts; the validation refuses such tables.
    pub fn new(mut written: Vec<(StatusPattern, Meaning)>, keep: bool) -> Self {
        // Codes sort before classes, which is the order of precedence.
        written.sort_by_key(|(pattern, _)| *pattern);
        Self { written, keep }
    }

    /// What `status` means. An interim or unheard-of status is nobody's final word: unknown.
    pub fn meaning(&self, status: u16) -> Meaning {
        let written = self.written.iter().find(|(pattern, _)| pattern.covers(status));
        written.map_or_else(|| default_meaning(status), |(_, meaning)| *meaning)
    }
}

fn default_meaning(status: u16) -> Meaning {
    match status {
        _ if RELEASED_BY_DEFAULT.contains(&status) => Meaning::Release,
        200..=499 => Meaning::Store,
        _ => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Meaning::{Release, Store, Unknown};
    use StatusPattern::{Class, Code};

    fn check(table: &SettleTable, expected: &[(u16, Meaning)]) {
        for (status, meaning) in expected {
            assert_eq!(table.meaning(*status), *meaning, "{status}");
        }
    }

    #[test]
    fn the_defaults_store_what_is_final_and_release_what_was_not_executed() {
        let stored = [200, 201, 204, 303, 400, 404, 409, 410, 422].map(|s| (s, Store));
        let released = [401, 403, 408, 421, 425, 429, 501, 503].map(|s| (s, Release));
        let unknown = [100, 101, 500, 502, 504, 505, 599, 600, 999, 0].map(|s| (s, Unknown));
        let table = SettleTable::new(Vec::new(), true);
        check(&table, &[&stored[..], &released[..], &unknown[..]].concat());
    }

    #[test]
    fn a_status_beats_its_class_and_both_beat_the_defaults() {
        let table = SettleTable::new(
            vec![
                (Class(5), Unknown),
                (Code(503), Release),
                (Class(4), Store),
                (Code(404), Release),
            ],
            true,
        );
        check(
            &table,
            &[
                (503, Release),
                (501, Unknown),
                (500, Unknown),
                (401, Store),
                (404, Release),
                (200, Store),
            ],
        );
    }
}
