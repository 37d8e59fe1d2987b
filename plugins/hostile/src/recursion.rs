//! Calls itself until the stack is used up.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, KeySource, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    Ok(track(KeySource::Client(if down(1) == 0 { "a".into() } else { "b".into() })))
}

fn down(depth: u64) -> u64 {
    let here = core::hint::black_box([depth; 16]);
    if depth == 0 { 0 } else { down(depth + 1).wrapping_add(here[(depth % 16) as usize]) }
}
