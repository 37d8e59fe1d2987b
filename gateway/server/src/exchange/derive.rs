//! Step 3: which intent is this, whose is it, and what exactly was asked.

use std::time::Duration;

use oncegate_core::{Fingerprint, Framer, Identity, Key, Operation};
use oncegate_plugin_host::{self as plugin_host, Decision, KeySource, Part, Resolved, Tracking};
use oncegate_policy::{
    FingerprintMode, FingerprintRule, Guard, MissingKey, OnPluginError, ScopeSource,
};
use sha2::{Digest, Sha256};

use super::stage::{Buffered, Exit, Keyed};
use crate::problem::Problem;

/// Fingerprints without a secret, and with one. They never compare as equal.
const FINGERPRINT_PLAIN: u8 = 1;
const FINGERPRINT_KEYED: u8 = 2;

/// Asks the route's plugins in order; the first that yields a key wins.
pub(crate) async fn derive(buffered: Buffered) -> Result<Keyed, Exit> {
    let context = buffered.context.clone();
    for name in &context.guard().plugins {
        let Some(plugin) = context.generation.plugin(name) else {
            tracing::error!(plugin = %name, "a route names a plugin that was not loaded");
            return Err(context.problem(&Problem::PluginFailed("not-loaded")).into());
        };
        match plugin.derive(&buffered.view).await {
            Ok(Decision::Track(tracking)) => return track(buffered, tracking),
            Ok(Decision::Pass) => {}
            Ok(Decision::Bypass(why)) => {
                tracing::debug!(plugin = %name, why, "bypassed by a plugin");
                return Err(Exit::Unprotected(Box::new(buffered), "bypass"));
            }
            Ok(Decision::Reject(refusal)) => {
                return Err(context.problem(&Problem::from(refusal)).into());
            }
            Err(error) => {
                context.gateway.metrics.plugin_failed(name, error.code());
                tracing::warn!(plugin = %name, operation = %context.operation(), reason = error.code(), %error, "a plugin failed");
                match context.guard().on_plugin_error {
                    OnPluginError::Reject => {
                        return Err(context.problem(&Problem::PluginFailed(error.code())).into());
                    }
                    OnPluginError::Next => {}
                    OnPluginError::Forward => {
                        return Err(Exit::Unprotected(Box::new(buffered), "plugin-error"));
                    }
                }
            }
        }
    }
    match context.guard().missing_key {
        MissingKey::Reject => Err(context.problem(&Problem::KeyMissing).into()),
        MissingKey::Forward => Err(Exit::Unprotected(Box::new(buffered), "missing-key")),
    }
}

fn track(buffered: Buffered, tracking: Tracking) -> Result<Keyed, Exit> {
    let context = &buffered.context;
    let derived = derivation_of(
        &context.gateway.namespace,
        context.operation(),
        context.guard(),
        &tracking,
        &buffered.view,
        context.generation.fingerprint_secret.as_deref(),
    );
    match derived {
        Ok(Derivation { key, identity, fingerprint, retention, parts: _ }) => {
            Ok(Keyed { key, identity, fingerprint, retention, buffered })
        }
        Err(NotDerived::NoScope(source)) => {
            Err(context.problem(&Problem::ScopeMissing(source)).into())
        }
        Err(NotDerived::BadPart(error)) => {
            tracing::warn!(operation = %context.operation(), %error, "a plugin named a part that does not resolve");
            Err(context.problem(&Problem::PluginFailed("bad-part")).into())
        }
    }
}

/// What a plugin's decision comes to, on one route, for one request.
pub(crate) struct Derivation {
    pub(crate) key: Key,
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Fingerprint,
    /// What the fingerprint is made of.
    pub(crate) parts: Vec<Resolved>,
    pub(crate) retention: Duration,
}

