//! The rules of one route. The defaults of a route stand here, and nowhere else.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use oncegate_core::{OnUnknown, Operation};

use super::{
    CheckedRoute, DAY, HOUR, MILLIS_10, References, SECOND, UPSTREAM_TIMEOUT_BOUNDS, bounded, spell,
};
use crate::document::{FingerprintDocument, MatchDocument, RouteDocument, SettleDocument};
use crate::error::Place;
use crate::headers::ReplayDrop;
use crate::matcher::RouteMatch;
use crate::policy::{
    FingerprintMode, FingerprintRule, Guard, InFlight, MissingKey, Mode, OnPluginError,
    OnStoreError, Route, SAFE_METHODS, ScopeSource, Upstream,
};
use crate::reader::{At, Field, Keys, List, Report, listed, unknown};
use crate::scalar::{BodyMode, ForwardAs, Method, Size};
use crate::settle::{Meaning, SettleTable, StatusPattern};

const RETENTION: Duration = DAY;
const RETENTION_BOUNDS: (Duration, Duration) = (SECOND, Duration::from_secs(90 * 86_400));
const LEASE: Duration = Duration::from_secs(30);
const LEASE_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), HOUR);
const WAIT_BOUNDS: (Duration, Duration) = (MILLIS_10, Duration::from_secs(300));
const ANSWER_WITHIN_BOUNDS: (Duration, Duration) = (MILLIS_10, HOUR);
const IN_FLIGHT_STATUS: u16 = 409;
const IN_FLIGHT_STATUSES: &[u16] = &[409, 423, 425, 429];
const FORWARD_AS: &str = "Idempotency-Key";
const BODY_BYTES: usize = 1 << 20;
const BODY_BYTES_MAX: usize = 64 << 20;

/// Keys that a route may have without being guarded.
const PLAIN_KEYS: &[&str] = &["operation", "match", "upstream", "upstream_timeout", "key"];

/// Checks one route against what it refers to.
pub(super) fn check(
    document: At<RouteDocument>,
    references: &References,
    report: &Report,
) -> CheckedRoute {
    let At { value: mut document, place } = document;
    let guarded = is_guarded(&document, &place, report);
    let operation = take(&mut document.operation).required(report, &place, "operation", "");
    let matching = take(&mut document.matching).required(report, &place, "match", "");
    let matcher = matching.and_then(|matching| matcher(matching, guarded, report));
    let upstream = take(&mut document.upstream).required(report, &place, "upstream", "");
    let upstream = upstream.and_then(|name| references.upstream(&name, report));
    let own_timeout =
        bounded(take(&mut document.upstream_timeout), &UPSTREAM_TIMEOUT_BOUNDS, report);
    let upstream_timeout = own_timeout.or(upstream.as_ref().map(|u| u.timeout));
    let guard = guarded.then(|| guard(document, &place, upstream_timeout, references, report));
    let route = build(&operation, &matcher, upstream, upstream_timeout, guard);
    CheckedRoute { place, operation, guarded, matcher, route }
}

fn build(
    operation: &Option<At<Operation>>,
    matcher: &Option<At<RouteMatch>>,
    upstream: Option<Arc<Upstream>>,
    upstream_timeout: Option<Duration>,
    guard: Option<Option<Guard>>,
) -> Option<Route> {
    Some(Route {
        operation: operation.as_ref()?.value.clone(),
        matcher: matcher.as_ref()?.value.clone(),
        upstream: upstream?,
        upstream_timeout: upstream_timeout?,
        guard: match guard {
            Some(guard) => Some(guard?),
            None => None,
        },
    })
}

/// A route is guarded when it lists plugins. One that lists none, yet sets what only a guard
/// has, is a route that somebody believes to be guarded.
fn is_guarded(document: &RouteDocument, place: &Place, report: &Report) -> bool {
    let asks_plugins = match &document.key {
        Field::Absent => false,
        Field::Broken => true,
        Field::Given(plugins) => !plugins.value.is_empty,
    };
    let written = document.written().into_iter();
    let guards: Vec<&str> = written.filter(|key| !PLAIN_KEYS.contains(key)).collect();
    if !asks_plugins && !guards.is_empty() {
        report.problem(
            &place.member("key", place.origin.clone()),
            format!(
                "is required, since the route sets {}: without `key` it would be forwarded unguarded",
                listed(&guards)
            ),
        );
        return true;
    }
    asks_plugins
}

