//! What a store holds for one identity.
//!
//! These are domain types. The bytes in a store are versioned apart from them, in the store
//! crate, so that neither freezes the other.

use crate::identity::Fingerprint;
use crate::time::Timestamp;

/// 128 random bits made by the gateway for one reservation, constant over re-sends of it.
/// Every later write must show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerToken(pub [u8; 16]);

/// Rises with every reservation of one identity, so that a stale owner is refused. Starts from
/// the store's time in microseconds, so that it rises even when the previous record was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// Proof of ownership, shown with every write after the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Who reserved.
    pub owner: OwnerToken,
    /// Which reservation of theirs.
    pub fence: Fence,
}

/// An upstream's whole answer, as it will be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status, 200 to 599.
    pub status: u16,
    /// Header lines in order, name in lower case, value byte for byte.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body after transfer decoding.
    pub body: Vec<u8>,
}

/// Why an execution has an unknown end. The strings of [`UnknownReason::as_str`] are the ones
/// that logs, metrics, answers and stored records use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnknownReason {
    /// The lease ended and the owner was not heard of again.
    LeaseOver,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The connection broke after the first byte was sent.
    ConnectionLost,
    /// The upstream's answer was cut short or malformed.
    BrokenAnswer,
    /// The upstream answered with a status that the route calls ambiguous.
    AmbiguousStatus,
    /// The gateway stopped before the upstream had answered.
    Drain,
    /// The gateway failed in its own code after the request was sent.
    GatewayFailure,
    /// The stored record cannot be read, or was written by a newer version.
    Unreadable,
}

impl UnknownReason {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 8] = [
        Self::LeaseOver,
        Self::UpstreamTimeout,
        Self::ConnectionLost,
        Self::BrokenAnswer,
        Self::AmbiguousStatus,
        Self::Drain,
        Self::GatewayFailure,
        Self::Unreadable,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LeaseOver => "lease-over",
            Self::UpstreamTimeout => "upstream-timeout",
            Self::ConnectionLost => "connection-lost",
            Self::BrokenAnswer => "broken-answer",
            Self::AmbiguousStatus => "ambiguous-status",
            Self::Drain => "drain",
            Self::GatewayFailure => "gateway-failure",
            Self::Unreadable => "unreadable",
        }
    }

    /// The reverse of [`UnknownReason::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// Why a finished execution has no stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TombstoneReason {
    /// Larger than the route's `max_answer`.
    TooLarge,
    /// An event stream, or another answer that has no end of its own.
    Streamed,
    /// The answer had trailers.
    Trailers,
    /// The route or the upstream said not to keep it.
    ToldNotTo,
}

impl TombstoneReason {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 4] = [Self::TooLarge, Self::Streamed, Self::Trailers, Self::ToldNotTo];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too-large",
            Self::Streamed => "streamed",
            Self::Trailers => "trailers",
            Self::ToldNotTo => "told-not-to",
        }
    }

    /// The reverse of [`TombstoneReason::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// Where an execution stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Reserved, nothing sent yet (two-phase routes only).
    Claimed {
        /// From this moment on another caller may take over.
        lease_until: Timestamp,
    },
    /// May have been sent upstream.
    Dispatched {
        /// From this moment on the owner counts as lost; the record itself stays.
        lease_until: Timestamp,
    },
    /// Finished, the answer is here.
    Completed {
        /// When it finished.
        at: Timestamp,
        /// What the upstream said.
        answer: Answer,
    },
    /// Finished, the answer was not kept.
    Tombstone {
        /// When it finished.
        at: Timestamp,
        /// The upstream's status.
        status: u16,
        /// Why nothing was kept.
        reason: TombstoneReason,
    },
    /// Sent, and nobody knows how it ended.
    Unknown {
        /// When that was noted.
        at: Timestamp,
        /// What happened.
        reason: UnknownReason,
        /// The ambiguous answer, if there was one.
        answer: Option<Answer>,
    },
}

/// The name of a [`State`], without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateName {
    /// See [`State::Claimed`].
    Claimed,
    /// See [`State::Dispatched`].
    Dispatched,
    /// See [`State::Completed`].
    Completed,
    /// See [`State::Tombstone`].
    Tombstone,
    /// See [`State::Unknown`].
    Unknown,
}

impl StateName {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Dispatched => "dispatched",
            Self::Completed => "completed",
            Self::Tombstone => "tombstone",
            Self::Unknown => "unknown",
        }
    }
}

/// One identity's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was asked when the key was first seen. Never changes while the record lives.
    pub fingerprint: Fingerprint,
    /// Whose reservation this is, or was.
    pub claim: Claim,
    /// When this reservation was taken.
    pub reserved_at: Timestamp,
    /// When the store forgets the record: always by retention, never by lease.
    pub expires_at: Timestamp,
    /// Where the execution stands.
    pub state: State,
}

impl Record {
    /// The name of the state it is in.
    pub fn state_name(&self) -> StateName {
        match self.state {
            State::Claimed { .. } => StateName::Claimed,
            State::Dispatched { .. } => StateName::Dispatched,
            State::Completed { .. } => StateName::Completed,
            State::Tombstone { .. } => StateName::Tombstone,
            State::Unknown { .. } => StateName::Unknown,
        }
    }

    /// Whether the store has forgotten it at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }
}
