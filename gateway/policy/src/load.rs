//! Finds the policy files, reads them, merges the layers, and hands everything to the checks.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use figment::providers::Format;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use crate::document::{FileDocument, SECTIONS};
use crate::error::{Origin, Place, Problems};
use crate::format::{SyntaxError, Toml, Yaml};
use crate::matcher::Matcher;
use crate::policy::{Component, PolicySet, Route};
use crate::reader::{Keys, Node, Read, Report, unknown};
use crate::settings::Settings;
use crate::validate::{self, Checked, settings};

/// The most files in one directory.
pub const FILES_MAX: usize = 1_000;
/// The largest policy file, in bytes.
pub const FILE_BYTES_MAX: u64 = 8 << 20;

/// What is read from.
#[derive(Clone, Debug)]
pub struct Source {
    /// One policy file, or a directory of them.
    pub path: PathBuf,
    /// The environment, given and not looked up, so that a test can have its own.
    pub env: Environment,
}

/// Everything a gateway needs to start.
#[derive(Debug)]
pub struct Loaded {
    /// What the process runs on.
    pub settings: Settings,
    /// What it does with requests.
    pub policy: PolicySet,
}

/// Environment variables.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

/// What the names of our variables begin with.
const PREFIX: &str = "ONCEGATE_";

impl Environment {
    /// Those of this process.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .map(|(name, value)| {
                (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
            })
            .collect()
    }

    /// The settings they hold: `ONCEGATE_STORE__URL` is `store.url`.
    ///
    /// Values stay text, so that a password of digits is not read as a number. An empty value
    /// counts as unset, because that is how compose files and shells leave a variable out. Names
    /// without `__` are not ours to judge: Kubernetes makes `ONCEGATE_PORT` for a service.
    fn settings(&self, report: &Report) -> Dict {
        let mut sections = BTreeMap::<String, Dict>::new();
        for (name, value) in &self.0 {
            let path = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once("__"));
            let Some((section, field)) = path.filter(|_| !value.is_empty()) else { continue };
            let (section, field) = (section.to_lowercase(), field.to_lowercase());
            if SECTIONS.contains(&section.as_str()) {
                sections.entry(section).or_default().insert(field, Value::from(value.as_str()));
            } else {
                let path = format!("{section}.{field}");
                let place = Place { origin: Origin::Environment, path };
                let what = format!("names no section of the settings: `{section}`");
                report.problem(&place, unknown(&what, &section, SECTIONS));
            }
        }
        sections.into_iter().map(|(name, dict)| (name, Value::from(dict))).collect()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Loads one generation: the whole of it, or every reason why not, and in either case what to
/// watch ([`PolicySet::files`], [`Problems::watched`]).
pub fn load(source: &Source) -> Result<Loaded, Problems> {
    let report = Report::default();
    let texts = read_steadily(&source.path);
    let mut watched = vec![source.path.clone()];
    let mut sources = Vec::new();
    let mut complete = true;
    for (path, text) in texts {
        let place = Place::in_file(&path, "");
        watched.push(path.to_path_buf());
        match text.and_then(|text| parse(&path, &text)) {
            Ok(dict) => sources.push(SourceFile { place, dict }),
            Err(error) => {
                complete = false;
                let field = error.at.map(|(line, column)| format!("line {line}, column {column}"));
                report.problem(&Place::in_file(&path, field.unwrap_or_default()), error.message);
            }
        }
    }
    assemble(sources, complete, &source.env, watched, report)
}

/// A parsed file, or what stands in for one.
pub(crate) struct SourceFile {
    pub(crate) place: Place,
    pub(crate) dict: Dict,
}

/// From parsed files to a checked generation.
pub(crate) fn assemble(
    sources: Vec<SourceFile>,
    complete: bool,
    env: &Environment,
    mut watched: Vec<PathBuf>,
    report: Report,
) -> Result<Loaded, Problems> {
    let documents = read_documents(&sources, &report);
    let layers = layer(&sources, env.settings(&report));
    let settings = settings::check(&layers, &report);
    let checked = validate::policy(documents, complete, &report);
    let Checked { upstreams, plugins, routes } = checked;
    let files = plugins.values().filter_map(|plugin| match &plugin.component {
        Component::File(path) => Some(path.clone()),
        Component::Builtin(_) => None,
    });
    watched.extend(files);
    watched.sort();
    watched.dedup();
    let warnings = match report.close() {
        Ok(warnings) => warnings,
        Err(problems) => return Err(problems.with_watched(watched)),
    };
    let matcher = Matcher::new(routes.iter().map(|route: &Route| &route.matcher));
    let routes = routes.into_iter().map(Arc::new).collect();
    let policy = PolicySet { upstreams, plugins, routes, warnings, files: watched, matcher };
    // A section that could not be read has reported why, and `close` has returned that.
    let settings = settings.expect("without a problem every section was read");
    Ok(Loaded { settings, policy })
}

