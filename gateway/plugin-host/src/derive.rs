//! One call: a fresh instance, its configuration, one question, and it is gone.
//!
//! Nothing of an instance outlives the request, so a guest that leaks, counts or corrupts its
//! memory does it once. After an error of any kind there is nothing to repair either: the store
//! is dropped as it would be after success.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::SemaphorePermit;
use tokio::time::timeout;
use wasmtime::{Store, UpdateDeadline};

use crate::Runtime;
use crate::bindings;
use crate::bindings::oncegate::plugin::types as wire;
use crate::catalog::Compiled;
use crate::decision::{self, Decision};
use crate::error::{DeriveError, Problem, Stop};
use crate::imports::State;
use crate::plugin::{Manifest, Needs, Surroundings};
use crate::request::Request;

/// Bytes that a guest may pass to the host in one call, or return. More than any single limit,
/// so that exceeding a limit is reported as just that.
const TRANSFER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A guest that has just been instantiated.
pub(crate) struct Instance<'r> {
    runtime: &'r Runtime,
    store: Store<State>,
    guest: bindings::Plugin,
    /// Given back last, when the store has left its slot in the pool.
    _slot: SemaphorePermit<'r>,
}

impl<'r> Instance<'r> {
    pub(crate) async fn fresh(
        runtime: &'r Runtime,
        compiled: &Compiled,
        surroundings: &Arc<Surroundings>,
    ) -> Result<Self, DeriveError> {
        let slot = wait_for_slot(runtime).await?;
        let mut store = store(runtime, surroundings);
        let instantiated = compiled.pre.instantiate_async(&mut store).await;
        let guest = instantiated.map_err(|error| {
            let failure = failure(&store, &error);
            // No value has passed yet, so this is the machine that has no room.
            let no_room = matches!(failure, DeriveError::InvalidOutput(_));
            if no_room { DeriveError::Overloaded } else { failure }
        })?;
        Ok(Self { runtime, store, guest, _slot: slot })
    }

    /// Hands the plugin its configuration; the inner error is the plugin's own word.
    pub(crate) async fn configure(
        &mut self,
    ) -> Result<Result<Manifest, Vec<Problem>>, DeriveError> {
        let surroundings = self.store.data().surroundings.clone();
        let answer = self.guest.call_configure(&mut self.store, &surroundings.config).await;
        match answer.map_err(|error| failure(&self.store, &error))? {
            Ok(manifest) => Manifest::accept(manifest).map(Ok),
            Err(problems) => Ok(Err(problems.into_iter().map(problem).collect())),
        }
    }

    /// Asks the one question.
    pub(crate) async fn derive(
        mut self,
        request: Arc<Request>,
        needs: Needs,
    ) -> Result<Decision, DeriveError> {
        self.store.data_mut().bind(request, needs);
        let answer = self.guest.call_derive(&mut self.store).await;
        match answer.map_err(|error| failure(&self.store, &error))? {
            Ok(decision) => decision::accept(decision, needs, self.runtime.limits.output_bytes),
            Err(message) => Err(DeriveError::Failed(shortened(message))),
        }
    }
}

/// The pool has room for a fixed number of instances. Waiting for longer than a call may take
/// means that the queue grows faster than it is worked off.
async fn wait_for_slot(runtime: &Runtime) -> Result<SemaphorePermit<'_>, DeriveError> {
    if let Ok(slot) = runtime.slots.try_acquire() {
        return Ok(slot);
    }
    match timeout(runtime.limits.wall_time, runtime.slots.acquire()).await {
        Ok(Ok(slot)) => Ok(slot),
        Ok(Err(_)) | Err(_) => Err(DeriveError::Overloaded),
    }
}

fn store(runtime: &Runtime, surroundings: &Arc<Surroundings>) -> Store<State> {
    let limits = &runtime.limits;
    let deadline = Instant::now() + limits.wall_time;
    let state = State::new(surroundings.clone(), limits.memory_bytes, limits.host_calls, deadline);
    let mut store = Store::new(&runtime.engine, state);
    store.limiter(|state| &mut state.memory);
    store.set_hostcall_fuel(TRANSFER_BYTES_MAX);
    // At every tick a running guest makes room for other tasks, until its time is over.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        if Instant::now() >= store.data().deadline {
            return Err(Stop::OutOfTime.into());
        }
        Ok(UpdateDeadline::Yield(1))
    });
    store
}

fn failure(store: &Store<State>, error: &wasmtime::Error) -> DeriveError {
    let state = store.data();
    let failure = DeriveError::from_call(error, state.memory.denied);
    // The caller learns the kind; which function trapped helps only the plugin's author.
    tracing::debug!(
        plugin = &*state.surroundings.name,
        reason = failure.code(),
        detail = format!("{error:#}"),
        "plugin call ended by an error"
    );
    failure
}

fn problem(problem: wire::Problem) -> Problem {
    Problem { at: shortened(problem.at), message: shortened(problem.message) }
}

/// A guest's words go to logs and to the operator's screen.
pub(crate) fn shortened(mut text: String) -> String {
    const BYTES_MAX: usize = 1024;
    text.truncate(text.floor_char_boundary(BYTES_MAX));
    if text.chars().any(char::is_control) {
        text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    }
    text
}
