//! Looks at the request while there is none.

use oncegate_plugin_sdk::request;

pub(crate) fn look_at_the_request() {
    core::hint::black_box(request::method());
}
