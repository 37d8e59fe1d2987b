//! The rules of the settings, after files and environment were merged.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use figment::Figment;
use figment::value::{Dict, Value};

use super::{DAY, HOUR, MILLIS_10, bounded};
use crate::document::{
    AdminDocument, DrainDocument, ListenerDocument, PluginLimitsDocument, ProblemsDocument,
    SECTIONS, SecretsDocument, StoreDocument,
};
use crate::error::Place;
use crate::reader::{At, Field, Named, Node, Read, Report};
use crate::scalar::{Size, StoreUrl, check_name};
use crate::secret::Secret;
use crate::settings::{
    Admin, Drain, Listener, PluginLimits, ProblemPages, Secrets, Settings, Store,
};

/// What can be guessed is no secret.
const SECRET_BYTES_MIN: usize = 16;
const TIMEOUT_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), HOUR);
const STORE_TIMEOUT_BOUNDS: (Duration, Duration) = (MILLIS_10, Duration::from_secs(30));
const WALL_TIME_BOUNDS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(10));
const CONNECTIONS_MAX: usize = 1_000_000;
const MEMORY_BOUNDS: (usize, usize) = (1 << 20, 1 << 30);

/// Reads every section; `None` when one is broken, which has been reported.
pub(crate) fn check(layers: &Figment, report: &Report) -> Option<Settings> {
    let find = |name: &&str| Some(((*name).to_owned(), layers.find_value(name).ok()?));
    let sections = Value::from(SECTIONS.iter().filter_map(find).collect::<Dict>());
    let root = Node { value: &sections, place: Place::program(""), report, layers: Some(layers) };
    let members: BTreeMap<&str, Node<'_>> = root.members()?.into_iter().collect();
    let listener = section(&members, "listener").map(|document| listener(document, report));
    let admin = section(&members, "admin").map(|document| admin(document, report));
    let store = section(&members, "store").map(|document| store(document, report));
    let drain = section(&members, "drain").map(|document| drain(document, report));
    let secrets = section(&members, "secrets").map(|document| secrets(document, report));
    let limits = section(&members, "plugin_limits").map(|document| limits(document, report));
    let problems = section(&members, "problems").map(problem_pages);
    let (listener, admin) = (listener??, admin??);
    check_addresses(&listener.address, &admin.address, report);
    Some(Settings {
        listener: listener.value,
        admin: admin.value,
        store: store??,
        drain: drain??,
        secrets: secrets?,
        plugin_limits: limits??,
        problems: problems?,
    })
}

fn section<T: Read>(members: &BTreeMap<&str, Node<'_>>, name: &str) -> Option<T> {
    members.get(name).and_then(T::read)
}

/// A value together with where its address was written, for the check between two of them.
struct Addressed<T> {
    value: T,
    address: At<SocketAddr>,
}

fn listener(document: ListenerDocument, report: &Report) -> Option<Addressed<Listener>> {
    let timeout = |field| bounded(field, &TIMEOUT_BOUNDS, report);
    let first_byte_timeout = timeout(document.first_byte_timeout);
    let header_timeout = timeout(document.header_timeout);
    let body_timeout = timeout(document.body_timeout);
    let max_connections = document.max_connections.given();
    if let Some(at) =
        max_connections.as_ref().filter(|at| !(1..=CONNECTIONS_MAX).contains(&at.value))
    {
        report.problem(&at.place, format!("must be from 1 to {CONNECTIONS_MAX}, not {}", at.value));
    }
    let address = document.address.given()?;
    let value = Listener {
        address: address.value,
        first_byte_timeout: first_byte_timeout?,
        header_timeout: header_timeout?,
        body_timeout: body_timeout?,
        max_connections: max_connections?.value,
    };
    Some(Addressed { value, address })
}

