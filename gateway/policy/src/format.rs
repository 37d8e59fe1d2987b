//! The two languages a policy file may be written in, as figment formats.
//!
//! Figment brings its own, but its YAML rests on a crate that is no longer maintained and its
//! TOML on an old major version. Ours also say *where* a syntax error is.

use std::fmt;

use figment::providers::Format;
use serde::de::DeserializeOwned;

/// A file that is not well-formed.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    /// Line and column, both from 1, where the parser knows them.
    pub(crate) at: Option<(usize, usize)>,
    /// What is wrong, on one line.
    pub(crate) message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}

impl serde::de::Error for SyntaxError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { at: None, message: one_line(&message.to_string()) }
    }
}

/// A message must not break the list it is shown in.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control()).map(str::trim).collect::<Vec<_>>().join(" ")
}

/// TOML, version 1.1 of the language.
pub(crate) struct Toml;

impl Format for Toml {
    type Error = SyntaxError;
    const NAME: &'static str = "TOML";

    fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, SyntaxError> {
        toml::from_str(text).map_err(|error| SyntaxError {
            at: error.span().map(|span| position(text, span.start)),
            message: one_line(error.message()),
        })
    }
}

/// YAML, of which only what cannot be misread: `no` is text, not false, and a tag we do not know
/// is an error. The parser's own budget bounds nesting, aliases and the number of nodes.
pub(crate) struct Yaml;

impl Format for Yaml {
    type Error = SyntaxError;
    const NAME: &'static str = "YAML";

    fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, SyntaxError> {
        let options = serde_saphyr::options! {
            strict_booleans: true,
            reject_unsupported_tags: true,
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let at = error.location().map(|at| (cast(at.line()), cast(at.column())));
            // The location is a field of its own here; the renderer would repeat it.
            let words = serde_saphyr::UserMessageFormatter;
            let rendered = error.without_snippet().render_with_formatter(&words);
            let message = match rendered.rfind(" at line ") {
                Some(tail) => &rendered[..tail],
                None => &rendered,
            };
            SyntaxError { at, message: one_line(message) }
        })
    }
}

fn cast(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Line and column of a byte offset, both from 1; the column counts characters.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut cut = offset.min(text.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let before = &text[..cut];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use figment::value::Dict;

    #[test]
    fn a_syntax_error_says_where_it_is() {
        let toml = Toml::from_str::<Dict>("a = 1\nb = = 2\n").expect_err("not TOML");
        assert_eq!(toml.at.map(|at| at.0), Some(2), "{toml}");
        let yaml = Yaml::from_str::<Dict>("a: 1\nb: [1, 2\nc: {\n").expect_err("not YAML");
        assert!(yaml.at.is_some(), "{yaml}");
        assert!(!yaml.to_string().contains('\n'));
    }

    #[test]
    fn yaml_duplicates_and_old_booleans_are_not_misread() {
        assert!(Yaml::from_str::<Dict>("a: 1\na: 2\n").is_err());
        let dict = Yaml::from_str::<Dict>("country: no\n").expect("YAML");
        assert_eq!(dict["country"].as_str(), Some("no"));
    }

    #[test]
    fn positions_count_characters_from_one() {
        assert_eq!(position("é=\nab", 0), (1, 1));
        assert_eq!(position("é=\nab", 2), (1, 2));
        assert_eq!(position("é=\nab", 5), (2, 2));
        assert_eq!(position("x", 99), (1, 2));
    }
}
