//! Asks for a pattern that would be enormous when compiled, and says what came of it.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, tools};

pub(crate) fn misbehave() -> Result<Decision, String> {
    match tools::regex_captures("((a{100}){100}){100}", "aaaa") {
        Ok(_) => Ok(Decision::Pass),
        Err(why) => Err(why),
    }
}
