//! `oncegate explain`: how a request's key comes about, step by step, with the same code that
//! serves it. Nothing is sent and no store is asked.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use oncegate_core::{Fingerprint, Identity, Key, hex};
use oncegate_plugin_host::{self as plugin_host, Decision, KeySource, Part, Resolved, Tracking};
use oncegate_policy::{FingerprintMode, Guard, MissingKey, Route, ScopeSource};

use super::{Failure, load_all};
use crate::exchange::{Derivation, canonicalise, derivation_of, host_name, view_of};
use crate::generation::Generation;

pub(super) const EXAMPLES: &str = "\
Examples:
  oncegate explain --config policies/ -X POST /v1/payments \\
      -H 'Host: api.example.com' -H 'X-Api-Key: k1' -H 'Idempotency-Key: \"abc\"' -d '{\"amount\":5}'
      Which route, what each plugin said, the identity and what the fingerprint is made of.
  oncegate explain --config policies/ --request first.http --against second.http
      Are these two the same request to the gateway? If not, which part differs?
      The files hold plain HTTP/1.1 messages: request line, header lines, empty line, body.";

#[derive(Args)]
pub(super) struct Explain {
    /// A policy file (TOML or YAML), or a directory of them.
    #[arg(long, value_name = "PATH")]
    config: PathBuf,
    /// A file with the request as an HTTP/1.1 message.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "method", "header", "data"])]
    request: Option<PathBuf>,
    /// A second request to compare with the first.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// The method.
    #[arg(short = 'X', long = "method", value_name = "METHOD", default_value = "POST")]
    method: String,
    /// A header line, as `Name: value`; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    header: Vec<String>,
    /// The body; `@FILE` reads it from a file.
    #[arg(short = 'd', long = "data", value_name = "BODY", default_value = "")]
    data: String,
    /// Path and query, or a whole URL.
    #[arg(value_name = "TARGET", required_unless_present = "request")]
    target: Option<String>,
}

pub(super) async fn run(explain: Explain) -> Result<(), Failure> {
    let (settings, generation) = load_all(&explain.config).await?;
    let namespace = &settings.store.namespace;
    let first = explain.first().map_err(invalid)?;
    let story = tell(&generation, namespace, first).await?;
    let mut out = std::io::stdout().lock();
    story.print(&mut out)?;
    if let Some(path) = &explain.against {
        let second = tell(&generation, namespace, from_file(path).map_err(invalid)?).await?;
        writeln!(out, "\n--- {}", path.display())?;
        second.print(&mut out)?;
        writeln!(out)?;
        compare(&story, &second, &mut out)?;
    }
    Ok(())
}

fn invalid(error: anyhow::Error) -> Failure {
    Failure::Invalid(format!("{error:#}"))
}

impl Explain {
    fn first(&self) -> anyhow::Result<Request<Bytes>> {
        if let Some(path) = &self.request {
            return from_file(path);
        }
        let target = self.target.as_deref().unwrap_or("/");
        let mut request = Request::new(match self.data.strip_prefix('@') {
            Some(path) => std::fs::read(path).with_context(|| format!("-d @{path}"))?.into(),
            None => Bytes::from(self.data.clone()),
        });
        *request.method_mut() = Method::from_bytes(self.method.as_bytes())
            .with_context(|| format!("-X {}", self.method))?;
        *request.uri_mut() = target.parse::<Uri>().with_context(|| format!("target {target}"))?;
        for line in &self.header {
            let (name, value) = line
                .split_once(':')
                .with_context(|| format!("-H {line}: `Name: value` is needed"))?;
            let name: HeaderName = name.trim().parse().with_context(|| format!("-H {line}"))?;
            let value =
                HeaderValue::from_str(value.trim()).with_context(|| format!("-H {line}"))?;
            request.headers_mut().append(name, value);
        }
        Ok(request)
    }
}

/// Reads an HTTP/1.1 message. The body is everything after the empty line.
fn from_file(path: &Path) -> anyhow::Result<Request<Bytes>> {
    let bytes =
        std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let mut lines = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Request::new(&mut lines);
    let parsed = head
        .parse(&bytes)
        .with_context(|| format!("{}: not an HTTP/1.1 request", path.display()))?;
    let httparse::Status::Complete(head_bytes) = parsed else {
        anyhow::bail!("{}: the empty line that ends the head is missing", path.display());
    };
    let body = bytes.get(head_bytes..).unwrap_or_default().to_vec();
    let mut request = Request::new(Bytes::from(body));
    *request.method_mut() = Method::from_bytes(head.method.unwrap_or("GET").as_bytes())?;
    *request.uri_mut() = head.path.unwrap_or("/").parse()?;
    for line in head.headers.iter() {
        request
            .headers_mut()
            .append(line.name.parse::<HeaderName>()?, HeaderValue::from_bytes(line.value)?);
    }
    Ok(request)
}

