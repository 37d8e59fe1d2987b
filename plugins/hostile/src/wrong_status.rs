//! Refuses the request with a status that says it worked.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, Refusal};

pub(crate) fn misbehave() -> Result<Decision, String> {
    Ok(Decision::Reject(Refusal { status: 200, code: "fine".into(), detail: "fine".into() }))
}
