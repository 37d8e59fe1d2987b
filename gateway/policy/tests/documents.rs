//! Walks the examples that users copy and the invalid policies beside the words they get.
//!
//! `ONCEGATE_WRITE_EXPECTED=1 cargo test -p oncegate-policy --test documents` writes the
//! `.expected` files anew; read the difference before you keep it.

use std::fs;
use std::path::{Path, PathBuf};

use oncegate_policy::{Environment, Loaded, Problems, Source, load};

fn policies(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(name)
}

/// Everything in a directory but the expectations.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_none_or(|end| end != "expected")).collect();
    paths.sort();
    paths
}

fn load_path(path: &Path) -> Result<Loaded, Problems> {
    load(&Source { path: path.to_path_buf(), env: Environment::default() })
}

#[test]
fn every_example_loads_without_a_warning() {
    let examples = entries(&policies("examples"));
    assert!(examples.len() >= 4, "{examples:?}");
    for example in examples {
        match load_path(&example) {
            Ok(loaded) => assert_eq!(loaded.policy.warnings, [], "{}", example.display()),
            Err(problems) => panic!("{problems}"),
        }
    }
}

#[test]
fn the_examples_load_together() {
    let loaded = load_path(&policies("examples")).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.policy.warnings, []);
    let route = loaded.policy.route("api.example.com", "POST", "/v1/payments").expect("a route");
    assert_eq!(route.route.operation.as_str(), "create-payment");
}

#[test]
fn every_invalid_policy_gets_the_words_beside_it() {
    let invalid = policies("invalid");
    let cases = entries(&invalid);
    assert!(cases.len() >= 20, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let said = match load_path(&case) {
            Ok(_) => "(it was accepted)".to_owned(),
            Err(problems) => problems.to_string(),
        };
        let said = said.replace(&format!("{}/", invalid.display()), "") + "\n";
        let mut expected = case.clone().into_os_string();
        expected.push(".expected");
        let expected = PathBuf::from(expected);
        if std::env::var_os("ONCEGATE_WRITE_EXPECTED").is_some() {
            fs::write(&expected, &said).expect("written");
        }
        let wanted = fs::read_to_string(&expected).unwrap_or_default();
        if said != wanted {
            wrong.push(format!("{}\nexpected:\n{wanted}got:\n{said}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
