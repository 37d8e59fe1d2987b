//! A cell for the configured plugin.

use core::cell::OnceCell;

/// Holds the plugin between `configure` and `derive`.
pub struct Once<T>(OnceCell<T>);

// SAFETY: components of this interface are built without threads (the gateway refuses shared
// memories), so the cell is only ever reached from one thread.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)]
unsafe impl<T> Sync for Once<T> {}

impl<T> Once<T> {
    /// Nothing configured yet.
    #[allow(clippy::new_without_default, reason = "used by a macro, in a static")]
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// Keeps the first plugin: an instance is configured once.
    pub fn set(&self, plugin: T) {
        let _ = self.0.set(plugin);
    }

    /// The plugin, once configured.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }
}
