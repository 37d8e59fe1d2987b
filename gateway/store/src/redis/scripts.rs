//! The scripts, each with the same preludes in front, and what they are asked.
//!
//! Arguments travel packed in one string, which costs less on both ends than one argument each,
//! and holds every number exactly.

use std::sync::LazyLock;
use std::time::Duration;

use oncegate_core::{
    Answer, Claim, Dispatch, Ending, Fence, Finish, OnUnknown, Phases, Reassert, Release, Renew,
    Reserve, Resolution, Resolve, StateName, time::micros,
};
use redis::Script;

use crate::ask::Ask;
use crate::record::{
    answer_len_max, encode_answer, fingerprint_bytes, state_code, tombstone_code, unknown_code,
};

/// Seventy years. Lua counts in doubles, and nothing above may come near their 53 bits.
const SPAN_MICROS_MAX: u64 = 1 << 51;

/// Every script, for loading.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) reserve: Script,
    pub(super) dispatch: Script,
    pub(super) renew: Script,
    pub(super) reassert: Script,
    pub(super) finish: Script,
    pub(super) release: Script,
    pub(super) resolve: Script,
    pub(super) peek: Script,
}

/// With the time from Redis.
pub(super) static SCRIPTS: LazyLock<Scripts> =
    LazyLock::new(|| Scripts::with_clock(include_str!("scripts/clock.lua")));

/// With the time from the caller: the same bodies, for tests.
pub(super) static TEST_SCRIPTS: LazyLock<Scripts> =
    LazyLock::new(|| Scripts::with_clock(include_str!("scripts/test_clock.lua")));

impl Scripts {
    fn with_clock(clock: &str) -> Self {
        let script = |flags: &str, parts: &[&str]| {
            let record = include_str!("scripts/record.lua");
            Script::new(&format!("#!lua{flags}\n{clock}\n{record}\n{}", parts.join("\n")))
        };
        let always = |parts: &[&str]| script(" flags=allow-oom", parts);
        let lease = include_str!("scripts/lease.lua");
        Self {
            reserve: script("", &[include_str!("scripts/reserve.lua")]),
            dispatch: always(&[lease, include_str!("scripts/dispatch.lua")]),
            renew: always(&[lease, include_str!("scripts/renew.lua")]),
            reassert: always(&[lease, include_str!("scripts/reassert.lua")]),
            finish: always(&[include_str!("scripts/finish.lua")]),
            release: always(&[lease, include_str!("scripts/release.lua")]),
            resolve: always(&[include_str!("scripts/resolve.lua")]),
            peek: script(" flags=no-writes", &[include_str!("scripts/peek.lua")]),
        }
    }

    pub(super) fn all(&self) -> [&Script; 8] {
        [
            &self.reserve,
            &self.dispatch,
            &self.renew,
            &self.reassert,
            &self.finish,
            &self.release,
            &self.resolve,
            &self.peek,
        ]
    }
}

/// An event that has a script.
pub(super) trait Scripted: Ask {
    /// Whether its verdict often needs no write, so that it is worth asking a Redis that takes
    /// none.
    const MAY_ONLY_READ: bool = false;

    /// Which one.
    fn script(scripts: &Scripts) -> &Script;

    /// What it is asked, in the order of the script's `struct.unpack`.
    fn pack(&self) -> Packed;
}

/// `ARGV[1]` and `ARGV[2]`.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) head: Vec<u8>,
    /// Empty where there is no answer; an encoded answer never is.
    pub(super) answer: Vec<u8>,
}

impl Packed {
    fn new() -> Self {
        Self { head: Vec::with_capacity(96), answer: Vec::new() }
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.head.extend_from_slice(bytes);
        self
    }

    fn byte(self, byte: u8) -> Self {
        self.bytes(&[byte])
    }

    fn number(self, number: u64) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    fn span(self, span: Duration) -> Self {
        self.number(micros(span).min(SPAN_MICROS_MAX))
    }

    fn claim(self, claim: &Claim) -> Self {
        self.bytes(&claim.owner.0).number(claim.fence.0)
    }

    fn maybe_fence(self, fence: Option<Fence>) -> Self {
        self.byte(u8::from(fence.is_some())).number(fence.map_or(0, |fence| fence.0))
    }

    fn answer(mut self, answer: Option<&Answer>) -> Self {
        if let Some(answer) = answer {
            self.answer.reserve_exact(answer_len_max(answer));
            encode_answer(answer, &mut self.answer);
        }
        self
    }
}

impl Scripted for Reserve {
    const MAY_ONLY_READ: bool = true;

    fn script(scripts: &Scripts) -> &Script {
        &scripts.reserve
    }

    fn pack(&self) -> Packed {
        let phase = match self.phases {
            Phases::One => StateName::Dispatched,
            Phases::Two => StateName::Claimed,
        };
        Packed::new()
            .bytes(&fingerprint_bytes(&self.fingerprint))
            .bytes(&self.owner.0)
            .byte(state_code(phase))
            .byte(u8::from(self.on_unknown == OnUnknown::Hold))
            .span(self.lease)
            .span(self.retention)
    }
}

impl Scripted for Dispatch {
    fn script(scripts: &Scripts) -> &Script {
        &scripts.dispatch
    }

    fn pack(&self) -> Packed {
        Packed::new().claim(&self.claim).span(self.lease).span(self.retention)
    }
}

impl Scripted for Renew {
    fn script(scripts: &Scripts) -> &Script {
        &scripts.renew
    }

    fn pack(&self) -> Packed {
        Packed::new().claim(&self.claim).span(self.lease).span(self.retention)
    }
}

impl Scripted for Reassert {
    fn script(scripts: &Scripts) -> &Script {
        &scripts.reassert
    }

    fn pack(&self) -> Packed {
        Packed::new()
            .bytes(&fingerprint_bytes(&self.fingerprint))
            .claim(&self.claim)
            .span(self.lease)
            .span(self.retention)
            .number(self.not_after.0)
    }
}

impl Scripted for Finish {
    fn script(scripts: &Scripts) -> &Script {
        &scripts.finish
    }

    fn pack(&self) -> Packed {
        let (state, status, reason, answer) = match &self.ending {
            Ending::Completed(answer) => (StateName::Completed, 0, 0, Some(answer)),
            Ending::Tombstone { status, reason } => {
                (StateName::Tombstone, *status, tombstone_code(*reason), None)
            }
            Ending::Unknown { reason, answer } => {
                (StateName::Unknown, 0, unknown_code(*reason), answer.as_ref())
            }
        };
        Packed::new()
            .bytes(&fingerprint_bytes(&self.fingerprint))
            .claim(&self.claim)
            .byte(state_code(state))
            .bytes(&status.to_be_bytes())
            .byte(reason)
            .span(self.retention)
            .answer(answer)
    }
}

impl Scripted for Release {
    fn script(scripts: &Scripts) -> &Script {
        &scripts.release
    }

    fn pack(&self) -> Packed {
        Packed::new().bytes(&self.owner.0).maybe_fence(self.fence)
    }
}

impl Scripted for Resolve {
    fn script(scripts: &Scripts) -> &Script {
        &scripts.resolve
    }

    fn pack(&self) -> Packed {
        let answer = match &self.resolution {
            Resolution::Done(answer) => Some(answer),
            Resolution::NeverHappened => None,
        };
        Packed::new()
            .maybe_fence(self.fence)
            .byte(u8::from(answer.is_some()))
            .span(self.retention)
            .answer(answer)
    }
}
