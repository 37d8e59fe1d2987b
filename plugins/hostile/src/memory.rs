//! Takes memory until there is no more.

use alloc::string::String;
use alloc::vec::Vec;

use oncegate_plugin_sdk::Decision;

pub(crate) fn misbehave() -> Result<Decision, String> {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        taken.push(core::hint::black_box(alloc::vec![1; 1024 * 1024]));
    }
}
