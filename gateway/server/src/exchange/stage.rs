//! The small structs handed from step to step.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response};
use oncegate_core::{Fingerprint, Identity, Key, Operation};
use oncegate_plugin_host as plugin_host;
use oncegate_policy::{Guard, Route};

use super::pass;
use crate::gateway::Gateway;
use crate::generation::Generation;
use crate::headers;
use crate::outcome::Outcome;
use crate::problem::Problem;

/// What every stage knows: the gateway, and the policy generation this request began with.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) route: Arc<Route>,
}

impl Context {
    /// The guard of a guarded route.
    ///
    /// # Panics
    /// On an unguarded route: `route` sends those to `pass` and nowhere else.
    pub(crate) fn guard(&self) -> &Guard {
        self.route.guard.as_ref().expect("only guarded routes go beyond the route step")
    }

    pub(crate) fn operation(&self) -> &Operation {
        &self.route.operation
    }

    /// An answer the gateway makes itself.
    pub(crate) fn problem(&self, problem: &Problem) -> Reply {
        Reply::problem(&self.gateway, Some(()), problem)
    }
}

/// After step 1: a guarded route was found. The body is still on its way.
pub(crate) struct Routed {
    pub(crate) context: Context,
    pub(crate) parts: http::request::Parts,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) body: Body,
}

/// After step 1: a route without a guard, or a safe method.
pub(crate) struct Open {
    pub(crate) context: Context,
    pub(crate) parts: http::request::Parts,
    pub(crate) body: Body,
}

/// After step 2: the whole body is here.
pub(crate) struct Buffered {
    pub(crate) context: Context,
    pub(crate) parts: http::request::Parts,
    /// As plugins see it; holds the body.
    pub(crate) view: Arc<plugin_host::Request>,
}

impl Buffered {
    pub(crate) fn body(&self) -> &Bytes {
        &self.view.body
    }
}

/// After step 3: it is known which intent this is and what was asked.
pub(crate) struct Keyed {
    pub(crate) buffered: Buffered,
    pub(crate) key: Key,
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) retention: std::time::Duration,
}

/// A way out before the last step.
pub(crate) enum Exit {
    /// Answer now.
    Answer(Box<Reply>),
    /// The policy says to forward without protection; holds why, for the log.
    Unprotected(Box<Buffered>, &'static str),
}

impl Exit {
    /// Answers; for [`Exit::Unprotected`] by asking the upstream.
    pub(crate) async fn reply(self) -> Reply {
        match self {
            Self::Answer(reply) => *reply,
            Self::Unprotected(buffered, why) => pass::unprotected(*buffered, why).await,
        }
    }
}

impl From<Reply> for Exit {
    fn from(reply: Reply) -> Self {
        Self::Answer(Box::new(reply))
    }
}

/// The answer and how it is counted.
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    pub(crate) response: Response<Body>,
}

impl Reply {
    /// An answer on a guarded route: it says how the request ended.
    pub(crate) fn guarded(outcome: Outcome, mut response: Response<Body>) -> Self {
        let status = HeaderValue::from_static(outcome.as_str());
        response.headers_mut().insert(headers::STATUS, status);
        Self { outcome, response }
    }

    /// An answer the gateway makes itself; `guarded` when the route is.
    pub(crate) fn problem(gateway: &Gateway, guarded: Option<()>, problem: &Problem) -> Self {
        let response = problem.response(gateway.problem_base.as_deref());
        let outcome = problem.outcome();
        match guarded {
            Some(()) => Self::guarded(outcome, response),
            None => Self { outcome, response },
        }
    }
}