/// Why a decision comes to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDerived {
    /// The scope source is absent; holds its name.
    #[error("the scope source is absent: {0}")]
    NoScope(String),
    /// A part that the plugin named does not resolve.
    #[error("a part does not resolve: {0}")]
    BadPart(#[from] plugin_host::PartError),
}

/// Resolves, frames and hashes; the same for a live request and for `explain`.
pub(crate) fn derivation_of(
    namespace: &str,
    operation: &Operation,
    guard: &Guard,
    tracking: &Tracking,
    view: &plugin_host::Request,
    secret: Option<&[u8]>,
) -> Result<Derivation, NotDerived> {
    let key = match &tracking.key {
        KeySource::Client(key) => key.clone(),
        KeySource::Derived(parts) => {
            plugin_host::derived_key(&plugin_host::resolve(parts, view)?, secret)
        }
    };
    let parts = if tracking.fingerprint.is_empty() {
        plugin_host::resolve(&fingerprint_parts(&guard.fingerprint), view)?
    } else {
        plugin_host::resolve(&tracking.fingerprint, view)?
    };
    let version = if secret.is_some() { FINGERPRINT_KEYED } else { FINGERPRINT_PLAIN };
    let fingerprint = Fingerprint { version, digest: plugin_host::digest(&parts, secret) };
    let narrowed = plugin_host::resolve(&tracking.scope, view)?;
    let scope = scope_of(&guard.scope, view, &narrowed).map_err(NotDerived::NoScope)?;
    let identity = identity_of(namespace, operation, &scope, &key);
    let retention = retention_of(guard, tracking.retention);
    Ok(Derivation { key, identity, fingerprint, parts, retention })
}

/// What the route compares when the plugin leaves it to the route.
fn fingerprint_parts(rule: &FingerprintRule) -> Vec<Part> {
    let body = match &rule.mode {
        FingerprintMode::Raw => Part::BodyBytes,
        FingerprintMode::Json { ignore } if ignore.is_empty() => Part::BodyJson,
        FingerprintMode::Json { ignore } => {
            Part::JsonWithout(ignore.iter().map(|pointer| pointer.as_str().to_owned()).collect())
        }
        FingerprintMode::Multipart => Part::BodyMultipart,
    };
    [Part::Method, Part::Path, Part::Query, Part::MediaType, body]
        .into_iter()
        .chain(rule.headers.iter().cloned().map(Part::Header))
        .collect()
}

/// Whose key it is, as framed bytes. The error names the absent source. What a plugin adds
/// narrows the route's scope and never replaces it.
fn scope_of(
    source: &ScopeSource,
    view: &plugin_host::Request,
    narrowed: &[Resolved],
) -> Result<Vec<u8>, String> {
    let mut scope = Vec::new();
    let mut framer = Framer::new(|bytes| scope.extend_from_slice(bytes));
    match source {
        ScopeSource::Shared => {
            framer.part("shared", None);
        }
        ScopeSource::Header(name) => {
            let mut values = view.headers.get_all(name).iter().peekable();
            if values.peek().is_none_or(|value| value.is_empty()) {
                return Err(format!("{name} header"));
            }
            for value in values {
                framer.part(name, Some(value.as_bytes()));
            }
        }
    }
    for part in narrowed {
        framer.part(&part.tag, part.value.as_deref());
    }
    Ok(scope)
}

/// The digest under which the record is filed.
fn identity_of(namespace: &str, operation: &Operation, scope: &[u8], key: &Key) -> Identity {
    let mut hasher = Sha256::new();
    Identity::frame(namespace, operation, scope, key, |bytes| hasher.update(bytes));
    Identity(hasher.finalize().into())
}

/// A plugin may ask for another retention, within the route's bounds.
fn retention_of(guard: &Guard, asked: Option<Duration>) -> Duration {
    const SHORTEST: Duration = Duration::from_secs(1);
    match asked {
        Some(asked) => asked.clamp(SHORTEST.min(guard.retention_max), guard.retention_max),
        None => guard.retention,
    }
}
