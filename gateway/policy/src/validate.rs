//! From what files say to what the gateway runs on.
//!
//! Every check runs, whatever the ones before it found, so that all problems come out at once.
//! A field that is broken has been reported where it was read and takes its default here: the
//! result is thrown away in the end, but its neighbours are still checked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use oncegate_core::Operation;

use crate::document::{FileDocument, PluginDocument, UpstreamDocument};
use crate::error::Place;
use crate::matcher::{Matcher, RouteMatch};
use crate::policy::{Component, PluginSpec, Route, Upstream};
use crate::reader::{At, Field, Report};
use crate::scalar::check_name;

mod route;
pub(crate) mod settings;

/// Upstreams, plugins and routes of all files together.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) upstreams: BTreeMap<String, Arc<Upstream>>,
    pub(crate) plugins: BTreeMap<String, PluginSpec>,
    pub(crate) routes: Vec<Route>,
}

/// What files define under names. A broken definition is still a definition.
type Defined<T> = BTreeMap<String, (Place, Option<T>)>;

/// What a route may refer to.
pub(crate) struct References {
    upstreams: Defined<Arc<Upstream>>,
    plugins: Defined<PluginSpec>,
    /// Whether every file could be read. If not, what seems undefined may be in the other file.
    complete: bool,
}

/// Checks everything but the settings. `complete` is false when some file could not be read.
pub(crate) fn policy(files: Vec<FileDocument>, complete: bool, report: &Report) -> Checked {
    let mut references =
        References { upstreams: Defined::new(), plugins: Defined::new(), complete };
    let mut routes = Vec::new();
    let mut any_route = false;
    for file in files {
        define(file.upstreams, &mut references.upstreams, report, upstream);
        define(file.plugins, &mut references.plugins, report, plugin);
        any_route |= match &file.routes {
            Field::Absent => false,
            Field::Broken => true,
            Field::Given(list) => !list.value.is_empty,
        };
        routes.extend(file.routes.items());
    }
    if complete && !any_route {
        report.problem(&Place::program("route"), "is required: no file defines a `[[route]]`");
    }
    let routes: Vec<CheckedRoute> =
        routes.into_iter().map(|document| route::check(document, &references, report)).collect();
    check_clashes(&routes, report);
    check_operations(&routes, report);
    warn_of_other_hosts(&routes, report);
    let routes: Vec<Route> = routes.into_iter().filter_map(|checked| checked.route).collect();
    warn_of_unused(&references, &routes, report);
    Checked { upstreams: sound(references.upstreams), plugins: sound(references.plugins), routes }
}

/// Adds the definitions of one file, refusing a name that an earlier file has taken.
fn define<D, T>(
    entries: Field<crate::reader::Named<D>>,
    defined: &mut Defined<T>,
    report: &Report,
    build: impl Fn(&str, &Place, D, &Report) -> Option<T>,
) {
    for (name, place, document) in entries.value().map(|named| named.0).unwrap_or_default() {
        if let Err(rule) = check_name(&name) {
            report.problem(&place, rule);
        }
        let value = document.and_then(|document| build(&name, &place, document, report));
        if let Some((first, _)) = defined.get(&name) {
            report.problem(&place, format!("is defined twice, first as {first}"));
            continue;
        }
        defined.insert(name, (place, value));
    }
}

fn sound<T>(defined: Defined<T>) -> BTreeMap<String, T> {
    let sound = |(name, (_, value)): (String, (Place, Option<T>))| Some((name, value?));
    defined.into_iter().filter_map(sound).collect()
}

