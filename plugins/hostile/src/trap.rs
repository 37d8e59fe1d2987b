//! Panics, which is a trap.

use alloc::string::String;

use oncegate_plugin_sdk::Decision;

pub(crate) fn misbehave() -> Result<Decision, String> {
    trap()
}

pub(crate) fn trap() -> ! {
    panic!("told to trap")
}
