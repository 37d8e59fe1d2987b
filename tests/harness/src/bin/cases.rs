//! Runs the catalogue of cases and counts *cases*, not tests.
//!
//! A case has passed when every test whose name begins with its id has passed: on every store,
//! and in every part. What is skipped is printed with its reason. A case that neither ran nor is
//! listed as skipped counts as failed, because a promise that nobody checked is not kept.
//!
//! Arguments are handed to the test binary: `cases k01` runs what has `k01` in its name, and then
//! cases that did not run are not held against it.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use oncegate_tests::catalog::{IDS, SKIPPED};

fn main() -> Result<ExitCode> {
    let filters: Vec<String> = env::args().skip(1).collect();
    let mut tally = Tally::default();
    let finished = run(&filters, &mut tally)?;
    if filters.is_empty() {
        tally.blame_the_missing();
    }

    for skip in SKIPPED {
        let part = skip.part.map(|part| format!(", {part}")).unwrap_or_default();
        let letter = skip.issue.letter();
        println!("skipped: {}{part} (issue {letter}): {}", skip.id, skip.reason);
    }
    let (passed, failed) = tally.count();
    for id in tally.failed() {
        println!("failed: {id}");
    }
    if !finished && failed == 0 {
        println!("the tests did not run to their end");
    }
    println!("cases: {passed} passed, {failed} failed, {} skipped", SKIPPED.len());
    Ok(if finished && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the tests, shows their output as it comes, and notes every result.
fn run(filters: &[String], tally: &mut Tally) -> Result<bool> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["test", "--package", "oncegate-tests", "--test", "cases", "--"])
        .args(filters)
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo cannot be run")?;
    let stdout = child.stdout.take().context("stdout is a pipe")?;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        if let Some((name, passed)) = result(&line) {
            tally.note(name, passed);
        }
    }
    Ok(child.wait()?.success())
}

/// `test keys::k01_a_quoted_key::redis ... ok`
fn result(line: &str) -> Option<(&str, bool)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    match result {
        "ok" => Some((name, true)),
        "FAILED" => Some((name, false)),
        _ => None,
    }
}

/// The id that a test's name begins with: a letter and two digits, in any of its modules.
fn id(name: &str) -> Option<String> {
    let known = |part: &str| {
        let id = part.get(..3)?.to_ascii_uppercase();
        let ends = part.as_bytes().get(3).is_none_or(|byte| *byte == b'_');
        (ends && IDS.contains(&id.as_str())).then_some(id)
    };
    name.split("::").find_map(known)
}

/// What became of each case: whether all its tests so far have passed.
#[derive(Default)]
struct Tally {
    cases: BTreeMap<String, bool>,
}

impl Tally {
    fn note(&mut self, test: &str, passed: bool) {
        // A test without an id checks the harness; its failure ends the run unsuccessfully.
        if let Some(id) = id(test) {
            let so_far = self.cases.entry(id).or_insert(true);
            *so_far &= passed;
        }
    }

    fn blame_the_missing(&mut self) {
        let skipped = |id: &str| SKIPPED.iter().any(|skip| skip.id == id && skip.part.is_none());
        for id in IDS.iter().filter(|id| !skipped(id)) {
            self.cases.entry((*id).to_owned()).or_insert_with(|| {
                println!("{id} neither ran nor is skipped");
                false
            });
        }
    }

    fn failed(&self) -> impl Iterator<Item = &String> {
        self.cases.iter().filter(|(_, passed)| !**passed).map(|(id, _)| id)
    }

    fn count(&self) -> (usize, usize) {
        let failed = self.failed().count();
        (self.cases.len() - failed, failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_is_read() {
        assert_eq!(result("test keys::k01_x::redis ... ok"), Some(("keys::k01_x::redis", true)));
        assert_eq!(
            result("test keys::k01_x::redis ... FAILED"),
            Some(("keys::k01_x::redis", false))
        );
        assert_eq!(result("test result: ok. 3 passed; 0 failed"), None);
        assert_eq!(result("running 3 tests"), None);
    }

    #[test]
    fn the_id_stands_before_the_name() {
        assert_eq!(id("keys::k01_a_quoted_key::redis"), Some("K01".to_owned()));
        assert_eq!(id("store::a_store_is_named_by_its_url"), None);
        assert_eq!(id("keys::k99_no_such_case::redis"), None);
    }

    #[test]
    fn one_failure_fails_the_case() {
        let mut tally = Tally::default();
        tally.note("keys::k01_x::embedded", true);
        tally.note("keys::k01_x::redis", false);
        tally.note("keys::k01_y::redis", true);
        tally.note("keys::k02_x::redis", true);
        assert_eq!(tally.count(), (1, 1));
        assert_eq!(tally.failed().collect::<Vec<_>>(), ["K01"]);
    }

    #[test]
    fn what_did_not_run_and_is_not_skipped_has_failed() {
        let mut tally = Tally::default();
        tally.blame_the_missing();
        assert!(tally.cases.contains_key("K01"));
        assert!(!tally.cases.contains_key("I06"), "skipped");
        assert!(tally.cases.contains_key("S10"), "only a part of it is skipped");
    }
}
