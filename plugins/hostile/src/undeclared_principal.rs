//! Looks at the authenticated caller without having declared it.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, request};

pub(crate) fn misbehave() -> Result<Decision, String> {
    core::hint::black_box(request::principal());
    Ok(Decision::Pass)
}
