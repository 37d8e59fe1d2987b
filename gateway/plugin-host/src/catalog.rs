//! Compiled components, one per content.
//!
//! Compiling takes milliseconds to seconds, so it happens once for the same bytes, however many
//! routes or generations of the policy use them and however many ask at the same time. The
//! catalogue holds its entries weakly: when the last plugin of an entry is gone, so is its code,
//! and reloading for ever does not grow the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::Mutex as AsyncMutex;
use wasmtime::Engine;
use wasmtime::component::{Component, HasSelf, Linker};

use crate::bindings::{self, PluginPre};
use crate::error::LoadError;
use crate::imports::{self, State};

/// SHA-256 of a component.
pub(crate) type ContentDigest = [u8; 32];

/// Compiled, its imports checked and bound; instances are made from it.
pub(crate) struct Compiled {
    pub(crate) digest: ContentDigest,
    pub(crate) pre: PluginPre<State>,
}

/// Whoever holds the lock compiles; the others find the result.
type Slot = AsyncMutex<Weak<Compiled>>;

pub(crate) struct Catalog {
    linker: Linker<State>,
    slots: Mutex<HashMap<ContentDigest, Arc<Slot>>>,
}

impl Catalog {
    pub(crate) fn new(engine: &Engine) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(engine);
        bindings::Plugin::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
        Ok(Self { linker, slots: Mutex::default() })
    }

    /// The compiled form of these bytes.
    pub(crate) async fn get(
        &self,
        digest: ContentDigest,
        bytes: Bytes,
    ) -> Result<Arc<Compiled>, LoadError> {
        let slot = self.slot(digest);
        let mut entry = slot.lock().await;
        if let Some(compiled) = entry.upgrade() {
            return Ok(compiled);
        }
        let linker = self.linker.clone();
        let compiling = move || compile(&linker, &bytes);
        let pre = match tokio::task::spawn_blocking(compiling).await {
            Ok(result) => result?,
            Err(_) => return Err(LoadError::Compile("the compiler did not finish".into())),
        };
        let compiled = Arc::new(Compiled { digest, pre });
        *entry = Arc::downgrade(&compiled);
        Ok(compiled)
    }

    /// How many different components are compiled and in use.
    pub(crate) fn in_use(&self) -> usize {
        self.used_slots().len()
    }

    fn slot(&self, digest: ContentDigest) -> Arc<Slot> {
        self.used_slots().entry(digest).or_default().clone()
    }

    fn used_slots(&self) -> MutexGuard<'_, HashMap<ContentDigest, Arc<Slot>>> {
        // A panic while holding the lock leaves a map that is still a map.
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|_, slot| is_used(slot));
        slots
    }
}

/// Someone is about to compile into it, or uses what it holds.
fn is_used(slot: &Arc<Slot>) -> bool {
    Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|entry| entry.strong_count() > 0)
}

fn compile(linker: &Linker<State>, bytes: &[u8]) -> Result<PluginPre<State>, LoadError> {
    if is_core_module(bytes) {
        return Err(LoadError::CoreModule);
    }
    let component = Component::new(linker.engine(), bytes)
        .map_err(|error| LoadError::Compile(format!("{error:#}")))?;
    imports::check_imports(linker.engine(), &component)?;
    linker
        .instantiate_pre(&component)
        .and_then(PluginPre::new)
        .map_err(|error| LoadError::WrongInterface(format!("{error:#}")))
}

/// The same magic number as a component, with another version behind it.
fn is_core_module(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm\x01\0\0\0")
}
