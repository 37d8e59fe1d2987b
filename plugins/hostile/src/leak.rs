//! Leaks memory and keeps count of its calls. With a fresh instance for each request neither
//! may show: not in a trap after some requests, and not in the key.

use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU32, Ordering};

use oncegate_plugin_sdk::{Decision, KeySource, track};

static CALLS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn misbehave() -> Result<Decision, String> {
    core::mem::forget(core::hint::black_box(alloc::vec![1u8; 8 * 1024 * 1024]));
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    Ok(track(KeySource::Client(format!("call-{call}"))))
}
