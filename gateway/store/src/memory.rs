//! The core's transition behind a lock: the reference for tests, and for trying a policy out.
//! It forgets everything with the process, so the gateway does not offer it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use oncegate_core::{Identity, Next, Record, Timestamp};

use crate::ask::events_by_ask;
use crate::clock::Steady;
use crate::record::{Stored, decode, step};
use crate::{Answered, Ask, Clock, Error, Health, ScanFilter, Store};

/// See the module documentation.
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

struct Inner {
    clock: Steady,
    records: HashMap<Identity, Stored>,
    closed: bool,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(clock: Clock) -> Self {
        let clock = Steady::new(clock, Timestamp(0));
        let inner = Inner { clock, records: HashMap::new(), closed: false };
        Self { inner: Mutex::new(inner) }
    }

    /// Puts bytes in place of a record, for tests of damaged records.
    #[doc(hidden)]
    pub fn plant(&self, id: &Identity, bytes: &[u8]) {
        self.lock().records.insert(*id, decode(bytes));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing between two writes can panic half-way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        let inner = self.lock();
        if inner.closed { Err(Error::closed()) } else { Ok(inner) }
    }

    async fn ask<A: Ask>(&self, id: &Identity, event: A) -> Result<A::Verdict, Error> {
        let mut inner = self.open()?;
        let now = inner.clock.now();
        let (next, verdict) = step(now, inner.records.get(id), &event.into_event());
        match next {
            Next::Keep => {}
            Next::Write(record) => {
                inner.records.insert(*id, Stored::Readable(record));
            }
            Next::Remove => {
                inner.records.remove(id);
            }
        }
        Ok(A::verdict(verdict))
    }

    fn look(&self, id: &Identity) -> Result<Option<Record>, Error> {
        let mut inner = self.open()?;
        let now = inner.clock.now();
        let live = inner.records.get(id).filter(|stored| !stored.is_expired(now));
        Ok(live.cloned().map(Stored::into_record))
    }

    fn list(&self, limit: usize, filter: ScanFilter) -> Result<Vec<(Identity, Record)>, Error> {
        let mut inner = self.open()?;
        let now = inner.clock.now();
        let live = inner.records.iter().filter(|(_, stored)| !stored.is_expired(now));
        let records = live.map(|(id, stored)| (*id, stored.clone().into_record()));
        Ok(records.filter(|(_, record)| filter.admits(record, now)).take(limit).collect())
    }
}

impl Store for MemoryStore {
    events_by_ask!();

    fn peek<'a>(&'a self, id: &'a Identity) -> Answered<'a, Option<Record>> {
        Box::pin(async move { self.look(id) })
    }

    fn scan<'a>(
        &'a self,
        limit: usize,
        filter: ScanFilter,
    ) -> Answered<'a, Vec<(Identity, Record)>> {
        Box::pin(async move { self.list(limit, filter) })
    }

    fn health(&self) -> Health {
        match self.open() {
            Ok(_) => Health::good(),
            Err(closed) => Health::bad(closed.to_string()),
        }
    }

    fn close<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut inner = self.lock();
            inner.closed = true;
            inner.records.clear();
        })
    }
}
