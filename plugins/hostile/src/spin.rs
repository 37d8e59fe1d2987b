//! Never returns.

use alloc::string::String;

use oncegate_plugin_sdk::Decision;

pub(crate) fn misbehave() -> Result<Decision, String> {
    loop {
        core::hint::black_box(0);
    }
}
