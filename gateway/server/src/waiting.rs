//! Callers that wait for the first attempt's answer instead of being told "in progress".
//!
//! The winner wakes them when its ending is on record, so nobody polls. Waiting is bounded, per
//! key and overall: past the bound a caller is told "in progress" like on any other route. A
//! winner in another gateway cannot wake; its waiters look once more when their time is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncegate_core::Identity;
use tokio::sync::Notify;

/// Waiting callers of one key.
const WAITERS_PER_KEY_MAX: usize = 100;
/// Waiting callers of this gateway.
const WAITERS_MAX: usize = 10_000;

/// Who waits for which key.
#[derive(Default)]
pub(crate) struct Waiting {
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    keys: HashMap<Identity, Queue>,
    waiters: usize,
}

struct Queue {
    wake: Arc<Notify>,
    waiters: usize,
}

/// A place in the queue of one key; dropping it leaves.
pub(crate) struct Ticket {
    waiting: Arc<Waiting>,
    identity: Identity,
    wake: Arc<Notify>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the queue of a key. Done before the store is asked, so that a winner which
    /// finishes in between is not missed. `None` when there is no room.
    pub(crate) fn enter(self: &Arc<Self>, identity: Identity) -> Option<Ticket> {
        let mut queues = self.lock();
        if queues.waiters >= WAITERS_MAX {
            return None;
        }
        let queue = queues
            .keys
            .entry(identity)
            .or_insert_with(|| Queue { wake: Arc::new(Notify::new()), waiters: 0 });
        if queue.waiters >= WAITERS_PER_KEY_MAX {
            return None;
        }
        queue.waiters += 1;
        let wake = Arc::clone(&queue.wake);
        queues.waiters += 1;
        Some(Ticket { waiting: Arc::clone(self), identity, wake })
    }

    /// An ending of this key is on record, or the key is free again.
    pub(crate) fn wake(&self, identity: &Identity) {
        if let Some(queue) = self.lock().keys.get(identity) {
            queue.wake.notify_waiters();
        }
    }
}

impl Ticket {
    /// Resolves at the next wake after this call. Create it before asking the store.
    pub(crate) fn woken(&self) -> impl Future<Output = ()> + '_ {
        let mut notified = Box::pin(self.wake.notified());
        notified.as_mut().enable();
        notified
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = self.waiting.lock();
        queues.waiters -= 1;
        let left = queues.keys.get_mut(&self.identity).map(|queue| {
            queue.waiters -= 1;
            queue.waiters
        });
        if left == Some(0) {
            queues.keys.remove(&self.identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const KEY: Identity = Identity([1; 32]);

    #[test]
    fn a_wake_between_looking_and_waiting_is_not_missed() {
        let waiting = Arc::new(Waiting::default());
        let ticket = waiting.enter(KEY).expect("room");
        let woken = ticket.woken();
        waiting.wake(&KEY);
        assert_eq!(woken.now_or_never(), Some(()));
        assert_eq!(ticket.woken().now_or_never(), None, "one wake, one look");
    }

    #[test]
    fn queues_are_bounded_and_leave_nothing_behind() {
        let waiting = Arc::new(Waiting::default());
        let tickets: Vec<Ticket> =
            (0..WAITERS_PER_KEY_MAX).map_while(|_| waiting.enter(KEY)).collect();
        assert_eq!(tickets.len(), WAITERS_PER_KEY_MAX);
        assert!(waiting.enter(KEY).is_none());
        assert!(waiting.enter(Identity([2; 32])).is_some());
        drop(tickets);
        assert!(waiting.lock().keys.is_empty());
        assert_eq!(waiting.lock().waiters, 0);
    }
}
