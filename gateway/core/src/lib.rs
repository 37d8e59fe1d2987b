//! The reservation protocol of Oncegate.
//!
//! A client that got no answer sends its request again. This crate decides what the second
//! request may do, and nothing else: it takes the time, the stored record and an event, and
//! returns what to write and what to tell the caller. It performs no I/O, reads no clock, makes
//! no random number and never logs.
//!
//! ```text
//!            reserve (two-phase)            dispatch
//!   (none) ───────────────────▶ claimed ─────────────▶ dispatched ──finish──▶ completed
//!      │                          │ lease over:            │  │  └───────────▶ tombstone
//!      │  reserve                 │ another may take it    │  │ lease over, or
//!      ├──────────────────────────┼───────────────────────▶│  │ finish(unknown)
//!      │◀─────────release─────────┴────────────────────────┘  ▼
//!      │◀────────resolve (never happened)────────────────── unknown ──late finish or
//!      │                                                       │      resolve (done)──▶ completed
//!      └◀── expiry by retention, from any state                └─ reserve on a `retry` route
//! ```
//!
//! What holds, whatever clients, gateways, clocks and leases do, as long as the store keeps the
//! writes it acknowledged (see [`invariants`] for the checkable form):
//!
//! - **R1** within retention, at most one execution per identity, unless the route opted in to
//!   `retry`;
//! - **R2** a replay is the recorded answer, and only for the same fingerprint;
//! - **R3** fences rise with every new reservation;
//! - **R4** a stale owner changes nothing;
//! - **R5** a finished record is never rewritten within its retention;
//! - **R6** a record outlives its lease;
//! - **R7** every event is safe to send again.

pub mod event;
pub mod frame;
pub mod identity;
pub mod invariants;
pub mod key;
pub mod record;
pub mod time;
pub mod transition;

pub use event::*;
pub use frame::Framer;
pub use identity::{Fingerprint, Identity, hex, unhex};
pub use key::{Key, KeyError, Operation};
pub use record::{
    Answer, Claim, Fence, OwnerToken, Record, State, StateName, TombstoneReason, UnknownReason,
};
pub use time::Timestamp;
pub use transition::{Next, transition};