/// Everything there is to say about one request.
struct Story {
    request: String,
    route: Option<Arc<Route>>,
    plugins: Vec<(String, String)>,
    ending: Ending,
}

enum Ending {
    /// No guard, or a decision that needs no key; says which.
    Untracked(String),
    Tracked(Box<Tracked>),
}

struct Tracked {
    by: String,
    source: String,
    key: Key,
    scope: String,
    identity: Identity,
    fingerprint: Fingerprint,
    parts: Vec<Resolved>,
    ignored: Vec<Resolved>,
    retention: std::time::Duration,
}

async fn tell(
    generation: &Generation,
    namespace: &str,
    request: Request<Bytes>,
) -> Result<Story, Failure> {
    let (mut parts, body) = request.into_parts();
    canonicalise(&mut parts).map_err(|problem| Failure::Invalid(format!("{problem:?}")))?;
    let line = format!("{} {}", parts.method, parts.uri);
    let host = host_name(&parts).unwrap_or_default();
    let untracked = |route, plugins, why: &str| Story {
        request: line.clone(),
        route,
        plugins,
        ending: Ending::Untracked(why.to_owned()),
    };
    let Some(matched) = generation.policy.route(&host, parts.method.as_str(), parts.uri.path())
    else {
        return Ok(untracked(None, Vec::new(), "no route matches: 404"));
    };
    let route = Arc::clone(matched.route);
    let Some(guard) = route.guard_for(parts.method.as_str()) else {
        let why = "not guarded, or a safe method: streamed through";
        return Ok(untracked(Some(Arc::clone(&route)), Vec::new(), why));
    };
    let view = Arc::new(view_of(route.operation.as_str(), &parts, matched.params, body));
    let mut said = Vec::new();
    for name in &guard.plugins {
        let Some(plugin) = generation.plugin(name) else { continue };
        let (text, tracking) = match plugin.derive(&view).await {
            Ok(Decision::Track(tracking)) => (source_of(&tracking, &view), Some(tracking)),
            Ok(Decision::Pass) => ("pass: no key here".to_owned(), None),
            Ok(Decision::Bypass(why)) => {
                said.push((name.clone(), format!("bypass: {why}")));
                return Ok(untracked(Some(Arc::clone(&route)), said, "forwarded unprotected"));
            }
            Ok(Decision::Reject(refusal)) => {
                let text =
                    format!("reject: {} {} ({})", refusal.status, refusal.code, refusal.detail);
                said.push((name.clone(), text));
                return Ok(untracked(Some(Arc::clone(&route)), said, "refused by the plugin"));
            }
            Err(error) => (format!("failed: {} ({error})", error.code()), None),
        };
        said.push((name.clone(), text));
        if let Some(tracking) = tracking {
            let ending = track(generation, namespace, &route, guard, name, &tracking, &view);
            return Ok(Story {
                request: line,
                route: Some(Arc::clone(&route)),
                plugins: said,
                ending,
            });
        }
    }
    let why = format!(
        "no plugin found a key; missing_key = {}",
        match guard.missing_key {
            MissingKey::Reject => "reject",
            MissingKey::Forward => "forward",
        }
    );
    Ok(untracked(Some(route), said, &why))
}

fn source_of(tracking: &Tracking, view: &plugin_host::Request) -> String {
    match &tracking.key {
        KeySource::Client(key) => format!("client's key {}", masked(key.expose())),
        KeySource::Derived(parts) => {
            let parts = plugin_host::resolve(parts, view).unwrap_or_default();
            let tags: Vec<&str> = parts.iter().map(|part| part.tag.as_ref()).collect();
            format!("derived from {}", tags.join(", "))
        }
    }
}