fn read_documents(sources: &[SourceFile], report: &Report) -> Vec<FileDocument> {
    let mut documents = Vec::new();
    let mut sections = BTreeMap::<&str, &Place>::new();
    for source in sources {
        let value = Value::from(source.dict.clone());
        let Some(document) = FileDocument::read(&Node::new(&value, source.place.clone(), report))
        else {
            continue;
        };
        for section in document.written().into_iter().filter(|key| SECTIONS.contains(key)) {
            match sections.get(section) {
                None => drop(sections.insert(section, &source.place)),
                Some(first) => report.problem(
                    &source.place.member(section, source.place.origin.clone()),
                    format!("may stand in one file only, and stands in {} too", file_name(first)),
                ),
            }
        }
        documents.push(document);
    }
    documents
}

fn file_name(place: &Place) -> String {
    place.file().map_or_else(|| "the command line".to_owned(), |file| file.display().to_string())
}

/// Defaults, then files, then the environment: the later layer wins.
fn layer(sources: &[SourceFile], env: Dict) -> Figment {
    let defaults = Toml::from_str(include_str!("defaults.toml")).unwrap_or_default();
    let mut layers = Figment::from(Layer { metadata: Metadata::named("defaults"), dict: defaults });
    for source in sources {
        let metadata = match &source.place.origin {
            Origin::File(path) => Metadata::from("policy file", path.as_ref()),
            Origin::Environment | Origin::Program => Metadata::named("command line"),
        };
        let is_section = |(key, _): &(&String, &Value)| SECTIONS.contains(&key.as_str());
        let owned = |(key, value): (&String, &Value)| (key.clone(), value.clone());
        let dict = source.dict.iter().filter(is_section).map(owned).collect();
        layers = layers.merge(Layer { metadata, dict });
    }
    layers.merge(Layer { metadata: Metadata::from("environment", PREFIX), dict: env })
}

/// One layer of the settings, already parsed.
struct Layer {
    metadata: Metadata,
    dict: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.dict.clone())]))
    }
}

fn parse(path: &Path, text: &str) -> Result<Dict, SyntaxError> {
    match language(path) {
        Some(Language::Toml) => Toml::from_str(text),
        // To YAML an empty document is a null, to us a file that says nothing.
        Some(Language::Yaml) => Yaml::from_str::<Option<Dict>>(text).map(Option::unwrap_or_default),
        None => Err(failure("must end with .toml, .yaml or .yml")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Toml,
    Yaml,
}

/// By the name's ending. Hidden files are none: editors and Kubernetes keep their own there.
fn language(path: &Path) -> Option<Language> {
    let name = path.file_name()?.to_str()?;
    match path.extension()?.to_str()? {
        _ if name.starts_with('.') => None,
        "toml" => Some(Language::Toml),
        "yaml" | "yml" => Some(Language::Yaml),
        _ => None,
    }
}

/// Whether a file of this name in the policy directory is part of the policy.
pub(crate) fn is_policy_file(path: &Path) -> bool {
    language(path).is_some()
}

fn failure(message: impl Into<String>) -> SyntaxError {
    SyntaxError { at: None, message: message.into() }
}

type Texts = Vec<(Arc<Path>, Result<String, SyntaxError>)>;

/// Reads until two passes agree, so that a directory which is being replaced is not read half
/// old and half new. If it never settles, the last pass counts: the watcher will call again.
fn read_steadily(path: &Path) -> Texts {
    const PASSES_MAX: usize = 5;
    let mut texts = read_all(path);
    for _ in 1..PASSES_MAX {
        let again = read_all(path);
        let same = texts.len() == again.len()
            && texts
                .iter()
                .zip(&again)
                .all(|(a, b)| a.0 == b.0 && a.1.as_ref().ok() == b.1.as_ref().ok());
        texts = again;
        if same {
            break;
        }
    }
    texts
}

fn read_all(path: &Path) -> Texts {
    let files = match path.is_dir() {
        true => list(path),
        false => Ok(vec![path.to_path_buf()]),
    };
    let with_text = |file: PathBuf| {
        let text = read_file(&file);
        (file.into(), text)
    };
    match files {
        Ok(files) => files.into_iter().map(with_text).collect(),
        Err(error) => vec![(path.into(), Err(error))],
    }
}

/// The policy files of a directory, sorted by name.
fn list(directory: &Path) -> Result<Vec<PathBuf>, SyntaxError> {
    let unreadable = |error: std::io::Error| failure(format!("cannot be read: {error}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if is_policy_file(&path) {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(failure(format!("must hold at most {FILES_MAX} policy files")));
        }
    }
    if files.is_empty() {
        return Err(failure("holds no policy file (*.toml, *.yaml or *.yml)"));
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path) -> Result<String, SyntaxError> {
    let unreadable = |error: std::io::Error| failure(format!("cannot be read: {error}"));
    // Before opening: to open a pipe is to wait for its writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(failure("must be a file"));
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(failure("must have at most 8MiB"));
    }
    String::from_utf8(bytes).map_err(|_| failure("must be UTF-8 text"))
}
