//! The stored bytes, versioned apart from the core's types.
//!
//! Both durable stores keep the same bytes: a head of fixed width, which the Redis scripts take
//! apart with `struct.unpack`, then the answer, if there is one. All numbers are big-endian.
//!
//! ```text
//!  0  version      1      8  …          fence        8 bytes at 51
//!  1  state        1      c claimed, d dispatched, k completed, t tombstone, u unknown
//!  2  fingerprint  1 + 32 its version, its digest
//! 35  owner        16
//! 51  fence        8
//! 59  reserved at  8      microseconds since 1970, as all times
//! 67  expires at   8
//! 75  moment       8      c, d: when the lease ends; k, t, u: when that was noted
//! 83  status       2      t: the upstream's status; else 0
//! 85  reason       1      t, u: its code below; else 0
//! 86  has answer   1      0 or 1; always 1 for k, maybe 1 for u
//! 87  answer              version 1, status 2, headers (count, then name and value each with
//!                         its length), body with its length; lengths are LEB128
//! ```
//!
//! # Unreadable bytes
//!
//! Bytes that this version cannot take apart, because they were damaged, or written by a newer
//! version during an upgrade or before a downgrade, stand for *something that may have been
//! executed*. Treating them as "no record" would execute it again. So, for every store:
//!
//! | asked | told |
//! |---|---|
//! | reserve | `Unknown`, reason `unreadable`, also on a `retry` route: whether the fingerprint matches cannot be told either |
//! | dispatch | `Lost`: nothing may be sent |
//! | renew, reassert, finish, release | `Superseded`: nothing is stored |
//! | resolve "never happened", no fence named | `Resolved`: the operator's way out, the bytes are removed |
//! | resolve otherwise | `MovedOn(unknown)`: there is no fingerprint to keep the answer under |
//! | peek, scan | [`unreadable`] in place of the record |

use oncegate_core::{
    Answer, Claim, DispatchVerdict, Event, Fence, Fingerprint, FinishVerdict, Next, OwnerToken,
    ReassertVerdict, Record, ReleaseVerdict, RenewVerdict, ReserveVerdict, Resolution,
    ResolveVerdict, State, StateName, Timestamp, TombstoneReason, UnknownReason, Verdict,
    transition,
};

/// The version written. Reading knows only this one so far.
pub const VERSION: u8 = 1;
/// The width of the head.
pub const HEAD_LEN: usize = 87;
const ANSWER_VERSION: u8 = 1;

/// What was found under an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A record.
    Readable(Record),
    /// Bytes that this version cannot take apart. See the [module documentation](self).
    Unreadable,
}

impl Stored {
    /// For `peek` and `scan`: [`unreadable`] where there is no record to show.
    pub fn into_record(self) -> Record {
        match self {
            Self::Readable(record) => record,
            Self::Unreadable => unreadable(),
        }
    }

    /// Whether the store has forgotten it at `now`. Unreadable bytes have no end that could be
    /// trusted.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        match self {
            Self::Readable(record) => record.is_expired(now),
            Self::Unreadable => false,
        }
    }
}

/// The stand-in for a record that cannot be read: unknown, of nobody, without end.
pub fn unreadable() -> Record {
    Record {
        fingerprint: Fingerprint { version: 0, digest: [0; 32] },
        claim: Claim { owner: OwnerToken([0; 16]), fence: Fence(0) },
        reserved_at: Timestamp(0),
        expires_at: Timestamp(u64::MAX),
        state: State::Unknown { at: Timestamp(0), reason: UnknownReason::Unreadable, answer: None },
    }
}

/// The protocol over what was found: the core's transition, or the refusals for unreadable
/// bytes.
pub fn step(now: Timestamp, stored: Option<&Stored>, event: &Event) -> (Next, Verdict) {
    match stored {
        None => transition(now, None, event),
        Some(Stored::Readable(record)) => transition(now, Some(record), event),
        Some(Stored::Unreadable) => refuse(now, event),
    }
}

