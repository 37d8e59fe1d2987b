//! Answers with far more than an answer may be.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, KeySource, Part, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    let text = "x".repeat(1024 * 1024);
    Ok(track(KeySource::Derived(alloc::vec![Part::Text(text)])))
}
