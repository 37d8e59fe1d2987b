//! The plugin host with the limits of the settings.

use oncegate_plugin_host::{Host, Limits, LoadError};
use oncegate_policy::Settings;

/// One host for the whole process: compiled plugins are shared by every generation.
pub(crate) fn host(settings: &Settings) -> Result<Host, LoadError> {
    let asked = &settings.plugin_limits;
    Host::new(Limits {
        memory_bytes: asked.memory,
        wall_time: asked.wall_time,
        ..Limits::default()
    })
}