fn refuse(now: Timestamp, event: &Event) -> (Next, Verdict) {
    let verdict = match event {
        Event::Reserve(_) => Verdict::Reserve(unreadable_reservation()),
        Event::Dispatch(_) => Verdict::Dispatch(DispatchVerdict::Lost),
        Event::Renew(_) => Verdict::Renew(RenewVerdict::Superseded),
        Event::Reassert(event) if now > event.not_after => {
            Verdict::Reassert(ReassertVerdict::TooLate)
        }
        Event::Reassert(_) => Verdict::Reassert(ReassertVerdict::Superseded),
        Event::Finish(_) => Verdict::Finish(FinishVerdict::Superseded),
        Event::Release(_) => Verdict::Release(ReleaseVerdict::Superseded),
        Event::Resolve(event) => {
            if event.fence.is_none() && event.resolution == Resolution::NeverHappened {
                return (Next::Remove, Verdict::Resolve(ResolveVerdict::Resolved));
            }
            Verdict::Resolve(ResolveVerdict::MovedOn(StateName::Unknown))
        }
    };
    (Next::Keep, verdict)
}

/// What a reservation is told about bytes that cannot be read.
pub(crate) fn unreadable_reservation() -> ReserveVerdict {
    ReserveVerdict::Unknown { reason: UnknownReason::Unreadable, answer: None }
}

/// A record as bytes, after `prefix` bytes of the caller's own.
pub(crate) fn encode_after(prefix: &[u8], record: &Record) -> Vec<u8> {
    let answer = match &record.state {
        State::Completed { answer, .. } => Some(answer),
        State::Unknown { answer, .. } => answer.as_ref(),
        State::Claimed { .. } | State::Dispatched { .. } | State::Tombstone { .. } => None,
    };
    let mut out = Vec::with_capacity(prefix.len() + HEAD_LEN + answer.map_or(0, answer_len_max));
    out.extend_from_slice(prefix);
    let (moment, status, reason) = details(&record.state);
    out.push(VERSION);
    out.push(state_code(record.state_name()));
    out.extend_from_slice(&fingerprint_bytes(&record.fingerprint));
    out.extend_from_slice(&record.claim.owner.0);
    for number in [record.claim.fence.0, record.reserved_at.0, record.expires_at.0, moment.0] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(&status.to_be_bytes());
    out.push(reason);
    out.push(u8::from(answer.is_some()));
    if let Some(answer) = answer {
        encode_answer(answer, &mut out);
    }
    out
}

/// A record as bytes.
pub fn encode(record: &Record) -> Vec<u8> {
    encode_after(&[], record)
}

fn details(state: &State) -> (Timestamp, u16, u8) {
    match state {
        State::Claimed { lease_until } | State::Dispatched { lease_until } => (*lease_until, 0, 0),
        State::Completed { at, .. } => (*at, 0, 0),
        State::Tombstone { at, status, reason } => (*at, *status, tombstone_code(*reason)),
        State::Unknown { at, reason, .. } => (*at, 0, unknown_code(*reason)),
    }
}

/// A fingerprint as it stands in the head.
pub(crate) fn fingerprint_bytes(fingerprint: &Fingerprint) -> [u8; 33] {
    let mut bytes = [fingerprint.version; 33];
    bytes[1..].copy_from_slice(&fingerprint.digest);
    bytes
}

/// The byte that stands for a state. Never reuse one.
pub(crate) fn state_code(state: StateName) -> u8 {
    match state {
        StateName::Claimed => b'c',
        StateName::Dispatched => b'd',
        StateName::Completed => b'k',
        StateName::Tombstone => b't',
        StateName::Unknown => b'u',
    }
}

/// The reverse of [`state_code`].
pub(crate) fn state_of(code: u8) -> Option<StateName> {
    [
        StateName::Claimed,
        StateName::Dispatched,
        StateName::Completed,
        StateName::Tombstone,
        StateName::Unknown,
    ]
    .into_iter()
    .find(|state| state_code(*state) == code)
}

