//! The configuration of this plugin.

use oncegate_plugin_sdk::{Config, Part, Problem};

use crate::parts::{self, NOT_A_POINTER, is_pointer};

/// What may be set, with its defaults.
#[derive(Debug, PartialEq)]
pub(crate) struct Settings {
    /// What the key is made from; at least one.
    pub(crate) parts: Vec<Part>,
    /// What to do when a part that was asked for by name is not there: pass.
    pub(crate) absent: Absent,
    /// How long the record should be kept: as the route says.
    pub(crate) retention_ms: Option<u64>,
}

/// A named part (a header, a parameter, a JSON value, the caller) is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// There is no key here. The default, since the alternative is one key for every request
    /// that lacks the value.
    Pass,
    /// Answer 400.
    Reject,
    /// "Not there" counts as a value.
    Include,
}

impl Settings {
    /// Reads the JSON text, naming every mistake.
    pub(crate) fn read(config: &str) -> Result<Self, Vec<Problem>> {
        let mut config = Config::read(config)?;
        let words = config.texts("parts").unwrap_or_default();
        let ignore = config.texts("ignore").unwrap_or_default();
        let absent = config.text("absent");
        let retention_ms = config.number("retention_ms");

        let parts = read_parts(&mut config, &words, &ignore);
        check_ignore(&mut config, &words, &ignore);
        let absent = read_absent(&mut config, absent.as_deref());
        if retention_ms == Some(0) {
            config.problem("/retention_ms", "must be at least 1");
        }
        config.finish()?;
        Ok(Self { parts, absent, retention_ms })
    }
}

/// `body-json` together with `ignore` is one part: the JSON without those values.
fn read_parts(config: &mut Config, words: &[String], ignore: &[String]) -> Vec<Part> {
    if words.is_empty() {
        config.problem("/parts", "at least one part is needed: no parts is one key for all");
    }
    let mut found = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        match parts::parse(word) {
            Ok(Part::BodyJson) if !ignore.is_empty() => {
                found.push(Part::JsonWithout(ignore.to_vec()));
            }
            Ok(part) => found.push(part),
            Err(message) => config.problem(&format!("/parts/{index}"), &message),
        }
    }
    found
}

fn check_ignore(config: &mut Config, words: &[String], ignore: &[String]) {
    for (index, pointer) in ignore.iter().enumerate() {
        if !is_pointer(pointer) {
            config.problem(&format!("/ignore/{index}"), NOT_A_POINTER);
        }
    }
    if !ignore.is_empty() && !words.iter().any(|word| word == "body-json") {
        config.problem("/ignore", "only works with the part \"body-json\"");
    }
}

fn read_absent(config: &mut Config, word: Option<&str>) -> Absent {
    match word {
        None | Some("pass") => Absent::Pass,
        Some("reject") => Absent::Reject,
        Some("include") => Absent::Include,
        Some(_) => {
            config.problem("/absent", "must be \"pass\", \"reject\" or \"include\"");
            Absent::Reject
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(config: &str, expected: &[&str]) {
        let problems = Settings::read(config).expect_err(config);
        let places: Vec<&str> = problems.iter().map(|problem| problem.at.as_str()).collect();
        assert_eq!(places, expected, "{config}");
    }

    #[test]
    fn ignored_values_are_left_out_of_the_json() {
        let settings = Settings::read(r#"{"parts":["method","body-json"],"ignore":["/sent_at"]}"#)
            .expect("settings");
        let without = Part::JsonWithout(vec!["/sent_at".into()]);
        assert_eq!(settings.parts, [Part::Method, without]);
    }

    #[test]
    fn mistakes_are_named() {
        mistakes("{}", &["/parts"]);
        mistakes(r#"{"parts":[]}"#, &["/parts"]);
        mistakes(r#"{"parts":["method","bodi"]}"#, &["/parts/1"]);
        mistakes(r#"{"parts":["body"],"ignore":["/a"]}"#, &["/ignore"]);
        mistakes(r#"{"parts":["body-json"],"ignore":["a",""]}"#, &["/ignore/0", "/ignore/1"]);
        mistakes(
            r#"{"parts":["body"],"absent":"x","retention_ms":0,"mode":1}"#,
            &["/absent", "/retention_ms", "/mode"],
        );
    }
}
