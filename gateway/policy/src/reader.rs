//! Reads a tree of values into tables of typed fields, and keeps going after an error.
//!
//! Serde's derive stops at the first field that does not fit. Here each field is read on its
//! own: one that does not fit reports itself, becomes [`Field::Broken`], and its neighbours are
//! read all the same. The [`table!`] macro writes the struct and its reader from one list, so
//! that the keys we know (for "unknown key, did you mean …") cannot drift from those we read.

use std::cell::RefCell;

use figment::Figment;
use figment::value::{Dict, Value};

use crate::error::{Origin, Place, Problem, Problems, Warning};

/// Collects what is wrong and what is odd, from every file, until the end.
#[derive(Default)]
pub(crate) struct Report {
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Warning>>,
}

impl Report {
    /// Notes a broken rule.
    pub(crate) fn problem(&self, place: &Place, rule: impl Into<String>) {
        let problem = Problem { file: place.file(), field: place.field(), rule: rule.into() };
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Notes something an operator should know.
    pub(crate) fn warn(&self, place: &Place, note: impl Into<String>) {
        let warning = Warning { file: place.file(), field: place.field(), note: note.into() };
        self.warnings.borrow_mut().push(warning);
    }

    /// The warnings of a sound policy, or every problem of a broken one. Problems are sorted by
    /// file, because checks across files run last; within a file the order is that of reading.
    pub(crate) fn close(self) -> Result<Vec<Warning>, Problems> {
        let mut problems = self.problems.into_inner();
        problems.sort_by(|a, b| a.file.cmp(&b.file));
        match Problems::of(problems) {
            None => Ok(self.warnings.into_inner()),
            Some(problems) => Err(problems),
        }
    }
}

/// One value, where it stands, and where to complain about it.
pub(crate) struct Node<'a> {
    pub(crate) value: &'a Value,
    pub(crate) place: Place,
    pub(crate) report: &'a Report,
    /// The layers this value was merged from, to tell which of them a member came from.
    pub(crate) layers: Option<&'a Figment>,
}

impl<'a> Node<'a> {
    /// A value that comes from one layer only.
    pub(crate) fn new(value: &'a Value, place: Place, report: &'a Report) -> Self {
        Self { value, place, report, layers: None }
    }

    /// Reports `rule` about this value; `None` so that readers can end with it.
    pub(crate) fn refuse<T>(&self, rule: impl Into<String>) -> Option<T> {
        self.report.problem(&self.place, rule);
        None
    }

    /// Reports that this value is not `wanted`, and says what it is.
    pub(crate) fn mismatch<T>(&self, wanted: &str) -> Option<T> {
        self.refuse(format!("must be {wanted}, not {}", describe(self.value)))
    }

    /// As [`Node::mismatch`], for what should have been a table or a list. Text is not repeated:
    /// with `secrets = "…"` it would be a secret.
    fn no_container<T>(&self, wanted: &str) -> Option<T> {
        match self.value.as_str() {
            Some(_) => self.refuse(format!("must be {wanted}, not text")),
            None => self.mismatch(wanted),
        }
    }

    /// Whether the value is a variable of the environment, where everything is text.
    pub(crate) fn is_variable(&self) -> bool {
        self.place.origin == Origin::Environment
    }

