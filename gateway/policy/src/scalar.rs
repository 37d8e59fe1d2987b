//! What a single value may say: durations, sizes, addresses, names, choices.
//!
//! A rule that needs one value only is checked here; a rule that needs two is in
//! [`crate::validate`].

use std::net::SocketAddr;
use std::time::Duration;

use figment::value::Value;
use oncegate_core::{OnUnknown, Operation};

use crate::headers::{CONNECTION_HEADERS, HeaderPattern, header_name, is_token_byte};
use crate::matcher::{PathPattern, normalise_host};
use crate::policy::{
    BUILTINS, Component, Endpoint, InFlight, JsonPointer, MissingKey, Mode, OnPluginError,
    OnStoreError, ScopeSource,
};
use crate::reader::{Node, Read, TOML_DATE, table, unknown};
use crate::secret::Secret;
use crate::settle::StatusPattern;

/// Reads text and parses it; the parser's error is the whole rule.
fn parsed<T>(
    node: &Node<'_>,
    wanted: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let Some(text) = node.value.as_str() else { return node.mismatch(wanted) };
    parse(text).map_or_else(|rule| node.refuse(rule), Some)
}

impl Read for String {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "text", |text| match text.is_empty() {
            true => Err("must not be empty".to_owned()),
            false => Ok(text.to_owned()),
        })
    }
}

/// In the environment everything is text; in a file a truth value is written as one.
impl Read for bool {
    fn read(node: &Node<'_>) -> Option<Self> {
        match (node.value, node.value.as_str()) {
            (Value::Bool(_, value), _) => Some(*value),
            (_, Some("true")) if node.is_variable() => Some(true),
            (_, Some("false")) if node.is_variable() => Some(false),
            _ => node.mismatch("true or false"),
        }
    }
}

fn whole_number(node: &Node<'_>) -> Option<u128> {
    match node.value {
        Value::Num(_, number) => match (number.to_u128(), number.to_i128()) {
            (Some(number), _) => Some(number),
            (None, Some(number)) => u128::try_from(number).ok(),
            (None, None) => None,
        },
        Value::String(_, text) if node.is_variable() => text.parse().ok(),
        Value::String(..)
        | Value::Char(..)
        | Value::Bool(..)
        | Value::Empty(..)
        | Value::Dict(..)
        | Value::Array(..) => None,
    }
}

/// A count of something.
impl Read for usize {
    fn read(node: &Node<'_>) -> Option<Self> {
        match whole_number(node).and_then(|number| number.try_into().ok()) {
            Some(number) => Some(number),
            None => node.mismatch("a whole number"),
        }
    }
}

/// An HTTP status.
impl Read for u16 {
    fn read(node: &Node<'_>) -> Option<Self> {
        match whole_number(node).and_then(|number| number.try_into().ok()) {
            Some(number) => Some(number),
            None => node.mismatch("a status such as 409"),
        }
    }
}

impl Read for Duration {
    fn read(node: &Node<'_>) -> Option<Self> {
        const WANTED: &str = "a duration with its unit, such as \"30s\" or \"24h\"";
        match node.value.as_str().map(humantime::parse_duration) {
            Some(Ok(duration)) => Some(duration),
            Some(Err(_)) | None => node.mismatch(WANTED),
        }
    }
}

/// A number of bytes: `65536` or `"64KiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) usize);

impl Read for Size {
    fn read(node: &Node<'_>) -> Option<Self> {
        const WANTED: &str = "a size in bytes, such as 65536, \"64KiB\" or \"1MiB\"";
        let plain = whole_number(node).and_then(|number| usize::try_from(number).ok());
        match plain.or_else(|| node.value.as_str().and_then(parse_size)) {
            Some(bytes) => Some(Self(bytes)),
            None => node.mismatch(WANTED),
        }
    }
}

/// Units of 1024 only: with `MB` people mean either.
fn parse_size(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}

impl Read for SocketAddr {
    fn read(node: &Node<'_>) -> Option<Self> {
        const WANTED: &str = "an IP address and a port, such as \"127.0.0.1:8080\"";
        match node.value.as_str().map(str::parse) {
            Some(Ok(address)) => Some(address),
            Some(Err(_)) | None => node.mismatch(WANTED),
        }
    }
}

/// The rule never repeats the value, not even one of the wrong type.
impl Read for Secret<String> {
    fn read(node: &Node<'_>) -> Option<Self> {
        match node.value.as_str() {
            Some("") => node.refuse("must not be empty"),
            Some(text) => Some(Self::new(text.to_owned())),
            None => node.refuse("must be text"),
        }
    }
}

