//! From policy files to something the request path can trust.
//!
//! A policy decides which requests are guarded, by which plugin their keys are made, whose keys
//! they are, how long a record is kept, and whether to fail open or closed. This crate reads it
//! ([`load`](load())), checks all of it and answers with everything that is wrong at once
//! ([`Problems`]), or with one generation that is ready to use: [`Settings`] for the process,
//! [`PolicySet`] for the requests. It compiles no plugin and opens no port.
//!
//! ```text
//! files ─▶ format ─▶ reader + document ─▶ validate ─▶ policy ◀─ matcher (per request)
//!            env ─▶ load (layers) ──────▶ validate/settings ─▶ settings
//! ```

mod document;
mod error;
mod format;
pub mod headers;
pub mod load;
pub mod matcher;
pub mod path;
pub mod policy;
mod quick;
mod reader;
mod scalar;
mod secret;
pub mod settings;
pub mod settle;
mod validate;
pub mod watch;

pub use oncegate_core::{OnUnknown, Operation};

pub use error::{Problem, Problems, Warning};
pub use headers::{HeaderPattern, REPLAY_DROP_DEFAULT, ReplayDrop};
pub use load::{Environment, Loaded, Source, load};
pub use matcher::{Matched, PathPattern, RouteMatch, Segment, method_is_ambiguous};
pub use path::{PathError, canonical};
pub use policy::{
    BUILTINS, Component, Endpoint, FingerprintMode, FingerprintRule, Guard, InFlight, JsonPointer,
    MissingKey, Mode, OnPluginError, OnStoreError, PluginSpec, PolicySet, Route, SAFE_METHODS,
    ScopeSource, Upstream,
};
pub use quick::{Quick, quick};
pub use secret::Secret;
pub use settings::{Settings, StoreUrl};
pub use settle::{Meaning, RELEASED_BY_DEFAULT, SettleTable, StatusPattern};
pub use watch::Watcher;
