//! What is wrong with a policy, in words for the person who wrote it.
//!
//! A policy is refused as a whole, so the whole list of reasons is given at once: nobody should
//! have to fix one line, reload and meet the next.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One broken rule: which file, which field, what must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The policy file; `None` when the value came from the environment or the command line, or
    /// when it is missing everywhere.
    pub file: Option<PathBuf>,
    /// The field (`route[0].retention`), the environment variable (`ONCEGATE_STORE__URL`), the
    /// position of a syntax error (`line 3, column 7`), or empty when the whole file is meant.
    pub field: String,
    /// The rule, as the end of a sentence that starts with the field.
    pub rule: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.rule)
    }
}

/// Every reason why a policy was refused, at least one, in the order of the files.
///
/// Two are equal when their reasons are.
#[derive(Clone, Debug)]
pub struct Problems {
    problems: Vec<Problem>,
    watched: Vec<PathBuf>,
}

impl Problems {
    /// `None` for an empty list: no problem is no error.
    pub fn of(problems: Vec<Problem>) -> Option<Self> {
        (!problems.is_empty()).then_some(Self { problems, watched: Vec::new() })
    }

    /// The list.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.problems.len()
    }

    /// Every directory and file whose change may repair the policy, for
    /// [`Watcher::watch`](crate::watch::Watcher::watch): as
    /// [`PolicySet::files`](crate::PolicySet::files), of the policy that was refused. Filled by
    /// [`load`](crate::load()), empty otherwise.
    pub fn watched(&self) -> &[PathBuf] {
        &self.watched
    }

    /// These, with what is to be watched.
    #[must_use]
    pub fn with_watched(self, watched: Vec<PathBuf>) -> Self {
        Self { watched, ..self }
    }
}

impl PartialEq for Problems {
    fn eq(&self, other: &Self) -> bool {
        self.problems == other.problems
    }
}

impl Eq for Problems {}

/// One line each.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Something allowed that an operator probably did not mean, or should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The policy file, as in [`Problem::file`].
    pub file: Option<PathBuf>,
    /// The field, as in [`Problem::field`].
    pub field: String,
    /// What to know about it.
    pub note: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        write!(f, "{}: {}", self.field, self.note)
    }
}

/// Which layer a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A policy file.
    File(Arc<Path>),
    /// A variable `ONCEGATE_…`.
    Environment,
    /// Written nowhere by the operator: our own defaults, or the command line.
    Program,
}

/// Where a value stands: its layer and its path within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) origin: Origin,
    pub(crate) path: String,
}

impl Place {
    /// A place in a file; the empty path is the file itself.
    pub(crate) fn in_file(file: &Arc<Path>, path: impl Into<String>) -> Self {
        Self { origin: Origin::File(Arc::clone(file)), path: path.into() }
    }

    /// A place that no operator wrote.
    pub(crate) fn program(path: impl Into<String>) -> Self {
        Self { origin: Origin::Program, path: path.into() }
    }

    /// The place of a member of this table, which may come from another layer.
    pub(crate) fn member(&self, key: &str, origin: Origin) -> Self {
        let bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let key = match !key.is_empty() && key.bytes().all(bare) {
            true => key.to_owned(),
            // Quoted and escaped, so that one problem stays one line.
            false => format!("{key:?}"),
        };
        let path = match self.path.is_empty() {
            true => key,
            false => format!("{}.{key}", self.path),
        };
        Self { origin, path }
    }

    /// The place of an item of this list.
    pub(crate) fn item(&self, index: usize) -> Self {
        Self { origin: self.origin.clone(), path: format!("{}[{index}]", self.path) }
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match &self.origin {
            Origin::File(path) => Some(path.to_path_buf()),
            Origin::Environment | Origin::Program => None,
        }
    }

    /// What an operator must edit: the field, or the variable's name.
    pub(crate) fn field(&self) -> String {
        match &self.origin {
            Origin::File(_) | Origin::Program => self.path.clone(),
            Origin::Environment => {
                format!("ONCEGATE_{}", self.path.to_uppercase().replace('.', "__"))
            }
        }
    }
}

/// For a sentence that names a second place: "`route[0]` in a.toml".
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.field())?;
        match &self.origin {
            Origin::File(path) => write!(f, " in {}", path.display()),
            Origin::Environment | Origin::Program => Ok(()),
        }
    }
}
