//! Conventions as tests: the rules of CONTRIBUTING.md that a machine can check.

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names in a manifest's `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join(manifest)).expect(manifest);
    text.lines()
        .skip_while(|line| line.trim() != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['=', '.']).next())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn the_core_depends_on_std_and_serde_alone() {
    assert_eq!(dependencies("gateway/core/Cargo.toml"), ["serde"]);
}

#[test]
fn store_policy_and_plugin_host_do_not_know_each_other() {
    let apart = ["oncegate-store", "oncegate-policy", "oncegate-plugin-host", "oncegate-server"];
    for folder in ["store", "policy", "plugin-host"] {
        let own = format!("oncegate-{folder}");
        let names = dependencies(&format!("gateway/{folder}/Cargo.toml"));
        let forbidden: Vec<&String> =
            names.iter().filter(|name| **name != own && apart.contains(&name.as_str())).collect();
        assert!(forbidden.is_empty(), "{folder} depends on {forbidden:?}");
    }
}

/// Every Rust file below `folder`.
fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    let mut files = Vec::new();
    for folder in ["gateway", "plugins", "tests"] {
        rust_files(&repository().join(folder), &mut files);
    }
    assert!(files.len() > 100, "{}", files.len());
    let bare: Vec<&PathBuf> = files
        .iter()
        .filter(|file| !fs::read_to_string(file).expect("text").starts_with("//!"))
        .collect();
    assert!(bare.is_empty(), "{bare:#?}");
}

/// A status code is chosen in `problem.rs`; elsewhere an answer is a `Problem`.
#[test]
fn status_codes_are_chosen_in_one_table() {
    let exchange = repository().join("gateway/server/src/exchange");
    let mut files = Vec::new();
    rust_files(&exchange, &mut files);
    for file in files.iter().filter(|file| !file.ends_with("respond.rs")) {
        let text = fs::read_to_string(file).expect("text");
        assert!(!text.contains("StatusCode::"), "{}", file.display());
    }
}
