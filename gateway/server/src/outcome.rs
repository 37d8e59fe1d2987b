//! How a request ended. One enum, so that the response header, the metric, the log and the tests
//! spell each ending alike.

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// Exactly one of these is counted for every request that reached the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// Executed now, with an answer that is final.
    Fresh,
    /// Given the stored answer of an earlier execution.
    Replayed,
    /// Told that an earlier attempt still runs.
    InProgress,
    /// Refused: the key was used for another request.
    Mismatch,
    /// Refused: no key, no scope, a malformed key or body, too large.
    Invalid,
    /// Sent, now or earlier, and nobody knows how it ended.
    Unknown,
    /// Not executed; the key is free again.
    Released,
    /// Executed earlier; the answer was not kept.
    Tombstone,
    /// Forwarded on a guarded route without protection, because the policy says so.
    Unprotected,
    /// Refused: the store could not say whether the operation already ran.
    StoreError,
    /// Refused: a plugin failed.
    PluginError,
    /// Refused by a plugin's own decision.
    Refused,
    /// The client's patience ended before the upstream's; the execution goes on.
    StillRunning,
    /// Executed now, but the store could not be told: the answer is the client's alone.
    NotStored,
    /// The client left before it was answered. What it started goes on.
    ClientGone,
    /// Not guarded: passed through.
    Passed,
    /// Not guarded, and the upstream could not answer.
    PassFailed,
    /// No route for it.
    NoRoute,
    /// A failure in the gateway's own code.
    Internal,
}

impl Outcome {
    /// Every outcome, for tests and for metrics that start at zero.
    pub(crate) const ALL: [Self; 19] = [
        Self::Fresh,
        Self::Replayed,
        Self::InProgress,
        Self::Mismatch,
        Self::Invalid,
        Self::Unknown,
        Self::Released,
        Self::Tombstone,
        Self::Unprotected,
        Self::StoreError,
        Self::PluginError,
        Self::Refused,
        Self::StillRunning,
        Self::NotStored,
        Self::ClientGone,
        Self::Passed,
        Self::PassFailed,
        Self::NoRoute,
        Self::Internal,
    ];

    /// The stable name: metric label, log field and `Idempotency-Status` value.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Replayed => "replayed",
            Self::InProgress => "in-progress",
            Self::Mismatch => "mismatch",
            Self::Invalid => "invalid",
            Self::Unknown => "unknown",
            Self::Released => "released",
            Self::Tombstone => "tombstone",
            Self::Unprotected => "unprotected",
            Self::StoreError => "store-error",
            Self::PluginError => "plugin-error",
            Self::Refused => "refused",
            Self::StillRunning => "still-running",
            Self::NotStored => "not-stored",
            Self::ClientGone => "client-gone",
            Self::Passed => "passed",
            Self::PassFailed => "pass-failed",
            Self::NoRoute => "no-route",
            Self::Internal => "internal",
        }
    }

    /// The reverse of [`Outcome::as_str`]; reads what a gateway further down says.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.as_str(), encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_name_of_its_own() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.as_str()), Some(outcome));
        }
        assert_eq!(Outcome::parse("nonsense"), None);
    }
}
