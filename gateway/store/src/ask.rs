//! One event and the verdict that belongs to it, for code that handles every event alike.

use oncegate_core::{
    Dispatch, DispatchVerdict, Event, Finish, FinishVerdict, Identity, Reassert, ReassertVerdict,
    Release, ReleaseVerdict, Renew, RenewVerdict, Reserve, ReserveVerdict, Resolve, ResolveVerdict,
    Verdict,
};

use crate::{Error, Store};

/// An event that knows its own kind of verdict.
pub trait Ask: Send + 'static {
    /// What it is told.
    type Verdict: Send + 'static;

    /// As one of many.
    fn into_event(self) -> Event;

    /// Its verdict, out of many.
    fn verdict(verdict: Verdict) -> Self::Verdict;
}

macro_rules! asks {
    ($($event:ident => $verdict:ident),* $(,)?) => {$(
        impl Ask for $event {
            type Verdict = $verdict;

            fn into_event(self) -> Event {
                Event::$event(self)
            }

            fn verdict(verdict: Verdict) -> $verdict {
                let Verdict::$event(verdict) = verdict else {
                    unreachable!("the protocol answers each event with its own verdict");
                };
                verdict
            }
        }
    )*};
}

asks! {
    Reserve => ReserveVerdict,
    Dispatch => DispatchVerdict,
    Renew => RenewVerdict,
    Reassert => ReassertVerdict,
    Finish => FinishVerdict,
    Release => ReleaseVerdict,
    Resolve => ResolveVerdict,
}

/// The seven event methods of [`Store`], for a type with
/// `async fn ask<A: Ask>(&self, id: &Identity, event: A) -> Result<A::Verdict, Error>`.
macro_rules! events_by_ask {
    () => {
        $crate::ask::events_by_ask!(
            reserve: oncegate_core::Reserve => oncegate_core::ReserveVerdict,
            dispatch: oncegate_core::Dispatch => oncegate_core::DispatchVerdict,
            renew: oncegate_core::Renew => oncegate_core::RenewVerdict,
            reassert: oncegate_core::Reassert => oncegate_core::ReassertVerdict,
            finish: oncegate_core::Finish => oncegate_core::FinishVerdict,
            release: oncegate_core::Release => oncegate_core::ReleaseVerdict,
            resolve: oncegate_core::Resolve => oncegate_core::ResolveVerdict,
        );
    };
    ($($name:ident: $event:ty => $verdict:ty),* $(,)?) => {$(
        fn $name<'a>(
            &'a self,
            id: &'a oncegate_core::Identity,
            event: $event,
        ) -> $crate::Answered<'a, $verdict> {
            Box::pin(self.ask(id, event))
        }
    )*};
}
pub(crate) use events_by_ask;

/// Puts any event to a store: for tests, models and tools that drive them all.
pub async fn apply(store: &dyn Store, id: &Identity, event: Event) -> Result<Verdict, Error> {
    Ok(match event {
        Event::Reserve(event) => Verdict::Reserve(store.reserve(id, event).await?),
        Event::Dispatch(event) => Verdict::Dispatch(store.dispatch(id, event).await?),
        Event::Renew(event) => Verdict::Renew(store.renew(id, event).await?),
        Event::Reassert(event) => Verdict::Reassert(store.reassert(id, event).await?),
        Event::Finish(event) => Verdict::Finish(store.finish(id, event).await?),
        Event::Release(event) => Verdict::Release(store.release(id, event).await?),
        Event::Resolve(event) => Verdict::Resolve(store.resolve(id, event).await?),
    })
}
