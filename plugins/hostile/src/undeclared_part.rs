//! Answers with a part of the body without having declared it.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, KeySource, Part, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    Ok(track(KeySource::Derived(alloc::vec![Part::BodyBytes])))
}
