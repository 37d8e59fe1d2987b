//! Writes to the log without end.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, log};

pub(crate) fn misbehave() -> Result<Decision, String> {
    loop {
        log::write(log::Level::Error, "help");
    }
}
