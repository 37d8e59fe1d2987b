//! What can go wrong with a plugin, in two families: while it is loaded (an operator fixes it)
//! and while it answers a request (the request pays).
//!
//! Failures of a running guest are told apart by the *type* of the error, never by its text,
//! and in one place: [`DeriveError::from_call`].

use std::fmt;

use wasmtime::{PoolConcurrencyLimitError, Trap};

/// Why a plugin cannot be used. Each sentence names the rule, the numbers and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The WebAssembly engine itself could not be set up.
    #[error("the WebAssembly engine cannot start: {0}")]
    Engine(String),
    /// The bytes are not those that the policy pins.
    #[error(
        "the component has SHA-256 {found}, the policy pins {pinned}; update the pin if the change is wanted"
    )]
    PinMismatch {
        /// What the policy says, in hexadecimal.
        pinned: String,
        /// What the bytes have, in hexadecimal.
        found: String,
    },
    /// The component is over the size limit.
    #[error(
        "the component has {bytes} bytes, at most {max} are allowed; strip debug information or raise the limit"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A core module, the step before a component.
    #[error(
        "this is a core WebAssembly module, not a component; run `wasm-tools component new module.wasm -o plugin.wasm`"
    )]
    CoreModule,
    /// Not WebAssembly, or something this engine does not run.
    #[error("the component does not compile: {0}")]
    Compile(String),
    /// It wants something from the outside that a pure plugin must not have.
    #[error(
        "the component imports `{import}`, which a plugin may not: the same request must always give the same key; {hint}"
    )]
    ForbiddenImport {
        /// The name of the import.
        import: String,
        /// How to build without it.
        hint: &'static str,
    },
    /// It does not have the exports and types of the interface.
    #[error(
        "the component does not fit oncegate:plugin@1.0.0: {0}; build it against an interface version that this gateway has"
    )]
    WrongInterface(String),
    /// The plugin refused its configuration.
    #[error("the configuration is refused: {}", list(.0))]
    Configure(Vec<Problem>),
    /// Two fresh instances disagreed about the manifest or about a sample request.
    #[error(
        "two fresh instances disagree about {about}; a plugin must be a pure function of request and configuration"
    )]
    NonDeterministic {
        /// What they were asked.
        about: String,
    },
    /// It failed in `configure` or in its first calls.
    #[error("the plugin failed {when}: {error}")]
    Failed {
        /// What it was doing.
        when: String,
        /// How it failed.
        #[source]
        error: DeriveError,
    },
}

impl LoadError {
    /// A stable word for logs, metrics and tests.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Engine(_) => "engine",
            Self::PinMismatch { .. } => "pin-mismatch",
            Self::TooLarge { .. } => "too-large",
            Self::CoreModule => "core-module",
            Self::Compile(_) => "compile",
            Self::ForbiddenImport { .. } => "forbidden-import",
            Self::WrongInterface(_) => "wrong-interface",
            Self::Configure(_) => "configuration",
            Self::NonDeterministic { .. } => "non-deterministic",
            Self::Failed { error, .. } => error.code(),
        }
    }
}

/// One thing wrong with a plugin's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A JSON pointer into the configuration.
    pub at: String,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "/" } else { &self.at };
        write!(f, "{at}: {}", self.message)
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}

/// Why a plugin gave no decision for a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeriveError {
    /// A panic, a wild memory access, a used-up stack, or a call that is not allowed now.
    #[error("the plugin trapped")]
    Trapped,
    /// Out of time.
    #[error("the plugin took longer than it may")]
    TimedOut,
    /// Out of memory.
    #[error("the plugin asked for more memory than it may have")]
    MemoryLimit,
    /// Too many calls of host functions.
    #[error("the plugin called the gateway more often than it may")]
    HostCalls,
    /// An answer outside the rules; says which rule.
    #[error("the plugin's answer is not usable: {0}")]
    InvalidOutput(String),
    /// The plugin's own word that it failed.
    #[error("the plugin reports: {0}")]
    Failed(String),
    /// As many instances as may exist are at work, and none became free in time.
    #[error("too many plugin calls at once")]
    Overloaded,
}

impl DeriveError {
    /// A stable word for logs, metrics and tests.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Trapped => "trapped",
            Self::TimedOut => "timed-out",
            Self::MemoryLimit => "memory-limit",
            Self::HostCalls => "host-calls",
            Self::InvalidOutput(_) => "invalid-output",
            Self::Failed(_) => "failed",
            Self::Overloaded => "overloaded",
        }
    }

    /// What the engine's error means. `memory_denied`: the guest was refused memory during this
    /// call, which most languages turn into a trap of their own.
    pub(crate) fn from_call(error: &wasmtime::Error, memory_denied: bool) -> Self {
        if let Some(stop) = error.downcast_ref::<Stop>() {
            return match stop {
                Stop::OutOfTime => Self::TimedOut,
                Stop::TooManyHostCalls => Self::HostCalls,
                Stop::NotNow | Stop::NotDeclared => Self::Trapped,
            };
        }
        if error.is::<PoolConcurrencyLimitError>() {
            return Self::Overloaded;
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => Self::TimedOut,
            _ if memory_denied => Self::MemoryLimit,
            Some(_) => Self::Trapped,
            // The guest returned, or passed to the host, something that is not a value of the
            // interface: not UTF-8, a wild pointer, a case that does not exist, too many bytes.
            None => Self::InvalidOutput("not a value of the interface, or too large".into()),
        }
    }
}

/// Why the host itself ends a call. Raised inside host functions and the epoch callback, and
/// found again by type on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    #[error("the call is out of time")]
    OutOfTime,
    #[error("too many calls of host functions")]
    TooManyHostCalls,
    #[error("the request may only be looked at during `derive`")]
    NotNow,
    #[error("the manifest does not declare that the plugin needs this")]
    NotDeclared,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_engine_are_recognised_by_type() {
        let check = |error: wasmtime::Error, denied: bool, code: &str| {
            assert_eq!(DeriveError::from_call(&error, denied).code(), code, "{error:?}");
        };
        check(Stop::OutOfTime.into(), false, "timed-out");
        check(wasmtime::Error::from(Stop::OutOfTime).context("outer"), true, "timed-out");
        check(Stop::TooManyHostCalls.into(), false, "host-calls");
        check(Stop::NotNow.into(), false, "trapped");
        check(Trap::Interrupt.into(), false, "timed-out");
        check(Trap::UnreachableCodeReached.into(), false, "trapped");
        check(Trap::UnreachableCodeReached.into(), true, "memory-limit");
        check(Trap::StackOverflow.into(), false, "trapped");
        // The text says time-out, the type does not.
        check(wasmtime::Error::msg("interrupt: timed out"), false, "invalid-output");
    }

    #[test]
    fn problems_are_shown_with_their_place() {
        let problem = |at: &str| Problem { at: at.into(), message: "must be a string".into() };
        let error = LoadError::Configure(vec![problem("/header"), problem("")]);
        assert_eq!(
            error.to_string(),
            "the configuration is refused: /header: must be a string; /: must be a string"
        );
    }
}