/// `None` when some part is broken: half a matcher would seem to clash with other routes.
fn matcher(matching: At<MatchDocument>, guarded: bool, report: &Report) -> Option<At<RouteMatch>> {
    let At { value: document, place } = matching;
    let path = document.path.required(report, &place, "path", "");
    let methods = methods(document.methods, guarded, report);
    let host = match document.host {
        Field::Absent => None,
        Field::Broken => return None,
        Field::Given(host) => Some(host.value.0),
    };
    Some(At { value: RouteMatch { host, methods: methods?, path: path?.value }, place })
}

fn methods(field: Field<List<At<Method>>>, guarded: bool, report: &Report) -> Option<Vec<String>> {
    let methods = match field {
        Field::Absent => return Some(Vec::new()),
        Field::Broken => return None,
        Field::Given(methods) => methods,
    };
    if methods.value.is_empty {
        report.problem(&methods.place, "must list a method; leave it out to take any");
    }
    for method in methods.value.items.iter().filter(|_| guarded) {
        check_unsafe(method, report);
    }
    let names = methods.value.items.into_iter().map(|method| method.value.0);
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then_some(names)
}

fn check_unsafe(method: &At<Method>, report: &Report) {
    if SAFE_METHODS.contains(&method.value.0.as_str()) {
        report.problem(
            &method.place,
            format!(
                "must not be {} on a route with `key`: a safe method is never reserved; give it a route of its own without `key`",
                method.value.0
            ),
        );
    }
}

impl References {
    fn upstream(&self, name: &At<String>, report: &Report) -> Option<Arc<Upstream>> {
        match self.upstreams.get(&name.value) {
            Some((_, upstream)) => upstream.clone(),
            None => {
                let known: Vec<&str> = self.upstreams.keys().map(String::as_str).collect();
                self.undefined("upstream", name, &known, report);
                None
            }
        }
    }

    fn undefined(&self, kind: &str, name: &At<String>, known: &[&str], report: &Report) {
        if self.complete {
            let what = format!("names an undefined {kind} {:?}", name.value);
            report.problem(&name.place, unknown(&what, &name.value, known));
        }
    }

    /// The plugins of a route, each once.
    fn plugins(&self, names: Vec<At<String>>, report: &Report) -> Vec<String> {
        let mut plugins: Vec<String> = Vec::new();
        for name in names {
            if !self.plugins.contains_key(&name.value) {
                let known: Vec<&str> = self.plugins.keys().map(String::as_str).collect();
                self.undefined("plugin", &name, &known, report);
            }
            if plugins.contains(&name.value) {
                report.problem(&name.place, format!("asks {:?} twice", name.value));
            }
            plugins.push(name.value);
        }
        plugins
    }
}

/// The guard of a route; `None` when its scope is not known.
fn guard(
    document: RouteDocument,
    place: &Place,
    upstream_timeout: Option<Duration>,
    references: &References,
    report: &Report,
) -> Option<Guard> {
    let kept = kept(
        document.retention,
        document.retention_max,
        document.client_retries_for,
        place,
        report,
    );
    let guard = Guard {
        plugins: references.plugins(document.key.items(), report),
        missing_key: document.missing_key.or(MissingKey::Reject),
        // Replaced below, once everything else has been checked.
        scope: ScopeSource::Shared,
        fingerprint: fingerprint(document.fingerprint.value(), report),
        retention: kept.retention,
        retention_max: kept.max,
        client_retries_for: kept.client_retries_for,
        lease: bounded(document.lease, &LEASE_BOUNDS, report).unwrap_or(LEASE),
        answer_within: answer_within(document.answer_within, upstream_timeout, report),
        in_flight: in_flight(document.in_flight, report),
        in_flight_status: in_flight_status(document.in_flight_status, report),
        settle: settle(document.settle.value(), report),
        on_unknown: document.on_unknown.or(OnUnknown::Hold),
        on_store_error: document.on_store_error.or(OnStoreError::Reject),
        on_plugin_error: document.on_plugin_error.or(OnPluginError::Reject),
        forward_as: document.forward_as.or(ForwardAs(Some(FORWARD_AS.to_owned()))).0,
        forward_fence: document.forward_fence.or(false),
        two_phase: document.two_phase.or(false),
        max_body: size(document.max_body, report),
        max_answer: size(document.max_answer, report),
        replay_drop: ReplayDrop::new(
            document.replay_drop.items(),
            document.replay_keep.items().into_iter().map(|header| header.0).collect(),
        ),
        mode: document.mode.or(Mode::Enforce),
    };
    let scope = scope(document.scope, place, report)?;
    Some(Guard { scope, ..guard })
}

