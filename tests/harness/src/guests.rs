//! Plugins as files, built once for all tests of a process.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The component of the guest that misbehaves on request: `config.behaviour` is what it does,
/// on requests that carry the header `config.when_header`.
pub fn hostile() -> &'static [u8] {
    static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
    COMPONENT.get_or_init(|| build("oncegate-hostile"))
}

/// The component that reads the client's key, the same that is built into the gateway.
pub fn header_key() -> &'static [u8] {
    static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
    COMPONENT.get_or_init(|| build("oncegate-header-key"))
}

/// Writes a component where a policy can name it.
pub fn write(directory: &Path, name: &str, component: &[u8]) -> PathBuf {
    let path = directory.join(name);
    crate::gateway::replace_file(&path, component);
    path
}

/// The same component with other bytes: a custom section more, which no engine looks at. Its
/// digest is another, so the gateway has to compile it anew, and its behaviour is the same.
pub fn relabelled(component: &[u8], label: &str) -> Vec<u8> {
    let name = b"label";
    let content_len = 1 + name.len() + label.len();
    assert!(content_len < 128, "a length of one byte");
    let mut bytes = component.to_vec();
    bytes.extend_from_slice(&[0, content_len as u8, name.len() as u8]);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(label.as_bytes());
    bytes
}

fn build(package: &str) -> Vec<u8> {
    let target = guest_target();
    fs::create_dir_all(&target).expect("the target directory can be made");
    oncegate_guest_build::component(package, &target)
        .unwrap_or_else(|error| panic!("cannot build {package}: {error:#}"))
}

/// A target directory of its own, below the one this test was built into: that one is locked
/// for as long as `cargo test` runs.
fn guest_target() -> PathBuf {
    let program = env::current_exe().expect("a process knows its program");
    let profile = program.ancestors().nth(2).expect("tests run from target/<profile>/deps");
    profile.join("test-guests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relabelled_component_is_the_same_with_a_section_more() {
        let component = b"\0asm\x0d\0\x01\0";
        let relabelled = relabelled(component, "two");
        assert_eq!(&relabelled[..8], component);
        assert_eq!(&relabelled[8..], b"\0\x09\x05labeltwo");
    }
}
