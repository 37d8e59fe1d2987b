//! Answers with more parts than a decision may have: each is tiny in the guest and may cost the
//! host as much as the body is long.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, KeySource, Part, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    Ok(track(KeySource::Derived(alloc::vec![Part::Method; 65])))
}