fn track(
    generation: &Generation,
    namespace: &str,
    route: &Route,
    guard: &Guard,
    by: &str,
    tracking: &Tracking,
    view: &plugin_host::Request,
) -> Ending {
    let secret = generation.fingerprint_secret.as_deref();
    let derivation = match derivation_of(namespace, &route.operation, guard, tracking, view, secret)
    {
        Ok(derivation) => derivation,
        Err(why) => return Ending::Untracked(why.to_string()),
    };
    let Derivation { key, identity, fingerprint, parts, retention } = derivation;
    let ignored = match &guard.fingerprint.mode {
        FingerprintMode::Json { ignore } if tracking.fingerprint.is_empty() => {
            let pointers = ignore.iter().map(|pointer| pointer.as_str().to_owned());
            let parts: Vec<Part> = pointers.map(Part::JsonPointer).collect();
            plugin_host::resolve(&parts, view).unwrap_or_default()
        }
        FingerprintMode::Json { .. } | FingerprintMode::Raw | FingerprintMode::Multipart => {
            Vec::new()
        }
    };
    let scope = match &guard.scope {
        ScopeSource::Shared => "shared by all callers".to_owned(),
        ScopeSource::Header(name) => format!("header {name}"),
    };
    let source = source_of(tracking, view);
    let by = by.to_owned();
    Ending::Tracked(Box::new(Tracked {
        by,
        source,
        key,
        scope,
        identity,
        fingerprint,
        parts,
        ignored,
        retention,
    }))
}

impl Story {
    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "request      {}", self.request)?;
        if let Some(route) = &self.route {
            writeln!(
                out,
                "route        {} ({}) -> upstream {}",
                route.operation, route.matcher, route.upstream.name
            )?;
        }
        for (name, said) in &self.plugins {
            writeln!(out, "plugin       {name}: {said}")?;
        }
        match &self.ending {
            Ending::Untracked(why) => writeln!(out, "result       {why}"),
            Ending::Tracked(tracked) => tracked.print(out),
        }
    }
}

impl Tracked {
    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "key          {} (by {}: {})",
            masked(self.key.expose()),
            self.by,
            self.source
        )?;
        writeln!(out, "scope        {}", self.scope)?;
        writeln!(out, "identity     {}", self.identity.to_hex())?;
        writeln!(
            out,
            "fingerprint  v{} {}",
            self.fingerprint.version,
            hex(&self.fingerprint.digest)
        )?;
        for part in &self.parts {
            writeln!(out, "  {:<24} {}", part.tag, shown(part))?;
        }
        for part in &self.ignored {
            writeln!(out, "  {:<24} {} [ignored]", part.tag, shown(part))?;
        }
        writeln!(out, "retention    {}", humantime::format_duration(self.retention))
    }
}

/// Says whether the gateway would take the two for the same request.
fn compare(first: &Story, second: &Story, out: &mut impl Write) -> std::io::Result<()> {
    let (Ending::Tracked(one), Ending::Tracked(two)) = (&first.ending, &second.ending) else {
        return writeln!(out, "no match: at least one of them has no key");
    };
    if one.identity != two.identity {
        let what = match (one.key == two.key, first.route == second.route) {
            (_, false) => "the operation differs",
            (false, true) => "the key differs",
            (true, true) => "the scope differs",
        };
        return writeln!(out, "no match: two intents ({what}); both would be executed");
    }
    if one.fingerprint == two.fingerprint {
        return writeln!(out, "match: the second would be answered from the first");
    }
    writeln!(out, "no match: one key, two requests; the second would be refused (422 key-reused)")?;
    for (a, b) in one.parts.iter().zip(&two.parts) {
        if a.value != b.value || a.tag != b.tag {
            writeln!(out, "  {} differs:\n    {}\n    {}", a.tag, shown(a), shown(b))?;
        }
    }
    Ok(())
}

/// Enough of a secret to tell two apart, not enough to use one.
fn masked(secret: &str) -> String {
    let visible: String = secret.chars().take(4).collect();
    match secret.chars().count() {
        0..=8 => "****".to_owned(),
        n => format!("{visible}**** ({n} characters)"),
    }
}

/// Header values may be credentials; everything else is what the user gave us.
fn shown(part: &Resolved) -> String {
    const LONGEST: usize = 400;
    match &part.value {
        None => "(absent)".to_owned(),
        Some(value) if part.tag.starts_with("header:") => masked(&String::from_utf8_lossy(value)),
        Some(value) => {
            let text = String::from_utf8_lossy(value);
            let text: String =
                text.chars().flat_map(char::escape_debug).take(LONGEST + 1).collect();
            match text.char_indices().nth(LONGEST) {
                Some((at, _)) => {
                    format!("{}… ({} bytes)", text.get(..at).unwrap_or_default(), value.len())
                }
                None => text,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked() {
        assert_eq!(masked("abc"), "****");
        assert_eq!(masked("8e03978e-40d5"), "8e03**** (13 characters)");
    }
}
