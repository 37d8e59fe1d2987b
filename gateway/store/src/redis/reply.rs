//! What comes back from Redis: verdicts from script answers, and errors by meaning.

use std::time::Duration;

use oncegate_core::{
    Dispatch, DispatchVerdict, Fence, Finish, FinishVerdict, Reassert, ReassertVerdict, Release,
    ReleaseVerdict, Renew, RenewVerdict, Reserve, ReserveVerdict, Resolve, ResolveVerdict, State,
    Timestamp,
};
use redis::{ErrorKind as RedisErrorKind, RedisError, Value};

use super::scripts::Scripted;
use crate::record::{Stored, decode, state_of, unreadable_reservation};
use crate::{Certainty, Error, ErrorKind};

/// A script's answer that no script gives. The call took effect, whatever it was.
pub(super) fn nonsense(value: &Value) -> Error {
    let shape = if let Value::Array(members) = value {
        format!("an array of {}", members.len())
    } else if let Value::Int(number) = value {
        format!("the number {number}")
    } else {
        "neither array nor number".to_owned()
    };
    let message = format!("Redis gave an answer that the script cannot give: {shape}");
    Error::new(ErrorKind::Corrupt, Certainty::MaybeApplied, message)
}

/// An event's verdict out of its script's answer.
pub(super) trait FromReply: Scripted {
    /// `Err` hands the answer back when it makes no sense.
    fn read(reply: Value) -> Result<Self::Verdict, Value>;

    /// The verdict when what is stored, or what came back, makes no sense, if there is one.
    fn on_corrupt() -> Option<Self::Verdict> {
        None
    }
}

impl FromReply for Reserve {
    fn read(reply: Value) -> Result<ReserveVerdict, Value> {
        let Value::Array(members) = reply else { return Err(reply) };
        match members.as_slice() {
            [Value::Int(1), Value::Int(fence), Value::Int(now)] => {
                let (fence, now) = (Fence(fence.unsigned_abs()), Timestamp(now.unsigned_abs()));
                Ok(ReserveVerdict::Proceed { fence, now })
            }
            [Value::Int(2)] => Ok(ReserveVerdict::Mismatch),
            [Value::Int(3), Value::Int(running), Value::Int(left)] => Ok(ReserveVerdict::Busy {
                running_for: Duration::from_micros(running.unsigned_abs()),
                lease_left: Duration::from_micros(left.unsigned_abs()),
            }),
            [Value::Int(4), Value::Int(now), Value::BulkString(record)] => {
                settled(Timestamp(now.unsigned_abs()), decode(record)).ok_or(Value::Array(members))
            }
            [Value::Int(5)] => Ok(ReserveVerdict::Unknown {
                reason: oncegate_core::UnknownReason::LeaseOver,
                answer: None,
            }),
            [Value::Int(6)] => Ok(unreadable_reservation()),
            _ => Err(Value::Array(members)),
        }
    }

    /// Not an error: a route that runs without its store during an outage would take it for one
    /// and run what may have been executed.
    fn on_corrupt() -> Option<ReserveVerdict> {
        Some(unreadable_reservation())
    }
}

/// The verdict of a record that nobody may execute. The script looked at the head only, so the
/// answer may still turn out to be unreadable.
fn settled(now: Timestamp, stored: Stored) -> Option<ReserveVerdict> {
    let Stored::Readable(record) = stored else { return Some(unreadable_reservation()) };
    let expires_in = record.expires_at.since(now);
    match record.state {
        State::Completed { at, answer } => Some(ReserveVerdict::Replay { answer, at, expires_in }),
        State::Tombstone { status, reason, .. } => {
            Some(ReserveVerdict::NotKept { status, reason, expires_in })
        }
        State::Unknown { reason, answer, .. } => Some(ReserveVerdict::Unknown { reason, answer }),
        State::Claimed { .. } | State::Dispatched { .. } => None,
    }
}

/// A script's answer that is a number alone.
fn code(reply: &Value) -> Option<i64> {
    if let Value::Int(code) = reply { Some(*code) } else { None }
}

impl FromReply for Dispatch {
    fn read(reply: Value) -> Result<DispatchVerdict, Value> {
        match code(&reply) {
            Some(1) => Ok(DispatchVerdict::Go),
            Some(0) => Ok(DispatchVerdict::Lost),
            Some(_) | None => Err(reply),
        }
    }
}

