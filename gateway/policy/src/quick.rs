//! A gateway without a policy file: `oncegate serve --upstream URL`.
//!
//! It is a policy like any other, written here instead of in a file, and goes through the same
//! checks. What it does:
//!
//! - Every method is guarded *when the client sends a key*; a request without one is forwarded
//!   unprotected and counted. The safe methods (GET, HEAD, OPTIONS, TRACE) are proxied as a
//!   stream. There is no list of methods, for beside one an unlisted method would slip past the
//!   guard.
//! - All paths are one operation. The path is part of the fingerprint, so a key that comes back
//!   on another path is refused and never answered with the first path's record.
//! - The scope is the `Authorization` header, unless the caller chooses. *Shared* keys would be
//!   handier, but we do not know whose requests these are, and a shared scope hands one tenant's
//!   answer to any other that sends the same key and body. A guess must not leak, so a request
//!   with a key and without `Authorization` is refused as `scope-missing`, and whoever runs a
//!   single-tenant upstream says so with `shared`.

use figment::value::{Dict, Value};

use crate::error::{Place, Problems};
use crate::load::{Environment, Loaded, SourceFile, assemble};
use crate::reader::Report;

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Quick {
    /// Where to forward to.
    pub upstream: String,
    /// Where to listen, if not at the default address.
    pub listen: Option<String>,
    /// The store's URL, if not the default one.
    pub store: Option<String>,
    /// `shared`, or the name of a header; `Authorization` if not said.
    pub scope: Option<String>,
}

/// The policy of a gateway without a policy file. Settings come from the environment as ever.
pub fn quick(quick: &Quick, env: &Environment) -> Result<Loaded, Problems> {
    let source = SourceFile { place: Place::program(""), dict: document(quick) };
    assemble(vec![source], true, env, Vec::new(), Report::default())
}

fn document(quick: &Quick) -> Dict {
    let text = |text: &str| Value::from(text);
    let mut document = table([
        ("upstream", table([("default", upstream(quick))]).into()),
        ("plugin", table([("client-key", plugin())]).into()),
        ("route", Value::from(vec![guarded(quick)])),
    ]);
    if let Some(address) = &quick.listen {
        document.insert("listener".to_owned(), table([("address", text(address))]).into());
    }
    if let Some(url) = &quick.store {
        document.insert("store".to_owned(), table([("url", text(url))]).into());
    }
    document
}

fn upstream(quick: &Quick) -> Value {
    table([("endpoints", Value::from(vec![quick.upstream.as_str()]))]).into()
}

fn plugin() -> Value {
    let config = table([("header", "Idempotency-Key".into()), ("required", false.into())]);
    table([("component", "builtin:header-key".into()), ("config", config.into())]).into()
}

fn guarded(quick: &Quick) -> Value {
    let scope = match quick.scope.as_deref() {
        Some("shared") => "shared".into(),
        Some(header) => table([("header", header.into())]).into(),
        None => table([("header", "Authorization".into())]).into(),
    };
    let matching = table([("path", "/{*path}".into())]);
    table([
        ("operation", "any".into()),
        ("match", matching.into()),
        ("upstream", "default".into()),
        ("key", Value::from(vec!["client-key"])),
        ("missing_key", "forward".into()),
        ("scope", scope),
    ])
    .into()
}

fn table<const N: usize>(members: [(&str, Value); N]) -> Dict {
    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