fn upstream(
    name: &str,
    place: &Place,
    document: UpstreamDocument,
    report: &Report,
) -> Option<Arc<Upstream>> {
    const TIMEOUT: Duration = Duration::from_secs(30);
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
    let timeout = bounded(document.timeout, &UPSTREAM_TIMEOUT_BOUNDS, report).unwrap_or(TIMEOUT);
    let connect_timeout =
        bounded(document.connect_timeout, &(MILLIS_10, MINUTE), report).unwrap_or(CONNECT_TIMEOUT);
    let endpoints = document.endpoints.required(report, place, "endpoints", "")?;
    if endpoints.value.is_empty {
        report.problem(&endpoints.place, "must name at least one endpoint");
    }
    let mut seen = BTreeSet::new();
    for endpoint in &endpoints.value.items {
        if !seen.insert(&endpoint.value) {
            report.problem(&endpoint.place, format!("repeats {}", endpoint.value));
        }
    }
    Some(Arc::new(Upstream {
        name: name.to_owned(),
        endpoints: endpoints.value.items.into_iter().map(|at| at.value).collect(),
        timeout,
        connect_timeout,
        turn: AtomicUsize::new(0),
    }))
}

fn plugin(
    name: &str,
    place: &Place,
    document: PluginDocument,
    report: &Report,
) -> Option<PluginSpec> {
    let sha256 = document.sha256.given();
    let component = document.component.required(report, place, "component", "")?;
    if let (Component::Builtin(_), Some(pin)) = (&component.value, &sha256) {
        report.problem(&pin.place, "is for .wasm files; a built-in comes with the gateway");
    }
    Some(PluginSpec {
        name: name.to_owned(),
        component: match component.value {
            Component::Builtin(name) => Component::Builtin(name),
            Component::File(path) => Component::File(beside(&component.place, &path)),
        },
        config_json: document.config.value().map_or_else(|| "{}".to_owned(), |text| text.0),
        sha256: sha256.map(|pin| pin.value.0),
        declared_in: place.file().unwrap_or_default(),
    })
}

/// A path that a file names is relative to that file, so that a policy directory can be moved.
fn beside(place: &Place, path: &Path) -> std::path::PathBuf {
    match place.file().as_deref().and_then(Path::parent) {
        Some(directory) => directory.join(path),
        None => path.to_path_buf(),
    }
}

/// A route as far as it could be understood, for the checks between routes.
pub(crate) struct CheckedRoute {
    place: Place,
    operation: Option<At<Operation>>,
    guarded: bool,
    matcher: Option<At<RouteMatch>>,
    route: Option<Route>,
}

impl CheckedRoute {
    /// For a sentence about this route: "`create-payment` (`route[0]` in a.toml)".
    fn named(&self) -> String {
        match &self.operation {
            Some(operation) => format!("`{}` ({})", operation.value, self.place),
            None => self.place.to_string(),
        }
    }
}

fn check_clashes(routes: &[CheckedRoute], report: &Report) {
    let with_matcher = |route| {
        let route: &CheckedRoute = route;
        route.matcher.as_ref().map(|matcher| (route, matcher))
    };
    let known: Vec<_> = routes.iter().filter_map(with_matcher).collect();
    for clash in Matcher::clashes(known.iter().map(|(_, matcher)| &matcher.value)) {
        let (first, _) = known[clash.first];
        let (_, matcher) = known[clash.second];
        report.problem(
            &matcher.place,
            format!("takes requests that {} takes already", first.named()),
        );
    }
}

/// The operation is part of a record's identity, so two routes with one operation would answer
/// each other's requests.
fn check_operations(routes: &[CheckedRoute], report: &Report) {
    let mut taken: HashMap<&Operation, &CheckedRoute> = HashMap::new();
    for route in routes.iter().filter(|route| route.guarded) {
        let Some(operation) = &route.operation else { continue };
        match taken.get(&operation.value) {
            None => {
                taken.insert(&operation.value, route);
            }
            Some(first) => report.problem(
                &operation.place,
                format!(
                    "must not be shared with {}: the two routes would share their records",
                    first.named()
                ),
            ),
        }
    }
}