impl FromReply for Renew {
    fn read(reply: Value) -> Result<RenewVerdict, Value> {
        match code(&reply) {
            Some(0) => Ok(RenewVerdict::Superseded),
            Some(1) => Ok(RenewVerdict::Renewed),
            Some(2) => Ok(RenewVerdict::Gone),
            Some(_) | None => Err(reply),
        }
    }
}

impl FromReply for Reassert {
    fn read(reply: Value) -> Result<ReassertVerdict, Value> {
        match code(&reply) {
            Some(0) => Ok(ReassertVerdict::Superseded),
            Some(1) => Ok(ReassertVerdict::Renewed),
            Some(2) => Ok(ReassertVerdict::Restored),
            Some(3) => Ok(ReassertVerdict::TooLate),
            Some(_) | None => Err(reply),
        }
    }
}

impl FromReply for Finish {
    fn read(reply: Value) -> Result<FinishVerdict, Value> {
        match code(&reply) {
            Some(0) => Ok(FinishVerdict::Superseded),
            Some(1) => Ok(FinishVerdict::Stored),
            Some(2) => Ok(FinishVerdict::Restored),
            Some(_) | None => Err(reply),
        }
    }
}

impl FromReply for Release {
    fn read(reply: Value) -> Result<ReleaseVerdict, Value> {
        match code(&reply) {
            Some(0) => Ok(ReleaseVerdict::Superseded),
            Some(1) => Ok(ReleaseVerdict::Released),
            Some(_) | None => Err(reply),
        }
    }
}

impl FromReply for Resolve {
    fn read(reply: Value) -> Result<ResolveVerdict, Value> {
        let Value::Array(members) = reply else { return Err(reply) };
        match members.as_slice() {
            [Value::Int(1)] => Ok(ResolveVerdict::Resolved),
            [Value::Int(2)] => Ok(ResolveVerdict::NoRecord),
            [Value::Int(3), Value::Int(state)] => u8::try_from(*state)
                .ok()
                .and_then(state_of)
                .map(ResolveVerdict::MovedOn)
                .ok_or(Value::Array(members)),
            _ => Err(Value::Array(members)),
        }
    }
}

/// What `peek` shows: the store's time, and the record if there is one.
pub(super) fn read_peek(reply: Value) -> Result<(Timestamp, Option<Stored>), Value> {
    let Value::Array(members) = reply else { return Err(reply) };
    match members.as_slice() {
        [Value::Int(now)] => Ok((Timestamp(now.unsigned_abs()), None)),
        [Value::Int(now), Value::BulkString(record)] => {
            Ok((Timestamp(now.unsigned_abs()), Some(decode(record))))
        }
        _ => Err(Value::Array(members)),
    }
}

/// A failed call, and whether its connection can go on.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// Broken, out of step, or talking to a server that is not, or no longer, the right one.
    pub(super) ends_connection: bool,
    pub(super) no_script: bool,
}

impl Failed {
    pub(super) fn into_error(self) -> Error {
        self.error
    }

    /// Whether Redis did not know the script, and so ran nothing.
    pub(super) fn is_no_script(&self) -> bool {
        self.no_script
    }
}

/// An error by meaning. Each script's only write is its last call, so a script that ends in an
/// error has written nothing; codes that are not known here leave it open.
pub(super) fn classify(error: RedisError) -> Failed {
    let (kind, ends_connection, message) = match error.code().unwrap_or_default() {
        "OOM" => (ErrorKind::Refused, false, "Redis is full (OOM): it takes no reservations"),
        "NOREPLICAS" => (
            ErrorKind::Refused,
            false,
            "Redis has fewer replicas than min-replicas-to-write asks for, and takes no writes",
        ),
        "MISCONF" => (ErrorKind::Refused, false, "Redis cannot write to its disk (MISCONF)"),
        "READONLY" => (ErrorKind::Refused, true, "this Redis is a replica and takes no writes"),
        "LOADING" => (ErrorKind::Unavailable, true, "Redis is loading its data"),
        "BUSY" => (ErrorKind::Unavailable, false, "Redis is busy with somebody's slow script"),
        "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "CROSSSLOT" => {
            (ErrorKind::Unavailable, true, "this Redis cannot serve the key now")
        }
        "NOAUTH" | "WRONGPASS" => {
            (ErrorKind::Denied, true, "Redis did not accept the user name and password")
        }
        "NOPERM" => (ErrorKind::Denied, false, "the Redis user lacks a right that is needed"),
        "WRONGTYPE" => (
            ErrorKind::Corrupt,
            false,
            "the record's name holds something of another type: does somebody else use the \
             namespace?",
        ),
        "NOSCRIPT" => (ErrorKind::Unavailable, false, "Redis has forgotten the scripts"),
        _ => return without_known_code(error),
    };
    let no_script = error.code() == Some("NOSCRIPT");
    let error = Error::new(kind, Certainty::NotApplied, message).because(error);
    Failed { error, ends_connection, no_script }
}

