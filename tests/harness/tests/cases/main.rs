//! The catalogue of cases, as black-box tests against the running binary.
//!
//! One module per group, one test per case and store, named after the case. The doc comment of a
//! case is the promise it checks. What is not run yet, and why, stands in
//! `oncegate_tests::catalog`.

mod chain;
mod completion;
mod fingerprint;
mod headers;
mod in_flight;
mod keys;
mod methods;
mod operations;
mod replies;
mod scope;
mod size;
mod store;
mod webhooks;
