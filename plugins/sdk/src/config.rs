//! Reading a configuration with every mistake named.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value};

use crate::Problem;

/// The fields of a configuration, taken one by one. What is wrong with them is collected, so
/// that the operator sees all of it at once, each with its place; what nobody took is refused
/// as unknown.
pub struct Config {
    fields: Map<String, Value>,
    known: Vec<&'static str>,
    problems: Vec<Problem>,
}

impl Config {
    /// Reads a JSON object. No text at all and `null` count as an empty object.
    pub fn read(text: &str) -> Result<Self, Vec<Problem>> {
        let value = match text.trim_ascii() {
            "" => Value::Null,
            text => serde_json::from_str(text)
                .map_err(|_| alloc::vec![problem("", "the configuration is not JSON")])?,
        };
        let fields = match value {
            Value::Null => Map::new(),
            Value::Object(fields) => fields,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(alloc::vec![problem("", "the configuration is not an object")]);
            }
        };
        Ok(Self { fields, known: Vec::new(), problems: Vec::new() })
    }

    /// A text field.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        let Value::String(text) = self.take(name)? else {
            return self.wrong_type(name, "a string");
        };
        Some(text)
    }

    /// A field that is true or false.
    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        match self.take(name)?.as_bool() {
            Some(value) => Some(value),
            None => self.wrong_type(name, "true or false"),
        }
    }

    /// A whole number, not negative.
    pub fn number(&mut self, name: &'static str) -> Option<u64> {
        match self.take(name)?.as_u64() {
            Some(value) => Some(value),
            None => self.wrong_type(name, "a whole number, 0 or more"),
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        let Value::Array(items) = self.take(name)? else {
            return self.wrong_type(name, "a list of strings");
        };
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            if let Value::String(text) = item {
                texts.push(text);
            } else {
                self.problem(&format!("/{name}/{index}"), "must be a string");
            }
        }
        Some(texts)
    }

    /// Notes a mistake that only the plugin can see.
    pub fn problem(&mut self, at: &str, message: &str) {
        self.problems.push(problem(at, message));
    }

    /// Ends the reading: the mistakes, including every field that was never asked for.
    pub fn finish(mut self) -> Result<(), Vec<Problem>> {
        for name in self.fields.keys() {
            let at = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            let message = format!("unknown field; known: {}", self.known.join(", "));
            self.problems.push(Problem { at, message });
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.fields.remove(name)
    }

    fn wrong_type<T>(&mut self, name: &str, expected: &str) -> Option<T> {
        self.problem(&format!("/{name}"), &format!("must be {expected}"));
        None
    }
}

fn problem(at: &str, message: &str) -> Problem {
    Problem { at: at.into(), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_out_with_their_types() {
        let mut config =
            Config::read(r#"{"a":"x","b":true,"c":7,"d":["p","q"]}"#).expect("an object");
        assert_eq!(config.text("a").as_deref(), Some("x"));
        assert_eq!(config.boolean("b"), Some(true));
        assert_eq!(config.number("c"), Some(7));
        assert_eq!(config.texts("d"), Some(alloc::vec!["p".into(), "q".into()]));
        assert_eq!(config.text("absent"), None);
        assert_eq!(config.finish(), Ok(()));
    }

    #[test]
    fn every_mistake_is_named_with_its_place() {
        let mut config = Config::read(r#"{"a":1,"c":-1,"d":["p",2],"x/y~":0}"#).expect("an object");
        config.text("a");
        config.number("c");
        config.texts("d");
        let problems = config.finish().expect_err("problems");
        let places: Vec<&str> = problems.iter().map(|problem| problem.at.as_str()).collect();
        assert_eq!(places, ["/a", "/c", "/d/1", "/x~1y~0"]);
        assert_eq!(problems[3].message, "unknown field; known: a, c, d");
    }

    #[test]
    fn no_configuration_is_an_empty_one() {
        for text in ["", "  ", "null", "{}"] {
            assert_eq!(Config::read(text).expect("empty").finish(), Ok(()), "{text:?}");
        }
        for text in ["[]", "7", "{", "\"x\""] {
            assert_eq!(Config::read(text).err().map(|p| p.len()), Some(1), "{text:?}");
        }
    }
}