    fn with(&self, value: &'a Value, place: Place) -> Node<'a> {
        Node { value, place, report: self.report, layers: self.layers }
    }

    /// Member `key` of this table.
    fn member(&self, key: &str, value: &'a Value) -> Node<'a> {
        self.with(value, self.place.member(key, self.origin_of(value)))
    }

    fn origin_of(&self, value: &Value) -> Origin {
        let metadata = self.layers.and_then(|layers| layers.get_metadata(value.tag()));
        let Some(metadata) = metadata else { return self.place.origin.clone() };
        match &metadata.source {
            Some(source) => match source.file_path() {
                Some(path) => Origin::File(path.into()),
                None => Origin::Environment,
            },
            None => Origin::Program,
        }
    }

    /// The items of this list.
    pub(crate) fn items(&self, wanted: &str) -> Option<Vec<Node<'a>>> {
        let Value::Array(_, items) = self.value else { return self.no_container(wanted) };
        let node = |(n, value)| self.with(value, self.place.item(n));
        Some(items.iter().enumerate().map(node).collect())
    }

    /// The members of this table, whatever their names.
    pub(crate) fn members(&self) -> Option<Vec<(&'a str, Node<'a>)>> {
        let Value::Dict(_, dict) = self.value else { return self.no_container("a table") };
        Some(dict.iter().map(|(key, value)| (key.as_str(), self.member(key, value))).collect())
    }

    /// This table, after reporting every member that is not in `known`.
    pub(crate) fn table<'n>(&'n self, known: &[&str]) -> Option<Table<'n, 'a>> {
        let Value::Dict(_, dict) = self.value else { return self.no_container("a table") };
        for (key, value) in dict {
            if !known.contains(&key.as_str()) {
                self.member(key, value).refuse::<()>(unknown("is not a known key", key, known));
            }
        }
        Some(Table { node: self, dict })
    }
}

/// A table whose unknown members have been reported.
pub(crate) struct Table<'n, 'a> {
    node: &'n Node<'a>,
    dict: &'a Dict,
}

impl Table<'_, '_> {
    /// Reads one member.
    pub(crate) fn field<T: Read>(&self, key: &str) -> Field<T> {
        let Some(value) = self.dict.get(key) else { return Field::Absent };
        let node = self.node.member(key, value);
        match T::read(&node) {
            Some(value) => Field::Given(At { value, place: node.place }),
            None => Field::Broken,
        }
    }
}

/// Something that can be read from a value. Whoever returns `None` has reported why.
pub(crate) trait Read: Sized {
    fn read(node: &Node<'_>) -> Option<Self>;
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// What a file says about one field.
#[derive(Debug, Default)]
pub(crate) enum Field<T> {
    /// Nothing: a default applies, or the field is missing.
    #[default]
    Absent,
    /// Something that did not fit. It has been reported and the policy will be refused, so what
    /// follows may take any value, but must not complain that the field is missing.
    Broken,
    /// This.
    Given(At<T>),
}

impl<T> Field<T> {
    pub(crate) fn is_absent(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Broken | Self::Given(_) => false,
        }
    }

    pub(crate) fn given(self) -> Option<At<T>> {
        match self {
            Self::Given(at) => Some(at),
            Self::Absent | Self::Broken => None,
        }
    }

    pub(crate) fn value(self) -> Option<T> {
        self.given().map(|at| at.value)
    }

    pub(crate) fn or(self, default: T) -> T {
        self.value().unwrap_or(default)
    }

    /// The value of a field that must be there; `why` completes "is required…".
    pub(crate) fn required(
        self,
        report: &Report,
        parent: &Place,
        key: &str,
        why: &str,
    ) -> Option<At<T>> {
        if self.is_absent() {
            let place = parent.member(key, parent.origin.clone());
            report.problem(&place, format!("is required{why}"));
        }
        self.given()
    }
}

impl<T: Read> Read for At<T> {
    fn read(node: &Node<'_>) -> Option<Self> {
        Some(At { value: T::read(node)?, place: node.place.clone() })
    }
}

/// A list without its broken items, which have been reported: the sound ones are checked on.
#[derive(Debug)]
pub(crate) struct List<T> {
    pub(crate) items: Vec<T>,
    /// Whether nothing was written, as opposed to nothing sound.
    pub(crate) is_empty: bool,
}

impl<T: Read> Read for List<T> {
    fn read(node: &Node<'_>) -> Option<Self> {
        let nodes = node.items("a list")?;
        Some(Self { items: nodes.iter().filter_map(T::read).collect(), is_empty: nodes.is_empty() })
    }
}

impl<T> Field<List<T>> {
    /// The sound items, if any.
    pub(crate) fn items(self) -> Vec<T> {
        self.value().map(|list| list.items).unwrap_or_default()
    }
}

/// A table of tables under names that the operator chose. A broken entry keeps its name, so
/// that whoever refers to it is not told that it does not exist.
#[derive(Debug)]
pub(crate) struct Named<T>(pub(crate) Vec<(String, Place, Option<T>)>);

impl<T: Read> Read for Named<T> {
    fn read(node: &Node<'_>) -> Option<Self> {
        let entry = |(name, node): (&str, Node<'_>)| {
            let value = T::read(&node);
            (name.to_owned(), node.place, value)
        };
        Some(Self(node.members()?.into_iter().map(entry).collect()))
    }
}

/// A table of the policy language.
pub(crate) trait Keys {
    /// Every key it may have.
    const KEYS: &'static [&'static str];

