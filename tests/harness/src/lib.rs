//! The harness of the black-box tests.
//!
//! Everything here stands *outside* the gateway: a test starts the real binary ([`Gateway`]) on
//! a real store ([`Store`]), puts an upstream behind it that does as it is told and counts what
//! it was made to do ([`Upstream`]), and speaks to it over real sockets ([`http1`], [`http2`]).
//! No test links a crate of the gateway, so none can pass by knowing its inside.
//!
//! Two rules keep the tests honest:
//!
//! * **Nothing sleeps in order to be in time.** A test waits for an event: the upstream has
//!   counted a call ([`Upstream::until`]), the log has a line, a gate is opened ([`Gate`]). Where
//!   real time is itself the subject (a retention that ends), the test asks again until
//!   the answer changes, within a deadline ([`wait::until`]).
//! * **The ledger is the truth.** How often an operation ran is what the upstream counted, never
//!   what the gateway says about itself.

pub mod answer;
pub mod catalog;
pub mod chain;
pub mod gateway;
pub mod guests;
pub mod http1;
pub mod http2;
pub mod policy;
pub mod redis_wire;
pub mod store;
pub mod upstream;
pub mod wait;
pub mod world;

mod macros;

pub use answer::Answer;
pub use gateway::Gateway;
pub use http1::{Connection, Request};
pub use policy::{Policy, Route};
pub use store::{Store, StoreKind};
pub use upstream::{Reply, Upstream};
pub use wait::Gate;
pub use world::World;
