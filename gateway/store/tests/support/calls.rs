//! Ordinary calls, for tests that are about something else.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::time::Duration;

use oncegate_core::*;
use oncegate_store::Store;

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const RETENTION: Duration = Duration::from_secs(3600);

/// An identity that no other number has.
pub(crate) fn id(n: u64) -> Identity {
    let mut bytes = [0x5a; 32];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    Identity(bytes)
}

pub(crate) fn reserve(owner: u8) -> Reserve {
    Reserve {
        owner: OwnerToken([owner; 16]),
        fingerprint: Fingerprint { version: 1, digest: [1; 32] },
        phases: Phases::One,
        lease: LEASE,
        retention: RETENTION,
        on_unknown: OnUnknown::Hold,
    }
}

pub(crate) fn finish(claim: Claim, body: &[u8]) -> Finish {
    Finish {
        claim,
        fingerprint: Fingerprint { version: 1, digest: [1; 32] },
        ending: Ending::Completed(Answer {
            status: 200,
            headers: vec![("content-type".into(), b"text/plain".to_vec())],
            body: body.to_vec(),
        }),
        retention: RETENTION,
    }
}

/// Reserves, and must be told to proceed.
pub(crate) async fn proceed(store: &dyn Store, id: &Identity, owner: u8) -> Claim {
    match store.reserve(id, reserve(owner)).await {
        Ok(ReserveVerdict::Proceed { fence, .. }) => {
            Claim { owner: OwnerToken([owner; 16]), fence }
        }
        other => panic!("expected to proceed: {other:?}"),
    }
}

/// The body that another caller gets replayed.
pub(crate) async fn replayed(store: &dyn Store, id: &Identity) -> Vec<u8> {
    match store.reserve(id, reserve(200)).await {
        Ok(ReserveVerdict::Replay { answer, .. }) => answer.body,
        other => panic!("expected a replay: {other:?}"),
    }
}