impl Read for Operation {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "the name of an operation", |text| {
            let rule = |rule: String| {
                format!("{}, not {text:?}", rule.replace("an operation is", "must be"))
            };
            Operation::parse(text).map_err(rule)
        })
    }
}

/// The name of a header, in lower case, other than those of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Header(pub(crate) String);

impl Read for Header {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "the name of a header", |text| {
            let name = header_name(text)?;
            match CONNECTION_HEADERS.contains(&name.as_str()) {
                true => Err(format!("must not be `{name}`, which belongs to the connection")),
                false => Ok(Self(name)),
            }
        })
    }
}

impl Read for HeaderPattern {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "the name of a header", HeaderPattern::parse)
    }
}

impl Read for JsonPointer {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "a JSON pointer such as \"/sent_at\"", JsonPointer::parse)
    }
}

impl Read for PathPattern {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "a path such as \"/v1/payments\"", PathPattern::parse)
    }
}

/// A method, as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Method(pub(crate) String);

impl Read for Method {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "a method such as \"POST\"", |text| {
            if text.is_empty() || text.len() > 32 || !text.bytes().all(is_token_byte) {
                return Err(format!("must be a method such as \"POST\", not {text:?}"));
            }
            match text {
                "CONNECT" => Err("must not be CONNECT, which is not proxied".to_owned()),
                _ if text.bytes().any(|b| b.is_ascii_lowercase()) => Err(format!(
                    "must be in capitals, since methods are case-sensitive: \"{}\"",
                    text.to_ascii_uppercase()
                )),
                _ => Ok(Self(text.to_owned())),
            }
        })
    }
}

/// A host in the form the matcher compares.
#[derive(Clone, Debug)]
pub(crate) struct Host(pub(crate) String);

impl Read for Host {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "a host such as \"api.example.com\"", |text| {
            let host = normalise_host(text);
            let same = host.len() == text.len() || text.strip_suffix('.') == Some(&host);
            match is_host(&host) && same {
                true => Ok(Self(host.into_owned())),
                false => Err(format!(
                    "must be a host without scheme, port, path or `*`, such as \"api.example.com\", not {text:?}"
                )),
            }
        })
    }
}

/// A DNS name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').map(str::parse::<std::net::Ipv6Addr>);
        return matches!(address, Some(Ok(_)));
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    host.len() <= 253 && host.split('.').all(label)
}

impl Read for Endpoint {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "a URL such as \"http://127.0.0.1:9001\"", parse_endpoint)
    }
}

fn parse_endpoint(text: &str) -> Result<Endpoint, String> {
    // Before anything repeats the text: it may hold a password.
    if text.contains('@') {
        return Err("must not hold a user or password".to_owned());
    }
    let refused = || {
        format!("must be \"http://\", a host and maybe a port, and nothing after it, not {text:?}")
    };
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
            return Err("must be an http:// URL: this version does not speak TLS to upstreams, \
                        so an https:// one is refused rather than sent in clear"
                .to_owned());
        }
        Some(_) | None => return Err(refused()),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, parse_port(port)),
        Some(_) | None => (authority, Some(80)),
    };
    match port {
        Some(port) if is_host(host) => Ok(Endpoint { host: host.to_ascii_lowercase(), port }),
        Some(_) | None => Err(refused()),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

/// Resolved against the file that names it by [`crate::validate`].
impl Read for Component {
    fn read(node: &Node<'_>) -> Option<Self> {
        const WANTED: &str = "\"builtin:NAME\" or the path of a .wasm file";
        parsed(node, WANTED, |text| match text.strip_prefix("builtin:") {
            Some(name) if BUILTINS.contains(&name) => Ok(Self::Builtin(name.to_owned())),
            Some(name) => Err(unknown(&format!("has no built-in `{name}`"), name, BUILTINS)),
            None if text.ends_with(".wasm") => Ok(Self::File(text.into())),
            None => Err(format!("must be {WANTED}, not {text:?}")),
        })
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sha256(pub(crate) [u8; 32]);

impl Read for Sha256 {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "64 hexadecimal digits", |text| {
            let digest = oncegate_core::unhex(text).and_then(|bytes| bytes.try_into().ok());
            digest.map(Self).ok_or_else(|| format!("must be 64 hexadecimal digits, not {text:?}"))
        })
    }
}

/// Any table, as JSON text.
#[derive(Clone, Debug)]
pub(crate) struct JsonText(pub(crate) String);

impl Read for JsonText {
    fn read(node: &Node<'_>) -> Option<Self> {
        let Value::Dict(..) = node.value else { return node.mismatch("a table") };
        if let Some(reason) = not_json(node.value) {
            return node.refuse(reason);
        }
        match serde_json::to_string(node.value) {
            Ok(text) => Some(Self(text)),
            Err(error) => node.refuse(format!("cannot be written as JSON: {error}")),
        }
    }
}

/// What JSON has no form for. Writing a date or an infinity as something else in silence would
/// configure the plugin with what nobody wrote.
fn not_json(value: &Value) -> Option<&'static str> {
    match value {
        Value::Dict(_, dict) if dict.contains_key(TOML_DATE) => {
            Some("holds a date, which JSON has not: write it as text")
        }
        Value::Dict(_, dict) => dict.values().find_map(not_json),
        Value::Array(_, items) => items.iter().find_map(not_json),
        Value::Num(_, number) => match number.to_f64() {
            Some(float) if !float.is_finite() => Some("holds a number that JSON has not"),
            Some(_) | None => None,
        },
        Value::String(..) | Value::Char(..) | Value::Bool(..) | Value::Empty(..) => None,
    }
}

