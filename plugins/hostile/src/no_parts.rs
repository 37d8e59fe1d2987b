//! Derives a key from nothing: the same key for every request.

use alloc::string::String;
use alloc::vec::Vec;

use oncegate_plugin_sdk::{Decision, KeySource, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    Ok(track(KeySource::Derived(Vec::new())))
}