/// The byte that stands for a tombstone's reason. Never reuse one.
pub(crate) fn tombstone_code(reason: TombstoneReason) -> u8 {
    match reason {
        TombstoneReason::TooLarge => 1,
        TombstoneReason::Streamed => 2,
        TombstoneReason::Trailers => 3,
        TombstoneReason::ToldNotTo => 4,
    }
}

/// The byte that stands for an unknown end's reason. Never reuse one.
pub(crate) fn unknown_code(reason: UnknownReason) -> u8 {
    match reason {
        UnknownReason::LeaseOver => 1,
        UnknownReason::UpstreamTimeout => 2,
        UnknownReason::ConnectionLost => 3,
        UnknownReason::BrokenAnswer => 4,
        UnknownReason::AmbiguousStatus => 5,
        UnknownReason::Drain => 6,
        UnknownReason::GatewayFailure => 7,
        UnknownReason::Unreadable => 8,
    }
}

/// Takes stored bytes apart. Anything unexpected, be it one byte too many, is unreadable.
pub fn decode(bytes: &[u8]) -> Stored {
    read_record(bytes).map_or(Stored::Unreadable, Stored::Readable)
}

fn read_record(bytes: &[u8]) -> Option<Record> {
    let mut from = Reader(bytes);
    if from.byte()? != VERSION {
        return None;
    }
    let state = state_of(from.byte()?)?;
    let fingerprint = Fingerprint { version: from.byte()?, digest: from.array()? };
    let claim = Claim { owner: OwnerToken(from.array()?), fence: Fence(from.number()?) };
    let reserved_at = Timestamp(from.number()?);
    let expires_at = Timestamp(from.number()?);
    let moment = Timestamp(from.number()?);
    let status = u16::from_be_bytes(from.array()?);
    let reason = from.byte()?;
    let answer = match from.byte()? {
        0 if from.0.is_empty() => None,
        1 => Some(decode_answer(from.0)?),
        _ => return None,
    };
    let state = read_state(state, moment, status, reason, answer)?;
    Some(Record { fingerprint, claim, reserved_at, expires_at, state })
}

fn read_state(
    state: StateName,
    moment: Timestamp,
    status: u16,
    reason: u8,
    answer: Option<Answer>,
) -> Option<State> {
    Some(match (state, status, reason, answer) {
        (StateName::Claimed, 0, 0, None) => State::Claimed { lease_until: moment },
        (StateName::Dispatched, 0, 0, None) => State::Dispatched { lease_until: moment },
        (StateName::Completed, 0, 0, Some(answer)) => State::Completed { at: moment, answer },
        (StateName::Tombstone, status, reason, None) => {
            let reason =
                TombstoneReason::ALL.into_iter().find(|known| tombstone_code(*known) == reason)?;
            State::Tombstone { at: moment, status, reason }
        }
        (StateName::Unknown, 0, reason, answer) => {
            let reason =
                UnknownReason::ALL.into_iter().find(|known| unknown_code(*known) == reason)?;
            State::Unknown { at: moment, reason, answer }
        }
        (StateName::Claimed | StateName::Dispatched | StateName::Completed, ..)
        | (StateName::Tombstone | StateName::Unknown, ..) => return None,
    })
}

/// Appends an answer's bytes.
pub fn encode_answer(answer: &Answer, out: &mut Vec<u8>) {
    out.push(ANSWER_VERSION);
    out.extend_from_slice(&answer.status.to_be_bytes());
    push_len(out, answer.headers.len());
    for (name, value) in &answer.headers {
        push_sized(out, name.as_bytes());
        push_sized(out, value);
    }
    push_sized(out, &answer.body);
}

/// Takes an answer's bytes apart; `None` for anything unexpected.
pub fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let mut from = Reader(bytes);
    if from.byte()? != ANSWER_VERSION {
        return None;
    }
    let status = u16::from_be_bytes(from.array()?);
    let count = from.len()?;
    // Each header takes two bytes at least: a damaged count cannot make us reserve more.
    let mut headers = Vec::with_capacity(count.min(from.0.len() / 2));
    for _ in 0..count {
        let name = String::from_utf8(from.sized()?.to_vec()).ok()?;
        headers.push((name, from.sized()?.to_vec()));
    }
    let body = from.sized()?.to_vec();
    from.0.is_empty().then_some(Answer { status, headers, body })
}

