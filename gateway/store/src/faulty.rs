//! A wrapper that fails as networks do: before the call, after it (so that only the answer is
//! lost), or late.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use oncegate_core::{Identity, Record};

use crate::ask::events_by_ask;
use crate::{Answered, Ask, Certainty, Error, ErrorKind, Health, ScanFilter, Store, apply};

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it goes through.
    None,
    /// It never reaches the store, and the caller knows.
    Refused,
    /// It never reaches the store, and the caller cannot know.
    LostBefore,
    /// It takes effect, and its answer is lost.
    LostAfter,
    /// It goes through, late.
    Delayed(Duration),
}

/// The faults of the calls to come, in order. Once used up, calls go through.
#[derive(Clone, Debug, Default)]
pub struct Plan(Arc<Mutex<VecDeque<Fault>>>);

impl Plan {
    /// These faults, one per event call. `peek` and `scan` are never disturbed, so that a test
    /// can look.
    pub fn of(faults: impl IntoIterator<Item = Fault>) -> Self {
        let plan = Self::default();
        plan.then(faults);
        plan
    }

    /// More of them.
    pub fn then(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(faults);
    }

    fn next(&self) -> Fault {
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.unwrap_or(Fault::None)
    }
}

/// See the module documentation.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    plan: Plan,
}

impl FaultyStore {
    /// Puts faults in front of a store.
    pub fn new(inner: Arc<dyn Store>, plan: Plan) -> Self {
        Self { inner, plan }
    }

    async fn ask<A: Ask>(&self, id: &Identity, event: A) -> Result<A::Verdict, Error> {
        let fault = self.plan.next();
        match fault {
            Fault::Refused => return Err(Error::unavailable("planned: refused")),
            Fault::LostBefore => return Err(lost("planned: lost before the store")),
            Fault::Delayed(span) => tokio::time::sleep(span).await,
            Fault::None | Fault::LostAfter => {}
        }
        let verdict = apply(&*self.inner, id, event.into_event()).await?;
        match fault {
            Fault::LostAfter => Err(lost("planned: the answer was lost")),
            Fault::None | Fault::Refused | Fault::LostBefore | Fault::Delayed(_) => {
                Ok(A::verdict(verdict))
            }
        }
    }
}

fn lost(message: &str) -> Error {
    Error::new(ErrorKind::TimedOut, Certainty::MaybeApplied, message)
}

impl Store for FaultyStore {
    events_by_ask!();

    fn peek<'a>(&'a self, id: &'a Identity) -> Answered<'a, Option<Record>> {
        self.inner.peek(id)
    }

    fn scan<'a>(
        &'a self,
        limit: usize,
        filter: ScanFilter,
    ) -> Answered<'a, Vec<(Identity, Record)>> {
        self.inner.scan(limit, filter)
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    fn close<'a>(&'a self) -> BoxFuture<'a, ()> {
        self.inner.close()
    }
}
