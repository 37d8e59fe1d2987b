//! Why a call failed, and whether it may have taken effect all the same.

use std::error::Error as StdError;
use std::fmt;

type Source = Box<dyn StdError + Send + Sync>;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store cannot be reached, is starting, is overloaded or has been closed.
    Unavailable,
    /// No answer within the time allowed.
    TimedOut,
    /// The store answered, and will not write: full, read-only, too few replicas.
    Refused,
    /// The store answered, and these credentials may not do this.
    Denied,
    /// What is stored, or what came back, makes no sense.
    Corrupt,
    /// The settings cannot work.
    Misconfigured,
    /// Another process holds the store.
    Locked,
}

/// Whether a failed call may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// It did nothing, and never will.
    NotApplied,
    /// It may have happened, or may still happen. Sending the same event again is safe.
    MaybeApplied,
}

/// A failed call. `Display` is for the operator and leaves out the source; log the chain.
pub struct Error {
    kind: ErrorKind,
    certainty: Certainty,
    message: String,
    source: Option<Source>,
}

impl Error {
    /// A failure of this kind, with a sentence for the operator.
    pub fn new(kind: ErrorKind, certainty: Certainty, message: impl Into<String>) -> Self {
        Self { kind, certainty, message: message.into(), source: None }
    }

    /// The same, and what it came from.
    pub fn because(self, source: impl Into<Source>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, Certainty::NotApplied, message)
    }

    pub(crate) fn closed() -> Self {
        Self::unavailable("the store is closed")
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether it may have taken effect.
    pub fn certainty(&self) -> Certainty {
        self.certainty
    }

    /// The stable name, the same in logs, metrics and tests.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }
}

impl ErrorKind {
    /// Every kind, for tables and tests.
    pub const ALL: [Self; 7] = [
        Self::Unavailable,
        Self::TimedOut,
        Self::Refused,
        Self::Denied,
        Self::Corrupt,
        Self::Misconfigured,
        Self::Locked,
    ];

    /// The stable name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unavailable => "store-unavailable",
            Self::TimedOut => "store-timed-out",
            Self::Refused => "store-refused",
            Self::Denied => "store-denied",
            Self::Corrupt => "store-corrupt",
            Self::Misconfigured => "store-misconfigured",
            Self::Locked => "store-locked",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}): {}", self.code(), self.certainty, self.message)?;
        let mut next = self.source();
        while let Some(source) = next {
            write!(f, ": {source}")?;
            next = source.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
