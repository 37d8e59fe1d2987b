//! Calls the host without end. Each call is cheap; all of them together are not.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, request};

pub(crate) fn misbehave() -> Result<Decision, String> {
    loop {
        core::hint::black_box(request::path_param("x"));
    }
}
