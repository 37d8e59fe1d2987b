//! The plugins that come inside the binary. They are ordinary components: the host treats them
//! exactly like a file that a policy names.

use bytes::Bytes;

const BUILT_IN: [(&str, &[u8]); 2] = [
    ("header-key", include_bytes!(concat!(env!("OUT_DIR"), "/oncegate-header-key.wasm"))),
    ("fingerprint", include_bytes!(concat!(env!("OUT_DIR"), "/oncegate-fingerprint.wasm"))),
];

/// The component behind `builtin:NAME`; the error names what there is.
pub(crate) fn component(name: &str) -> Result<Bytes, String> {
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, bytes)) => Ok(Bytes::from_static(bytes)),
        None => {
            let known: Vec<&str> = BUILT_IN.iter().map(|(known, _)| *known).collect();
            Err(format!("there is no built-in plugin `{name}`; there are: {}", known.join(", ")))
        }
    }
}
