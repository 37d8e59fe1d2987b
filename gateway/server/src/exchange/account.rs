//! One request, one terminal outcome: counted when the answer is made, or when the client left
//! before there was one.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::body::Body;
use http::{Method, Request, Response};
use oncegate_core::{Identity, Operation};

use super::stage::Reply;
use crate::gateway::Gateway;
use crate::metrics::NO_OPERATION;
use crate::outcome::Outcome;

/// Open from the request's head to its answer.
pub(crate) struct Account {
    gateway: Arc<Gateway>,
    started: Instant,
    method: Method,
    operation: OnceLock<Operation>,
    identity: OnceLock<Identity>,
    closed: bool,
}

impl Account {
    pub(crate) fn open(gateway: &Arc<Gateway>, request: &Request<Body>) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            started: Instant::now(),
            method: request.method().clone(),
            operation: OnceLock::new(),
            identity: OnceLock::new(),
            closed: false,
        }
    }

    /// Which operation it turned out to be.
    pub(crate) fn operation(&self, operation: &Operation) {
        // Set once, by the route step.
        let _ = self.operation.set(operation.clone());
    }

    /// Which intent it turned out to be.
    pub(crate) fn identity(&self, identity: Identity) {
        let _ = self.identity.set(identity);
    }

    /// Counts the outcome and hands out the answer.
    pub(crate) fn close(mut self, reply: Reply) -> Response<Body> {
        self.closed = true;
        self.count(reply.outcome, Some(reply.response.status().as_u16()));
        reply.response
    }

    fn count(&self, outcome: Outcome, status: Option<u16>) {
        let operation = self.operation.get().map_or(NO_OPERATION, Operation::as_str);
        let elapsed = self.started.elapsed();
        self.gateway.metrics.request_ended(operation, outcome, elapsed.as_secs_f64());
        tracing::debug!(
            operation,
            outcome = outcome.as_str(),
            status,
            method = %self.method,
            identity = self.identity.get().map(|identity| identity.short()),
            micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            "request ended"
        );
    }
}

/// Dropped without an answer: the client went away.
impl Drop for Account {
    fn drop(&mut self) {
        if !self.closed {
            self.count(Outcome::ClientGone, None);
        }
    }
}
