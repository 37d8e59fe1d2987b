//! Says itself that it failed.

use alloc::string::String;

use oncegate_plugin_sdk::Decision;

pub(crate) fn misbehave() -> Result<Decision, String> {
    Err("told to fail".into())
}