impl Read for StatusPattern {
    fn read(node: &Node<'_>) -> Option<Self> {
        const WANTED: &str = "a status from 200 to 599 or a class from \"2xx\" to \"5xx\"";
        if let Some(code) = whole_number(node).and_then(|n| u16::try_from(n).ok()) {
            return match code {
                200..=599 => Some(Self::Code(code)),
                _ => node.mismatch(WANTED),
            };
        }
        match node.value.as_str() {
            Some("2xx") => Some(Self::Class(2)),
            Some("3xx") => Some(Self::Class(3)),
            Some("4xx") => Some(Self::Class(4)),
            Some("5xx") => Some(Self::Class(5)),
            Some(_) | None => node.mismatch(WANTED),
        }
    }
}

/// A value from a short list of words.
fn choice<T: Clone>(node: &Node<'_>, choices: &[(&str, T)], or_else: &str) -> Option<T> {
    let text = node.value.as_str();
    match choices.iter().find(|(name, _)| Some(*name) == text) {
        Some((_, value)) => Some(value.clone()),
        None => {
            let names: Vec<String> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
            let wanted = match names.split_last() {
                Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                Some(_) | None => names.concat(),
            };
            node.mismatch(&format!("{wanted}{or_else}"))
        }
    }
}

macro_rules! choices {
    ($($type:ident { $($name:literal => $variant:ident),* })*) => {$(
        impl Read for $type {
            fn read(node: &Node<'_>) -> Option<Self> {
                choice(node, &[$(($name, $type::$variant)),*], "")
            }
        }
    )*};
}

choices! {
    MissingKey { "reject" => Reject, "forward" => Forward }
    OnUnknown { "hold" => Hold, "retry" => Retry }
    OnStoreError { "reject" => Reject, "forward" => Forward }
    OnPluginError { "reject" => Reject, "next" => Next, "forward" => Forward }
    BodyMode { "raw" => Raw, "json" => Json, "multipart" => Multipart }
}

/// [`crate::policy::FingerprintMode`] without what belongs to one mode only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyMode {
    Raw,
    Json,
    Multipart,
}

impl Read for Mode {
    fn read(node: &Node<'_>) -> Option<Self> {
        match node.value.as_str() {
            Some("shadow") => node.refuse("\"shadow\" is not available in this version"),
            _ => choice(node, &[("enforce", Self::Enforce)], ""),
        }
    }
}

table! {
    /// `in_flight = { wait = "5s" }`
    WaitDocument {
        "wait" => wait: Duration,
    }
}

impl Read for InFlight {
    fn read(node: &Node<'_>) -> Option<Self> {
        if !matches!(node.value, Value::Dict(..)) {
            return choice(node, &[("conflict", Self::Conflict)], " or { wait = \"5s\" }");
        }
        let document = WaitDocument::read(node)?;
        let wait = document.wait.required(node.report, &node.place, "wait", "")?;
        Some(Self::Wait(wait.value))
    }
}

/// Sources of a scope that the design knows and this version does not.
const SCOPES_TO_COME: &[&str] = &["jwt", "client_certificate", "plugin"];

impl Read for ScopeSource {
    fn read(node: &Node<'_>) -> Option<Self> {
        let Value::Dict(_, dict) = node.value else {
            return choice(node, &[("shared", Self::Shared)], " or { header = \"X-Api-Key\" }");
        };
        if let Some(source) = SCOPES_TO_COME.iter().find(|source| dict.contains_key(**source)) {
            return node.refuse(format!(
                "`{source}` is not available in this version; use {{ header = \"…\" }} or \"shared\""
            ));
        }
        let table = node.table(&["header"])?;
        let header = table.field::<Header>("header");
        Some(Self::Header(header.required(node.report, &node.place, "header", "")?.value.0))
    }
}