    /// The keys that were written, whether well or not.
    fn written(&self) -> Vec<&'static str>;
}

/// Declares a table of a policy file: the struct, and how to read it.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $key:literal => $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: $crate::reader::Field<$type>,)*
        }

        impl $crate::reader::Keys for $name {
            const KEYS: &'static [&'static str] = &[$($key),*];

            fn written(&self) -> Vec<&'static str> {
                let fields = [$(($key, !self.$field.is_absent())),*];
                fields.into_iter().filter(|(_, written)| *written).map(|(key, _)| key).collect()
            }
        }

        impl $crate::reader::Read for $name {
            fn read(node: &$crate::reader::Node<'_>) -> Option<Self> {
                let table = node.table(<Self as $crate::reader::Keys>::KEYS)?;
                Some(Self { $($field: table.field($key),)* })
            }
        }
    };
}
pub(crate) use table;

/// A value in words, for "…, not {this}". Long text is cut: it may be a whole file.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::String(_, text) => match text.char_indices().nth(60) {
            Some((cut, _)) => format!("{:?}…", &text[..cut]),
            None => format!("{text:?}"),
        },
        Value::Char(_, text) => format!("{:?}", text.to_string()),
        Value::Bool(_, value) => value.to_string(),
        Value::Num(_, number) => match number.to_f64() {
            Some(float) => format!("the number {float}"),
            None => match (number.to_i128(), number.to_u128()) {
                (Some(integer), _) => format!("the number {integer}"),
                (None, Some(integer)) => format!("the number {integer}"),
                (None, None) => "a number".to_owned(),
            },
        },
        Value::Empty(..) => "nothing".to_owned(),
        Value::Dict(_, dict) if dict.contains_key(TOML_DATE) => "a date".to_owned(),
        Value::Dict(..) => "a table".to_owned(),
        Value::Array(..) => "a list".to_owned(),
    }
}

/// How the TOML reader hands a date to serde.
pub(crate) const TOML_DATE: &str = "$__toml_private_datetime";

/// "… is not known", with the nearest name if one is near, else all of them.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("{what}; did you mean `{near}`?"),
        None if known.is_empty() => format!("{what}: none is defined"),
        None => format!("{what}; known: {}", listed(known)),
    }
}

/// `` `a`, `b` and `c` ``.
pub(crate) fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => "none".to_owned(),
    }
}

/// The known name that a typing error of at most a third of the letters could have made.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    const NAME_BYTES_MAX: usize = 64;
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let scored = known.iter().map(|candidate| (distance(name, candidate), *candidate));
    let (distance, candidate) = scored.min()?;
    (distance <= candidate.len().max(3) / 3).then_some(candidate)
}

/// How many insertions, deletions, substitutions and swaps of neighbours make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let substituted = last[j] + usize::from(a[i] != b[j]);
            let mut best = substituted.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_gets_the_name_that_was_meant() {
        let known = ["retention", "retention_max", "lease", "scope"];
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(nearest(name, &known), expected, "{name}");
        };
        check("retension", Some("retention"));
        check("retentionmax", Some("retention_max"));
        check("leese", Some("lease"));
        check("scop", Some("scope"));
        check("colour", None);
        check(&"x".repeat(1000), None);
    }

    #[test]
    fn distance_counts_single_letter_edits() {
        let cases = [
            ("", "", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("a", "a", 0),
            ("stroe", "store", 1),
        ];
        for (a, b, expected) in cases {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }
}