/// An upper bound, so that encoding allocates once.
pub(crate) fn answer_len_max(answer: &Answer) -> usize {
    const LEN_MAX: usize = 10;
    let headers: usize =
        answer.headers.iter().map(|(name, value)| name.len() + value.len() + 2 * LEN_MAX).sum();
    3 + LEN_MAX + headers + LEN_MAX + answer.body.len()
}

fn push_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    push_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn push_len(out: &mut Vec<u8>, mut len: usize) {
    loop {
        let low = (len & 0x7f) as u8;
        len >>= 7;
        if len == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Reads from the front, and never past the end.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn len(&mut self) -> Option<usize> {
        let mut len = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            len |= bits << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(len).ok();
            }
        }
        None
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let len = self.len()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use oncegate_core::{hex, unhex};

    use super::*;

    fn record(state: State) -> Record {
        Record {
            fingerprint: Fingerprint { version: 3, digest: [0xfd; 32] },
            claim: Claim { owner: OwnerToken([0x0e; 16]), fence: Fence(1_790_000_000_123_456) },
            reserved_at: Timestamp(1_790_000_000_123_455),
            expires_at: Timestamp(1_790_086_430_123_455),
            state,
        }
    }

    fn answer() -> Answer {
        Answer {
            status: 201,
            headers: vec![
                ("location".into(), b"/v1/payments/7".to_vec()),
                ("x-raw".into(), vec![0xff, 0x00]),
                ("x-raw".into(), Vec::new()),
            ],
            body: b"{\"id\":7}".to_vec(),
        }
    }

    fn states() -> Vec<State> {
        let at = Timestamp(1_790_000_001_000_000);
        let reason = UnknownReason::AmbiguousStatus;
        vec![
            State::Claimed { lease_until: at },
            State::Dispatched { lease_until: at },
            State::Completed { at, answer: answer() },
            State::Tombstone { at, status: 200, reason: TombstoneReason::Streamed },
            State::Unknown { at, reason, answer: None },
            State::Unknown { at, reason, answer: Some(answer()) },
        ]
    }

    /// Old records must stay readable: these bytes are never to be changed, only added to.
    #[test]
    fn golden_bytes() {
        let golden = include_str!("record/golden.txt");
        let lines: Vec<&str> = golden.lines().filter(|line| !line.starts_with('#')).collect();
        let states = states();
        assert_eq!(lines.len(), states.len());
        for (line, state) in lines.into_iter().zip(states) {
            let record = record(state);
            assert_eq!(hex(&encode(&record)), line);
            let bytes = unhex(line).expect("golden bytes are hexadecimal");
            assert_eq!(decode(&bytes), Stored::Readable(record));
        }
    }

    #[test]
    fn every_cut_and_every_addition_is_unreadable() {
        for state in states() {
            let mut bytes = encode(&record(state));
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len]), Stored::Unreadable, "cut at {len}");
            }
            bytes.push(0);
            assert_eq!(decode(&bytes), Stored::Unreadable, "one byte more");
        }
    }

    #[test]
    fn newer_and_unheard_of_values_are_unreadable() {
        let whole = encode(&record(states().remove(5)));
        for (at, value) in [(0, 0), (0, 2), (1, b'x'), (83, 1), (85, 0), (85, 99), (86, 2), (87, 2)]
        {
            let mut bytes = whole.clone();
            bytes[at] = value;
            assert_eq!(decode(&bytes), Stored::Unreadable, "byte {at} = {value}");
        }
    }

    #[test]
    fn absurd_lengths_are_unreadable_and_cheap() {
        for len in ["ffffffffffffffffff01", "ffffffffffffffffff7f", "ffffffffffffffffffff01"] {
            let bytes = unhex(&format!("0100c8{len}")).expect("hexadecimal");
            assert_eq!(decode_answer(&bytes), None, "{len}");
        }
    }
}
