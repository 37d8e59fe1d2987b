//! Answers with a string that is not UTF-8.

use alloc::string::String;

use oncegate_plugin_sdk::{Decision, KeySource, track};

pub(crate) fn misbehave() -> Result<Decision, String> {
    // SAFETY: there is none, that is the point; nothing here looks at the text, it only goes
    // to the host, which must check it.
    #[allow(unsafe_code)]
    let key = unsafe { String::from_utf8_unchecked(alloc::vec![b'a', 0xff, 0xfe]) };
    Ok(track(KeySource::Client(key)))
}
