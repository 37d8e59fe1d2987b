//! Answers with a key of no bytes.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, KeySource, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    Ok(track(KeySource::Client(String::new())))
}