/// Whose keys they are must be said: a forgotten scope would hand one tenant's answers to
/// another that happens to send the same key.
fn scope(field: Field<ScopeSource>, place: &Place, report: &Report) -> Option<ScopeSource> {
    let why = " on a route with `key`: { header = \"…\" } names whose keys they are; \"shared\" says that all clients share one set";
    let scope = field.required(report, place, "scope", why)?;
    if let ScopeSource::Header(name) = &scope.value {
        match name.as_str() {
            "authorization" => report.warn(
                &scope.place,
                "a refreshed token is another scope: a retry that carries it runs the operation again",
            ),
            "forwarded" | "x-forwarded-for" | "x-real-ip" => report.warn(
                &scope.place,
                "clients behind one address share a scope, and a client may choose the header unless a proxy in front sets it",
            ),
            "cookie" => report.warn(
                &scope.place,
                "any cookie that changes makes another scope: a retry that carries it runs the operation again",
            ),
            _ => {}
        }
    }
    Some(scope.value)
}

struct Kept {
    retention: Duration,
    max: Duration,
    client_retries_for: Option<Duration>,
}

fn kept(
    retention: Field<Duration>,
    max: Field<Duration>,
    client_retries_for: Field<Duration>,
    place: &Place,
    report: &Report,
) -> Kept {
    let own = |key: &str| place.member(key, place.origin.clone());
    let absent = retention.is_absent();
    let written = bounded(retention, &RETENTION_BOUNDS, report);
    let client_retries_for = bounded(client_retries_for, &RETENTION_BOUNDS, report);
    let max = bounded(max, &RETENTION_BOUNDS, report);
    let retention = written.unwrap_or(RETENTION);
    // What is compared must be what was meant.
    let known = absent || written.is_some();
    if let Some(retries) = client_retries_for.filter(|retries| known && *retries > retention) {
        report.problem(
            &own("retention"),
            format!(
                "must be at least `client_retries_for` ({}), not {}: a client that still retries after the record is gone runs the operation again",
                spell(retries),
                spell(retention)
            ),
        );
    }
    if let Some(max) = max.filter(|max| known && *max < retention) {
        report.problem(
            &own("retention_max"),
            format!("must be at least `retention` ({}), not {}", spell(retention), spell(max)),
        );
    }
    let max = max.unwrap_or(retention);
    Kept { retention, max, client_retries_for }
}

fn answer_within(
    field: Field<Duration>,
    upstream_timeout: Option<Duration>,
    report: &Report,
) -> Option<Duration> {
    let place = match &field {
        Field::Given(at) => at.place.clone(),
        Field::Absent | Field::Broken => return None,
    };
    let patience = bounded(field, &ANSWER_WITHIN_BOUNDS, report)?;
    if let Some(timeout) = upstream_timeout.filter(|timeout| *timeout <= patience) {
        report.problem(
            &place,
            format!(
                "must be shorter than the upstream's time-out ({}), or it never passes",
                spell(timeout)
            ),
        );
    }
    Some(patience)
}