fn admin(document: AdminDocument, report: &Report) -> Option<Addressed<Admin>> {
    let address = document.address.given()?;
    if document.token.is_absent() && !address.value.ip().is_loopback() {
        report.problem(
            &address.place,
            "must be a loopback address unless a token is set (`token`, or ONCEGATE_ADMIN__TOKEN)",
        );
    }
    let token = document.token.given();
    if let Some(token) = &token {
        check_secret(token, report);
    }
    let value = Admin { address: address.value, token: token.map(|at| at.value) };
    Some(Addressed { value, address })
}

fn check_secret(secret: &At<Secret<String>>, report: &Report) {
    if secret.value.expose().len() < SECRET_BYTES_MIN {
        report.problem(
            &secret.place,
            format!(
                "must have at least {SECRET_BYTES_MIN} bytes: what can be guessed is no secret"
            ),
        );
    }
}

/// Port 0 asks the system for a free one, so it never collides.
fn check_addresses(listener: &At<SocketAddr>, admin: &At<SocketAddr>, report: &Report) {
    let (one, other) = (listener.value, admin.value);
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    if one.port() == other.port() && one.port() != 0 && (any || one.ip() == other.ip()) {
        report.problem(
            &admin.place,
            format!("must not be where clients connect ({one}): clients would reach the admin API"),
        );
    }
}

fn store(document: StoreDocument, report: &Report) -> Option<Store> {
    let url = document.url.given();
    let timeout = bounded(document.timeout, &STORE_TIMEOUT_BOUNDS, report);
    let (username, password) = (document.username.given(), document.password.given());
    let ca_file = document.ca_file.given();
    let is_redis = url.as_ref().map(|url| matches!(url.value, StoreUrl::Redis(_)));
    let is_tls = url.as_ref().map(|url| match &url.value {
        StoreUrl::Redis(url) => url.starts_with("rediss://"),
        StoreUrl::Embedded(_) => false,
    });
    let for_redis = [username.as_ref().map(|at| &at.place), password.as_ref().map(|at| &at.place)];
    for place in for_redis.into_iter().flatten().filter(|_| is_redis == Some(false)) {
        report.problem(place, "is for a Redis store only");
    }
    if let Some(at) = ca_file.as_ref().filter(|_| is_tls == Some(false)) {
        report.problem(&at.place, "is for a rediss:// store only");
    }
    Some(Store {
        url: url?.value,
        namespace: document.namespace.value()?.0,
        timeout: timeout?,
        username: username.map(|at| at.value),
        password: password.map(|at| at.value),
        ca_file: ca_file.map(|at| super::beside(&at.place, at.value.as_ref())),
        allow_eviction: document.allow_eviction.value()?,
    })
}

fn drain(document: DrainDocument, report: &Report) -> Option<Drain> {
    let deadline = bounded(document.deadline, &(Duration::ZERO, DAY), report)?;
    Some(Drain { deadline })
}

fn secrets(document: SecretsDocument, report: &Report) -> Secrets {
    let mut secrets = Secrets::default();
    let Named(entries) = document;
    for (name, place, secret) in entries {
        if let Err(rule) = check_name(&name) {
            report.problem(&place, rule);
        }
        let Some(value) = secret else { continue };
        if name == "fingerprint" {
            let at = At { value, place };
            check_secret(&at, report);
            secrets.fingerprint = Some(at.value);
        } else {
            secrets.named.insert(name, value);
        }
    }
    secrets
}

fn limits(document: PluginLimitsDocument, report: &Report) -> Option<PluginLimits> {
    let wall_time = bounded(document.wall_time, &WALL_TIME_BOUNDS, report);
    let memory = match document.memory {
        Field::Given(at) => Some(at),
        Field::Absent | Field::Broken => None,
    };
    let (least, most) = MEMORY_BOUNDS;
    if let Some(At { value: Size(bytes), place }) =
        memory.as_ref().filter(|at| !(least..=most).contains(&at.value.0))
    {
        report.problem(place, format!("must be from 1MiB to 1GiB, not {bytes}"));
    }
    Some(PluginLimits { memory: memory?.value.0, wall_time: wall_time? })
}

fn problem_pages(document: ProblemsDocument) -> ProblemPages {
    ProblemPages { base_url: document.base_url.value().map(|url| url.0) }
}
