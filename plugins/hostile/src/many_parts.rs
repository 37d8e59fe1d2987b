//! Answers with very many parts that are tiny in the guest and larger in the host.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, KeySource, Part, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    Ok(track(KeySource::Derived(alloc::vec![Part::Method; 1_000_000])))
}