fn in_flight(field: Field<InFlight>, report: &Report) -> InFlight {
    match field.given() {
        None => InFlight::Conflict,
        Some(At { value: InFlight::Conflict, .. }) => InFlight::Conflict,
        Some(At { value: InFlight::Wait(wait), place }) => {
            let origin = place.origin.clone();
            let wait = Field::Given(At { value: wait, place: place.member("wait", origin) });
            bounded(wait, &WAIT_BOUNDS, report).map_or(InFlight::Conflict, InFlight::Wait)
        }
    }
}

fn in_flight_status(field: Field<u16>, report: &Report) -> u16 {
    let Some(at) = field.given() else { return IN_FLIGHT_STATUS };
    if !IN_FLIGHT_STATUSES.contains(&at.value) {
        report.problem(&at.place, format!("must be 409, 423, 425 or 429, not {}", at.value));
    }
    at.value
}

fn size(field: Field<Size>, report: &Report) -> usize {
    let Some(at) = field.given() else { return BODY_BYTES };
    if !(1..=BODY_BYTES_MAX).contains(&at.value.0) {
        report.problem(&at.place, format!("must be from 1 byte to 64MiB, not {}", at.value.0));
    }
    at.value.0
}

fn fingerprint(document: Option<FingerprintDocument>, report: &Report) -> FingerprintRule {
    let Some(document) = document else {
        return FingerprintRule { mode: FingerprintMode::Raw, headers: Vec::new() };
    };
    let broken = matches!(document.mode, Field::Broken);
    let mode = document.mode.or(BodyMode::Raw);
    let ignore = document.ignore.given();
    if let Some(ignore) = ignore.as_ref().filter(|_| mode != BodyMode::Json && !broken) {
        report.problem(&ignore.place, "is for mode = \"json\" only");
    }
    let headers = document.headers.items().into_iter().map(|header| header.0);
    let mut headers: Vec<String> = headers.collect();
    headers.sort();
    headers.dedup();
    let mode = match mode {
        BodyMode::Raw => FingerprintMode::Raw,
        BodyMode::Multipart => FingerprintMode::Multipart,
        BodyMode::Json => {
            FingerprintMode::Json { ignore: ignore.map(|at| at.value.items).unwrap_or_default() }
        }
    };
    FingerprintRule { mode, headers }
}

fn settle(document: Option<SettleDocument>, report: &Report) -> SettleTable {
    let Some(document) = document else { return SettleTable::new(Vec::new(), true) };
    let lists = [
        (document.store, "store", Meaning::Store),
        (document.release, "release", Meaning::Release),
        (document.unknown, "unknown", Meaning::Unknown),
    ];
    let mut written: Vec<(StatusPattern, Meaning)> = Vec::new();
    let mut lists_of: Vec<&str> = Vec::new();
    for (list, name, meaning) in lists {
        for entry in list.items() {
            check_release(&entry, meaning, report);
            let pattern = entry.value;
            match written.iter().position(|(other, _)| *other == pattern) {
                Some(first) if written[first].1 != meaning => {
                    report.problem(&entry.place, format!("stands in `{}` as well", lists_of[first]))
                }
                Some(_) => {}
                None => {
                    written.push((pattern, meaning));
                    lists_of.push(name);
                }
            }
        }
    }
    SettleTable::new(written, document.keep.or(true))
}

/// To release is to say "not executed". Of a success that is never true, nor of a redirect, which
/// is how a form's POST succeeds; of some failures seldom.
fn check_release(entry: &At<StatusPattern>, meaning: Meaning, report: &Report) {
    if meaning != Meaning::Release {
        return;
    }
    if (200..300).any(|status| entry.value.covers(status)) {
        report.problem(
            &entry.place,
            "must not be a success: the operation was executed, and a retry would run it again; to keep no answer set `keep = false`",
        );
    }
    if (300..400).any(|status| entry.value.covers(status)) {
        report.problem(
            &entry.place,
            "must not be a redirect: a request that succeeded may answer so (POST, then 303), and a retry would run it again; to keep no answer set `keep = false`",
        );
    }
    if [500, 502, 504].iter().any(|status| entry.value.covers(*status)) {
        report.warn(
            &entry.place,
            "an upstream that fails after it did the work gives this status too, and a retry then runs it again",
        );
    }
}
