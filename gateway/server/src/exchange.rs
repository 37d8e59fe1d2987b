//! The life of a request, on one page.
//!
//! Seven steps, each taking the previous stage by value, so that a step cannot be skipped and a
//! later one cannot see what an earlier one consumed:
//!
//! `route -> body -> derive -> reserve -> forward -> record -> respond`
//!
//! Two boundaries matter. Up to *derive* everything belongs to the client: if it leaves, the
//! work is dropped and nothing was reserved. From *reserve* on the work runs in a task of its
//! own, so that a client that leaves strands no reservation and cancels no upstream call.

mod account;
mod body;
mod derive;
mod forward;
mod head;
mod pass;
mod permit;
mod record;
mod reserve;
mod respond;
mod route;
mod settle;
mod stage;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use futures::FutureExt;
use http::{Request, Response};
use oncegate_core::UnknownReason;
use tokio::sync::oneshot;

use self::account::Account;
pub(crate) use self::body::view_of;
pub(crate) use self::derive::{Derivation, derivation_of};
use self::route::Route;
pub(crate) use self::route::{canonicalise, host_name};
use self::stage::{Context, Exit, Keyed, Reply, Routed};
use crate::gateway::Gateway;
use crate::problem::Problem;

/// Serves one request. Exactly one terminal outcome is counted, also when the client leaves.
pub(crate) async fn exchange(gateway: Arc<Gateway>, request: Request<Body>) -> Response<Body> {
    let account = Account::open(&gateway, &request);
    let served = AssertUnwindSafe(serve(Arc::clone(&gateway), request, &account));
    match served.catch_unwind().await {
        Ok(reply) => account.close(reply),
        Err(_panic) => account.close(Reply::problem(&gateway, None, &Problem::Internal)),
    }
}

async fn serve(gateway: Arc<Gateway>, request: Request<Body>, account: &Account) -> Reply {
    match route::route(gateway, request) {
        Route::Guarded(routed) => {
            account.operation(routed.context.operation());
            guarded(routed, account).await
        }
        Route::Open(open) => {
            account.operation(open.context.operation());
            pass::through(open).await
        }
        Route::Refused(reply) => reply,
    }
}

/// A guarded operation: the client's part here, the gateway's part in a task of its own.
async fn guarded(routed: Routed, account: &Account) -> Reply {
    let context = routed.context.clone();
    match prepare(routed).await {
        Ok(keyed) => {
            account.identity(keyed.identity);
            detached(context, execute(keyed)).await
        }
        Err(exit) => exit.reply().await,
    }
}

/// Steps 2 and 3: nothing is reserved for a client that is still sending.
async fn prepare(routed: Routed) -> Result<Keyed, Exit> {
    let buffered = body::buffer(routed).await?;
    derive::derive(buffered).await
}

/// Steps 4 to 7. `Reserved` may still be given back; `forward` turns it into `Dispatched`,
/// which may only be finished or left unknown.
async fn execute(keyed: Keyed) -> Result<Reply, Exit> {
    let reserved = reserve::reserve(keyed).await?;
    let dispatched = forward::forward(reserved).await?;
    let recorded = record::record(dispatched).await;
    Ok(respond::fresh(recorded))
}

/// Runs `work` to its end whether or not the client waits for it. What is still running when
/// the drain deadline is over is dropped; its permit then releases the key or marks it unknown.
///
/// A way out comes back here: what is forwarded unprotected belongs to the client again.
async fn detached(
    context: Context,
    work: impl Future<Output = Result<Reply, Exit>> + Send + 'static,
) -> Reply {
    let (answer, answered) = oneshot::channel();
    let drain_over = context.gateway.drain_over.clone();
    context.gateway.tasks.spawn(async move {
        let work = AssertUnwindSafe(work).catch_unwind();
        tokio::select! {
            biased;
            ended = work => {
                if let Ok(ended) = ended {
                    // A client that has left takes no answer; the store has it.
                    drop(answer.send(ended));
                }
            }
            () = drain_over.cancelled() => {}
        }
    });
    let patience = context.guard().answer_within;
    let answered = match patience {
        Some(patience) => match tokio::time::timeout(patience, answered).await {
            Ok(answered) => answered,
            Err(_elapsed) => return context.problem(&Problem::still_running(patience)),
        },
        None => answered.await,
    };
    match answered {
        Ok(Ok(reply)) => reply,
        Ok(Err(exit)) => exit.reply().await,
        // Dropped by the drain deadline, or by a panic; either way the permit has written down
        // what is known, and a retry with the same key will be told.
        Err(_dropped) if context.gateway.drain_over.is_cancelled() => {
            context.problem(&Problem::AttemptUnknown(UnknownReason::Drain))
        }
        Err(_dropped) => context.problem(&Problem::Internal),
    }
}
