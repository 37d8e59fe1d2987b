//! Exactly what a policy file may say.
//!
//! Each table below is one table of the language, key by key, with the type that a value must
//! have. A field is [`Absent`](crate::reader::Field) where the file said nothing; defaults and
//! the rules between fields are in [`crate::validate`]. `policies/README.md` explains every key
//! to operators, and a test below fails when it forgets one.

use std::net::SocketAddr;
use std::time::Duration;

use oncegate_core::{OnUnknown, Operation};

use crate::headers::HeaderPattern;
use crate::matcher::PathPattern;
use crate::policy::{
    Component, Endpoint, InFlight, JsonPointer, MissingKey, Mode, OnPluginError, OnStoreError,
    ScopeSource,
};
use crate::reader::{At, List, Named, Node, Read, table};
use crate::scalar::{
    BaseUrl, BodyMode, ForwardAs, Header, Host, JsonText, Method, Namespace, Sha256, Size, StoreUrl,
};
use crate::secret::Secret;
use crate::settle::StatusPattern;

/// A settings section. Its content is read later, after the layers were merged.
#[derive(Debug)]
pub(crate) struct Section;

impl Read for Section {
    fn read(_: &Node<'_>) -> Option<Self> {
        Some(Self)
    }
}

table! {
    /// A whole file.
    FileDocument {
        "listener" => listener: Section,
        "admin" => admin: Section,
        "store" => store: Section,
        "drain" => drain: Section,
        "secrets" => secrets: Section,
        "plugin_limits" => plugin_limits: Section,
        "problems" => problems: Section,
        "upstream" => upstreams: Named<UpstreamDocument>,
        "plugin" => plugins: Named<PluginDocument>,
        "route" => routes: List<At<RouteDocument>>,
    }
}

/// The settings sections: at most one of each in all files, and open to the environment.
pub(crate) const SECTIONS: &[&str] =
    &["listener", "admin", "store", "drain", "secrets", "plugin_limits", "problems"];

table! {
    /// `[listener]`
    ListenerDocument {
        "address" => address: SocketAddr,
        "first_byte_timeout" => first_byte_timeout: Duration,
        "header_timeout" => header_timeout: Duration,
        "body_timeout" => body_timeout: Duration,
        "max_connections" => max_connections: usize,
    }
}

table! {
    /// `[admin]`
    AdminDocument {
        "address" => address: SocketAddr,
        "token" => token: Secret<String>,
    }
}

table! {
    /// `[store]`
    StoreDocument {
        "url" => url: StoreUrl,
        "namespace" => namespace: Namespace,
        "timeout" => timeout: Duration,
        "username" => username: String,
        "password" => password: Secret<String>,
        "ca_file" => ca_file: String,
        "allow_eviction" => allow_eviction: bool,
    }
}

table! {
    /// `[drain]`
    DrainDocument {
        "deadline" => deadline: Duration,
    }
}

/// `[secrets]`: text under any name; `fingerprint` is the gateway's own.
pub(crate) type SecretsDocument = Named<Secret<String>>;

table! {
    /// `[plugin_limits]`
    PluginLimitsDocument {
        "memory" => memory: Size,
        "wall_time" => wall_time: Duration,
    }
}

table! {
    /// `[problems]`
    ProblemsDocument {
        "base_url" => base_url: BaseUrl,
    }
}

table! {
    /// `[upstream.NAME]`
    UpstreamDocument {
        "endpoints" => endpoints: List<At<Endpoint>>,
        "timeout" => timeout: Duration,
        "connect_timeout" => connect_timeout: Duration,
    }
}

table! {
    /// `[plugin.NAME]`
    PluginDocument {
        "component" => component: Component,
        "sha256" => sha256: Sha256,
        "config" => config: JsonText,
    }
}

table! {
    /// `[[route]]`
    RouteDocument {
        "operation" => operation: Operation,
        "match" => matching: MatchDocument,
        "upstream" => upstream: String,
        "upstream_timeout" => upstream_timeout: Duration,
        "key" => key: List<At<String>>,
        "missing_key" => missing_key: MissingKey,
        "scope" => scope: ScopeSource,
        "fingerprint" => fingerprint: FingerprintDocument,
        "retention" => retention: Duration,
        "retention_max" => retention_max: Duration,
        "client_retries_for" => client_retries_for: Duration,
        "lease" => lease: Duration,
        "answer_within" => answer_within: Duration,
        "in_flight" => in_flight: InFlight,
        "in_flight_status" => in_flight_status: u16,
        "settle" => settle: SettleDocument,
        "on_unknown" => on_unknown: OnUnknown,
        "on_store_error" => on_store_error: OnStoreError,
        "on_plugin_error" => on_plugin_error: OnPluginError,
        "forward_as" => forward_as: ForwardAs,
        "forward_fence" => forward_fence: bool,
        "two_phase" => two_phase: bool,
        "max_body" => max_body: Size,
        "max_answer" => max_answer: Size,
        "replay_drop" => replay_drop: List<HeaderPattern>,
        "replay_keep" => replay_keep: List<Header>,
        "mode" => mode: Mode,
    }
}

table! {
    /// `match = { … }` of a route
    MatchDocument {
        "methods" => methods: List<At<Method>>,
        "path" => path: PathPattern,
        "host" => host: Host,
    }
}

table! {
    /// `fingerprint = { … }` of a route
    FingerprintDocument {
        "mode" => mode: BodyMode,
        "ignore" => ignore: List<JsonPointer>,
        "headers" => headers: List<Header>,
    }
}

table! {
    /// `settle = { … }` of a route
    SettleDocument {
        "store" => store: List<At<StatusPattern>>,
        "release" => release: List<At<StatusPattern>>,
        "unknown" => unknown: List<At<StatusPattern>>,
        "keep" => keep: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Keys;

    #[test]
    fn every_key_is_explained_to_operators() {
        let guide = include_str!("../../../policies/README.md").replace("[[", "[");
        let tables: &[&[&str]] = &[
            FileDocument::KEYS,
            ListenerDocument::KEYS,
            AdminDocument::KEYS,
            StoreDocument::KEYS,
            DrainDocument::KEYS,
            PluginLimitsDocument::KEYS,
            ProblemsDocument::KEYS,
            UpstreamDocument::KEYS,
            PluginDocument::KEYS,
            RouteDocument::KEYS,
            MatchDocument::KEYS,
            FingerprintDocument::KEYS,
            SettleDocument::KEYS,
        ];
        for key in tables.iter().copied().flatten() {
            let row = [format!("| `{key}` |"), format!(".{key}` |"), format!("`[{key}")];
            assert!(row.iter().any(|row| guide.contains(row)), "no row for `{key}`");
        }
    }

    #[test]
    fn every_section_is_a_key_of_a_file() {
        for section in SECTIONS {
            assert!(FileDocument::KEYS.contains(section), "{section}");
        }
    }
}