fn without_known_code(error: RedisError) -> Failed {
    let (kind, ends_connection, message) = if error.is_io_error() {
        (ErrorKind::Unavailable, true, "the connection to Redis broke")
    } else if error.kind() == RedisErrorKind::Parse {
        (ErrorKind::Corrupt, true, "what Redis sent is not its protocol")
    } else if error.kind() == RedisErrorKind::AuthenticationFailed {
        (ErrorKind::Denied, true, "Redis did not accept the user name and password")
    } else {
        (ErrorKind::Unavailable, false, "Redis answered with an error")
    };
    let error = Error::new(kind, Certainty::MaybeApplied, message).because(error);
    Failed { error, ends_connection, no_script: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> Failed {
        let parsed = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        let Ok(Value::ServerError(error)) = parsed else { panic!("{line}: {parsed:?}") };
        classify(RedisError::from(error))
    }

    #[test]
    fn what_redis_refuses_has_not_happened() {
        for (line, kind, ends) in [
            ("OOM command not allowed", ErrorKind::Refused, false),
            ("NOREPLICAS Not enough good replicas to write.", ErrorKind::Refused, false),
            ("MISCONF Errors writing to the AOF file", ErrorKind::Refused, false),
            ("READONLY You can't write against a read only replica.", ErrorKind::Refused, true),
            ("LOADING Redis is loading the dataset in memory", ErrorKind::Unavailable, true),
            ("BUSY Redis is busy running a script.", ErrorKind::Unavailable, false),
            ("MASTERDOWN Link with MASTER is down", ErrorKind::Unavailable, true),
            ("CLUSTERDOWN The cluster is down", ErrorKind::Unavailable, true),
            ("TRYAGAIN Multiple keys request during rehashing", ErrorKind::Unavailable, true),
            ("MOVED 3999 127.0.0.1:6381", ErrorKind::Unavailable, true),
            ("NOAUTH Authentication required.", ErrorKind::Denied, true),
            ("NOPERM this user has no permissions", ErrorKind::Denied, false),
            ("WRONGTYPE Operation against a key", ErrorKind::Corrupt, false),
        ] {
            let failed = answered(line);
            assert_eq!(failed.error.kind(), kind, "{line}");
            assert_eq!(failed.error.certainty(), Certainty::NotApplied, "{line}");
            assert_eq!(failed.ends_connection, ends, "{line}");
        }
    }

    #[test]
    fn what_is_not_known_here_may_have_happened() {
        for line in ["ERR something new", "NEWCODE of a later version"] {
            assert_eq!(answered(line).error.certainty(), Certainty::MaybeApplied, "{line}");
        }
    }

    #[test]
    fn answers_that_no_script_gives_are_refused() {
        assert!(Reserve::read(Value::Array(vec![Value::Int(9)])).is_err());
        assert!(Reserve::read(Value::Nil).is_err());
        assert!(Renew::read(Value::Int(7)).is_err());
        assert!(Resolve::read(Value::Array(vec![Value::Int(3), Value::Int(1)])).is_err());
        assert!(read_peek(Value::Array(Vec::new())).is_err());
    }

    #[test]
    fn a_reservation_is_never_told_corrupt() {
        assert_eq!(Reserve::on_corrupt(), Some(unreadable_reservation()));
        assert_eq!(Renew::on_corrupt(), None);
        assert_eq!(Finish::on_corrupt(), None);
    }
}
