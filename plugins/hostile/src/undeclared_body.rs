//! Looks at the body without having declared it, and says what came of it.

use alloc::format;
use alloc::string::String;

use oncegate_plugin_sdk::{Decision, body};

pub(crate) fn misbehave() -> Result<Decision, String> {
    match (body::size(), body::sha256(), body::read(0, 1), body::json(""), body::json_sha256()) {
        (
            Err(body::BodyError::NotBuffered),
            Err(body::BodyError::NotBuffered),
            Err(body::BodyError::NotBuffered),
            Err(body::BodyError::NotBuffered),
            Err(body::BodyError::NotBuffered),
        ) => Err("not buffered".into()),
        other => Err(format!("{other:?}")),
    }
}
