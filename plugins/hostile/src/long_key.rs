//! Answers with a key one byte too long.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, KeySource, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    Ok(track(KeySource::Client("k".repeat(256))))
}
