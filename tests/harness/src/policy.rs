//! Policy files, written by tests.
//!
//! A test names only what it is about; [`Policy::payments`] supplies one guarded route. Values
//! are TOML text, so that a wrong value can be written as easily as a right one.

use std::fmt;

use crate::upstream::Upstream;

/// The path of the route that most tests use.
pub const PAYMENTS: &str = "/v1/payments";

/// The operation of the route that most tests use.
pub const OPERATION: &str = "create-payment";

/// One `[[route]]`.
#[derive(Clone, Debug)]
pub struct Route {
    fields: Vec<(String, String)>,
}

impl Route {
    /// A route that is proxied and nothing else.
    pub fn open(operation: &str, methods: &[&str], path: &str) -> Self {
        Self { fields: Vec::new() }
            .set("operation", &format!("{operation:?}"))
            .set("match", &format!("{{ methods = {methods:?}, path = {path:?} }}"))
            .set("upstream", "\"payments\"")
    }

    /// A route that demands the client's key, in one scope for all.
    pub fn guarded(operation: &str, path: &str) -> Self {
        Self::open(operation, &["POST"], path)
            .set("key", "[\"client-key\"]")
            .set("missing_key", "\"reject\"")
            .set("scope", "\"shared\"")
    }

    /// Sets a field to this TOML value, replacing an earlier one.
    pub fn set(mut self, field: &str, value: &str) -> Self {
        self.fields.retain(|(name, _)| name != field);
        self.fields.push((field.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a field out.
    pub fn without(mut self, field: &str) -> Self {
        self.fields.retain(|(name, _)| name != field);
        self
    }

    /// Scope by this header.
    pub fn scope_header(self, name: &str) -> Self {
        self.set("scope", &format!("{{ header = {name:?} }}"))
    }
}

/// A policy file, less listener, admin and store, which the harness adds.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    sections: Vec<String>,
    routes: Vec<Route>,
}

impl Policy {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The upstream `payments`, the plugin `client-key` for `Idempotency-Key`, no route yet.
    pub fn with(upstream: &Upstream) -> Self {
        Self::new().upstream("payments", &[&upstream.url()]).plugin(
            "client-key",
            "builtin:header-key",
            "{ header = \"Idempotency-Key\", required = false }",
        )
    }

    /// `POST /v1/payments`, guarded by the client's key.
    pub fn payments(upstream: &Upstream) -> Self {
        Self::with(upstream).route(Route::guarded(OPERATION, PAYMENTS))
    }

    /// As [`Policy::payments`], with one more field on the route, or another value for it.
    pub fn payments_with(upstream: &Upstream, field: &str, value: &str) -> Self {
        Self::with(upstream).route(Route::guarded(OPERATION, PAYMENTS).set(field, value))
    }

    /// Adds an upstream.
    pub fn upstream(self, name: &str, endpoints: &[&str]) -> Self {
        self.section(&format!("[upstream.{name}]\nendpoints = {endpoints:?}\ntimeout = \"30s\"\n"))
    }

    /// Adds a plugin; `config` is a TOML value.
    pub fn plugin(self, name: &str, component: &str, config: &str) -> Self {
        self.section(&format!("[plugin.{name}]\ncomponent = {component:?}\nconfig = {config}\n"))
    }

    /// Adds the plugin that derives a key from these parts.
    pub fn fingerprint(self, name: &str, parts: &[&str]) -> Self {
        self.plugin(name, "builtin:fingerprint", &format!("{{ parts = {parts:?} }}"))
    }

    /// Adds a route.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Adds a section as it stands.
    pub fn section(mut self, text: &str) -> Self {
        self.sections.push(text.to_owned());
        self
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for section in &self.sections {
            writeln!(out, "{section}")?;
        }
        for route in &self.routes {
            writeln!(out, "[[route]]")?;
            for (name, value) in &route.fields {
                writeln!(out, "{name} = {value}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}