/// `forward_as`: a header's name as written, or `false` or `"none"`.
#[derive(Clone, Debug)]
pub(crate) struct ForwardAs(pub(crate) Option<String>);

impl Read for ForwardAs {
    fn read(node: &Node<'_>) -> Option<Self> {
        match (node.value, node.value.as_str()) {
            (Value::Bool(_, false), _) | (_, Some("none")) => Some(Self(None)),
            (_, Some(text)) => {
                Header::read(node)?;
                Some(Self(Some(text.to_owned())))
            }
            (_, None) => node.mismatch("the name of a header, or false"),
        }
    }
}

/// A name of an upstream, plugin or secret; it becomes a label in metrics.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    match (1..=64).contains(&name.len()) && name.bytes().all(allowed) {
        true => Ok(()),
        false => Err("must have a name of 1 to 64 letters, digits, `.`, `_` or `-`".to_owned()),
    }
}

/// A namespace of the store: a name that may stand inside a store's key.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(pub(crate) String);

impl Read for Namespace {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "a name", |text| match check_name(text) {
            Ok(()) => Ok(Self(text.to_owned())),
            Err(_) => {
                Err(format!("must be 1 to 64 letters, digits, `.`, `_` or `-`, not {text:?}"))
            }
        })
    }
}

/// Where the records live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// A directory on this machine, relative to the working directory of the gateway.
    Embedded(std::path::PathBuf),
    /// A `redis://` or `rediss://` URL, which holds no credentials and may be logged.
    Redis(String),
}

impl Read for StoreUrl {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "the URL of a store", parse_store_url)
    }
}

fn parse_store_url(text: &str) -> Result<StoreUrl, String> {
    if let Some(directory) = text.strip_prefix("embedded:") {
        return match directory.is_empty() || directory.contains('\0') {
            true => Err("must name a directory after `embedded:`".to_owned()),
            false => Ok(StoreUrl::Embedded(directory.into())),
        };
    }
    let host = text.strip_prefix("redis://").or_else(|| text.strip_prefix("rediss://"));
    match host {
        // Nothing may repeat this text.
        _ if text.contains('@') => {
            Err("must not hold a user or password: set `username` and `password` (or \
                 ONCEGATE_STORE__PASSWORD) instead"
                .to_owned())
        }
        None => Err(format!(
            "must begin with \"embedded:\", \"redis://\" or \"rediss://\", not {text:?}"
        )),
        Some(host) if host.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) => {
            Err("must name a host after `redis://` or `rediss://`".to_owned())
        }
        Some(_) => Ok(StoreUrl::Redis(text.to_owned())),
    }
}

/// The address that problem types begin with.
#[derive(Clone, Debug)]
pub(crate) struct BaseUrl(pub(crate) String);

impl Read for BaseUrl {
    fn read(node: &Node<'_>) -> Option<Self> {
        parsed(node, "a URL", |text| {
            let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            let plain = |b: u8| b.is_ascii_graphic() && !b"\"<>\\^`{|}#?".contains(&b);
            match host.is_some_and(|host| !host.is_empty()) && text.bytes().all(plain) {
                true => Ok(Self(text.to_owned())),
                false => Err(format!(
                    "must be an http:// or https:// URL without query or fragment, not {text:?}"
                )),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_binary_unit() {
        for (text, expected) in [
            ("64KiB", Some(65_536)),
            ("1 MiB", Some(1_048_576)),
            ("0B", Some(0)),
            ("2GiB", Some(2 << 30)),
            ("1MB", None),
            ("64", None),
            ("KiB", None),
            ("-1KiB", None),
            ("99999999999999999999GiB", None),
            ("9999999999999GiB", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }

    #[test]
    fn an_endpoint_is_scheme_host_and_port() {
        for (text, expected) in [
            ("http://127.0.0.1:9001", Some("http://127.0.0.1:9001")),
            ("HTTP://Api.internal/", Some("http://api.internal:80")),
            ("http://[::1]:9001", Some("http://[::1]:9001")),
            ("http://[::1]", Some("http://[::1]:80")),
            ("http://", None),
            ("http://h:0", None),
            ("http://h:65536", None),
            ("http://h:+80", None),
            ("http://h:", None),
            ("http://h/path", None),
            ("http://h?x", None),
            ("http://h h", None),
            ("http://u:p@h", None),
            ("https://h", None),
            ("tcp://h", None),
            ("127.0.0.1:9001", None),
        ] {
            let parsed = parse_endpoint(text).ok().map(|endpoint| endpoint.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for error in [
            parse_endpoint("http://user:hunter2@h").expect_err("refused"),
            parse_store_url("redis://:hunter2@h").expect_err("refused"),
            parse_store_url("reddis://:hunter2@h").expect_err("refused"),
        ] {
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