/// A guard that is bound to a host is no guard when the same upstream can be reached past it by
/// sending another one: most upstreams do not look at the host.
fn warn_of_other_hosts(routes: &[CheckedRoute], report: &Report) {
    // Methods that no list may have left out; the last one stands for all that no list has.
    const METHODS: &[&str] = &["POST", "PUT", "PATCH", "DELETE", "{}"];
    let known: Vec<(&CheckedRoute, &Route)> =
        routes.iter().filter_map(|checked| Some((checked, checked.route.as_ref()?))).collect();
    let matcher = Matcher::new(known.iter().map(|(_, route)| &route.matcher));
    let takes = |index: usize, host: &str, method: &str, path: &str| {
        matcher.find(host, method, path) == Some(index)
    };
    let open: Vec<usize> = (0..known.len())
        .filter(|n| known[*n].1.guard.is_none() && known[*n].1.matcher.host.is_none())
        .collect();
    for (n, (checked, guarded)) in known.iter().enumerate() {
        let (Some(host), Some(at)) = (&guarded.matcher.host, &checked.matcher) else { continue };
        if guarded.guard.is_none() {
            continue;
        }
        let past = open.iter().find(|m| {
            let route = known[**m].1;
            let path = match reaches_same(&route.upstream, &guarded.upstream) {
                true => guarded.matcher.path.common(&route.matcher.path),
                false => None,
            };
            let written = guarded.matcher.methods.iter().chain(&route.matcher.methods);
            let mut methods = written.map(String::as_str).chain(METHODS.iter().copied());
            path.is_some_and(|path| {
                methods.any(|method| {
                    guarded.guard_for(method).is_some()
                        && takes(n, host, method, &path)
                        && takes(**m, "", method, &path)
                })
            })
        });
        if let Some(past) = past {
            report.warn(
                &at.place,
                format!(
                    "does not guard {} against a request with another `Host`: that takes {}, which is not guarded and goes to the same upstream; leave out the host here or give one to the other",
                    checked.named(),
                    known[*past].0.named()
                ),
            );
        }
    }
}

fn reaches_same(a: &Upstream, b: &Upstream) -> bool {
    a.endpoints.iter().any(|endpoint| b.endpoints.contains(endpoint))
}

fn warn_of_unused(references: &References, routes: &[Route], report: &Report) {
    let upstreams: BTreeSet<&str> = routes.iter().map(|r| r.upstream.name.as_str()).collect();
    let guards = routes.iter().filter_map(|route| route.guard.as_ref());
    let plugins: BTreeSet<&str> =
        guards.flat_map(|guard| guard.plugins.iter().map(String::as_str)).collect();
    for (name, (place, _)) in &references.upstreams {
        if !upstreams.contains(name.as_str()) {
            report.warn(place, "is not used by any route");
        }
    }
    for (name, (place, _)) in &references.plugins {
        if !plugins.contains(name.as_str()) {
            report.warn(place, "is not used by any route");
        }
    }
}

const MILLIS_10: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Of an upstream, and of a route that sets its own.
const UPSTREAM_TIMEOUT_BOUNDS: (Duration, Duration) = (MILLIS_10, HOUR);

/// The value, if it was given and lies within the bounds (both allowed).
fn bounded(
    field: Field<Duration>,
    bounds: &(Duration, Duration),
    report: &Report,
) -> Option<Duration> {
    let at = field.given()?;
    let (least, most) = *bounds;
    if (least..=most).contains(&at.value) {
        return Some(at.value);
    }
    let rule = format!("must be from {} to {}, not {}", spell(least), spell(most), spell(at.value));
    report.problem(&at.place, rule);
    None
}

/// A duration in its largest whole unit. (Humantime's own form of 90 days counts in months.)
fn spell(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];
    let whole = units.iter().find(|(unit, _)| {
        millis > 0 && duration.subsec_nanos() == 0 && millis.is_multiple_of(unit.as_millis())
    });
    match whole {
        Some((unit, name)) => format!("{}{name}", millis / unit.as_millis()),
        None if duration.is_zero() => "0s".to_owned(),
        None => humantime::format_duration(duration).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_spelled_in_its_largest_whole_unit() {
        for (millis, expected) in
            [(0, "0s"), (250, "250ms"), (1_500, "1s 500ms"), (90_000, "90s"), (120_000, "2m")]
        {
            assert_eq!(spell(Duration::from_millis(millis)), expected);
        }
        assert_eq!(spell(DAY * 90), "90d");
        assert_eq!(spell(HOUR * 25), "25h");
    }
}
