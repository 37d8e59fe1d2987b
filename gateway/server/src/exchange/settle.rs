//! What an upstream answer means for the key. Pure.

use http::HeaderMap;
use oncegate_policy::{Meaning, SettleTable};

use crate::headers;
use crate::outcome::Outcome;

/// The meaning of a whole answer. When the upstream is itself guarded by a gateway, that
/// gateway says more than the status does: its "in progress" must not be kept as the answer,
/// and asking it again under the same key is safe.
pub(crate) fn meaning(table: &SettleTable, status: u16, headers: &HeaderMap) -> Meaning {
    let inner =
        headers.get(headers::STATUS).and_then(|value| value.to_str().ok()).and_then(Outcome::parse);
    match inner {
        Some(
            Outcome::InProgress
            | Outcome::StillRunning
            | Outcome::Released
            | Outcome::StoreError
            | Outcome::PluginError
            | Outcome::Invalid
            | Outcome::Mismatch
            | Outcome::Refused,
        ) => Meaning::Release,
        Some(Outcome::Unknown) => Meaning::Unknown,
        Some(
            Outcome::Fresh
            | Outcome::Replayed
            | Outcome::Tombstone
            | Outcome::Unprotected
            | Outcome::NotStored
            | Outcome::ClientGone
            | Outcome::Passed
            | Outcome::PassFailed
            | Outcome::NoRoute
            | Outcome::Internal,
        )
        | None => table.meaning(status),
    }
}

/// Whether the upstream asks that its answer be used once and not kept.
pub(crate) fn asks_not_to_keep(headers: &HeaderMap) -> bool {
    headers.get(headers::KEEP).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"no"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_gateway_is_believed_before_the_status() {
        let check = |status: u16, inner: Option<&str>, expected: Meaning| {
            let mut headers = HeaderMap::new();
            if let Some(inner) = inner {
                headers.insert(headers::STATUS, inner.parse().expect("value"));
            }
            let table = SettleTable::default();
            assert_eq!(meaning(&table, status, &headers), expected, "{status} {inner:?}");
        };
        check(201, None, Meaning::Store);
        check(409, None, Meaning::Store);
        check(409, Some("in-progress"), Meaning::Release);
        check(504, Some("still-running"), Meaning::Release);
        check(409, Some("unknown"), Meaning::Unknown);
        check(201, Some("replayed"), Meaning::Store);
        check(500, Some("fresh"), Meaning::Unknown);
        check(503, None, Meaning::Release);
    }
}
