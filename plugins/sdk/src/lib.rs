//! Write a plugin of the gateway as one type and one function.
//!
//! ```
//! use oncegate_plugin_sdk as sdk;
//! use sdk::{Decision, KeySource, Manifest, Part, Plugin, Problem};
//!
//! struct PerOrder;
//!
//! impl Plugin for PerOrder {
//!     fn configure(_config: &str) -> Result<(Self, Manifest), Vec<Problem>> {
//!         Ok((Self, sdk::manifest("per-order", "1.0.0").reads_body()))
//!     }
//!
//!     fn derive(&self) -> Result<Decision, String> {
//!         Ok(sdk::track(KeySource::Derived(vec![Part::JsonPointer("/order_id".into())])))
//!     }
//! }
//!
//! sdk::export!(PerOrder);
//! ```
//!
//! The crate brings what a guest without the standard library lacks: an allocator that serves a
//! request without growing memory (see [`arena`]) and a panic handler that traps. Off
//! WebAssembly only the types and the pure parts exist, so that a plugin's own logic is tested
//! natively; calling the gateway's functions there panics.

#![no_std]

#[doc(hidden)]
pub extern crate alloc;

#[cfg(any(target_arch = "wasm32", test))]
mod arena;
/// Generated from the WIT package; its items are re-exported below.
#[allow(missing_docs, unsafe_code, unreachable_pub)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "plugin",
        pub_export_macro: true,
        default_bindings_module: "oncegate_plugin_sdk::bindings",
        additional_derives: [PartialEq, Eq],
    });
}
mod config;
mod once;

use alloc::string::String;
use alloc::vec::Vec;

pub use bindings::oncegate::plugin::types::{
    Decision, KeySource, Manifest, Needs, Part, Problem, Refusal, Tracking,
};
pub use bindings::oncegate::plugin::{body, log, request, tools};
pub use config::Config;
#[doc(hidden)]
pub use once::Once;

/// A plugin: what it read from its configuration, and the one question it answers.
pub trait Plugin: Sized + 'static {
    /// Reads the configuration, a JSON text. Called once on every fresh instance, so it should
    /// be cheap; the manifest must be the same each time.
    fn configure(config: &str) -> Result<(Self, Manifest), Vec<Problem>>;

    /// What to do with the current request, reached through [`request`] and [`body`]. An error
    /// is a failure of the plugin: the operator reads it, the client does not.
    fn derive(&self) -> Result<Decision, String>;
}

/// A manifest that needs nothing but the head of the request.
pub fn manifest(name: &str, version: &str) -> Manifest {
    Manifest {
        name: name.into(),
        version: version.into(),
        needs: Needs::empty(),
        attributes: Vec::new(),
    }
}

impl Manifest {
    /// Declares that the plugin looks at the body or answers with parts of it.
    #[must_use]
    pub fn reads_body(mut self) -> Self {
        self.needs |= Needs::BODY;
        self
    }

    /// Declares that the plugin looks at the authenticated caller.
    #[must_use]
    pub fn reads_principal(mut self) -> Self {
        self.needs |= Needs::PRINCIPAL;
        self
    }
}

/// Track under this key and leave everything else to the route.
pub fn track(key: KeySource) -> Decision {
    Decision::Track(tracking(key))
}

/// As [`track`], to be filled in further.
pub fn tracking(key: KeySource) -> Tracking {
    Tracking {
        key,
        fingerprint: Vec::new(),
        scope: Vec::new(),
        retention_ms: None,
        attributes: Vec::new(),
    }
}

/// Answer the client with status 400.
pub fn bad_request(code: &str, detail: impl Into<String>) -> Decision {
    Decision::Reject(Refusal { status: 400, code: code.into(), detail: detail.into() })
}

/// Makes a [`Plugin`] the plugin of this component.
#[macro_export]
macro_rules! export {
    ($plugin:ty) => {
        // Off WebAssembly nothing calls the plugin; it is still checked to be one.
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn(
            &str,
        ) -> Result<
            ($plugin, $crate::Manifest),
            $crate::alloc::vec::Vec<$crate::Problem>,
        > = <$plugin as $crate::Plugin>::configure;

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Exported;

            static PLUGIN: $crate::Once<$plugin> = $crate::Once::new();

            impl $crate::bindings::Guest for Exported {
                fn configure(
                    config: $crate::alloc::string::String,
                ) -> Result<$crate::Manifest, $crate::alloc::vec::Vec<$crate::Problem>> {
                    let (plugin, manifest) = <$plugin as $crate::Plugin>::configure(&config)?;
                    PLUGIN.set(plugin);
                    Ok(manifest)
                }

                fn derive() -> Result<$crate::Decision, $crate::alloc::string::String> {
                    match PLUGIN.get() {
                        Some(plugin) => $crate::Plugin::derive(plugin),
                        None => Err("derive was called before configure".into()),
                    }
                }
            }

    $crate::bindings::export!(Exported with_types_in $crate::bindings);
        };
    };
}

/// A panic in a guest is a trap: the gateway drops the instance and reports it. The message is
/// lost on purpose, since formatting it would double the size of a small guest.
#[cfg(all(target_arch = "wasm32", not(feature = "std")))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
