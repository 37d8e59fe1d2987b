//! What the gateway runs on: validated, typed, nothing left to check or to default.
//!
//! A [`PolicySet`] is one generation. A request takes hold of it once and keeps it to its end,
//! so nothing in here changes after it was built.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncegate_core::{OnUnknown, Operation};

use crate::error::Warning;
use crate::headers::ReplayDrop;
use crate::matcher::{Matched, Matcher, RouteMatch};
use crate::settle::SettleTable;

/// One valid generation of policy.
#[derive(Debug)]
pub struct PolicySet {
    /// Every upstream by its name, used or not.
    pub upstreams: BTreeMap<String, Arc<Upstream>>,
    /// Every plugin by its name, used or not: all are compiled, so that a broken one is found
    /// when the policy is loaded and not when a route begins to use it.
    pub plugins: BTreeMap<String, PluginSpec>,
    /// The routes, in the order of the files.
    pub routes: Vec<Arc<Route>>,
    /// What is allowed but was perhaps not meant.
    pub warnings: Vec<Warning>,
    /// Every directory and file whose change may change the policy, for
    /// [`Watcher`](crate::watch::Watcher): the policy directory, its files, the plugin files.
    pub files: Vec<PathBuf>,
    pub(crate) matcher: Matcher,
}

impl PolicySet {
    /// The most specific route for a request, or `None`.
    ///
    /// `path` is in the form that [`canonical`](crate::path::canonical) gives; `host` is the
    /// authority the client asked for. The rules of precedence stand in [`crate::matcher`].
    pub fn route(&self, host: &str, method: &str, path: &str) -> Option<Matched<'_>> {
        let index = self.matcher.find(host, method, path)?;
        let route = self.routes.get(index)?;
        let params = route.matcher.path.params(path);
        Some(Matched { route, params })
    }
}

/// Where requests are forwarded to.
#[derive(Debug)]
pub struct Upstream {
    /// Its name in the policy, safe for logs and metric labels.
    pub name: String,
    /// At least one; see [`Upstream::next_endpoint`].
    pub endpoints: Vec<Endpoint>,
    /// How long the gateway keeps listening for an answer.
    pub timeout: Duration,
    /// How long a connection may take. Nothing has been sent by then, so it is never ambiguous.
    pub connect_timeout: Duration,
    pub(crate) turn: AtomicUsize,
}

impl Upstream {
    /// The endpoints in turn. It is for the first try: after a byte was sent, a request stays
    /// with the endpoint it went to.
    pub fn next_endpoint(&self) -> Option<&Endpoint> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.endpoints.get(turn.checked_rem(self.endpoints.len())?)
    }
}

/// The turn is not part of what an upstream is.
impl PartialEq for Upstream {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.endpoints == other.endpoints
            && self.timeout == other.timeout
            && self.connect_timeout == other.connect_timeout
    }
}

impl Eq for Upstream {}

/// A host and port spoken to over plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// A name or address; an IPv6 address stands in brackets.
    pub host: String,
    /// 80 unless written.
    pub port: u16,
}

impl Endpoint {
    /// `host:port`, as a `Host` header or a socket address wants it.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

/// A plugin to compile and configure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSpec {
    /// Its name in the policy.
    pub name: String,
    /// What to run.
    pub component: Component,
    /// Its `config` table as JSON text, `{}` when there is none. Members are sorted, so equal
    /// tables give equal text.
    pub config_json: String,
    /// The digest the component must have.
    pub sha256: Option<[u8; 32]>,
    /// The policy file that defines it; empty when no file does (`serve --upstream`).
    pub declared_in: PathBuf,
}

/// Where a plugin's code comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component {
    /// One that is compiled into the gateway, by the name after `builtin:`.
    Builtin(String),
    /// A file, already resolved against the directory of the policy file that names it. Whether
    /// it exists and is a component is found out by whoever compiles it.
    File(PathBuf),
}

/// The built-in plugins, by the name after `builtin:`.
pub const BUILTINS: &[&str] = &["fingerprint", "header-key"];

/// One way through the gateway.
#[derive(Debug, PartialEq, Eq)]
pub struct Route {
    /// The name of what it does, for identities, logs and metrics.
    pub operation: Operation,
    /// Which requests take it.
    pub matcher: RouteMatch,
    /// Where they go.
    pub upstream: Arc<Upstream>,
    /// How they are kept from running twice; `None` proxies as a stream. See
    /// [`Route::guard_for`].
    pub guard: Option<Guard>,
    /// How long the gateway itself keeps listening for the upstream's answer.
    pub upstream_timeout: Duration,
}

/// Methods that ask for nothing to be done. They are never reserved.
pub const SAFE_METHODS: &[&str] = &["GET", "HEAD", "OPTIONS", "TRACE"];

impl Route {
    /// The guard that applies to a request with this method: none for a safe method, which a
    /// guarded route without a list of methods lets through as a stream.
    pub fn guard_for(&self, method: &str) -> Option<&Guard> {
        self.guard.as_ref().filter(|_| !SAFE_METHODS.contains(&method))
    }
}

/// How the requests of a route are kept from running twice.
#[derive(Debug, PartialEq, Eq)]
pub struct Guard {
    /// Names in [`PolicySet::plugins`], asked in this order; at least one.
    pub plugins: Vec<String>,
    /// What to do when none of them yields a key.
    pub missing_key: MissingKey,
    /// Whose keys they are.
    pub scope: ScopeSource,
    /// What must be equal under one key.
    pub fingerprint: FingerprintRule,
    /// How long a finished record is kept, from completion.
    pub retention: Duration,
    /// The longest that a plugin may ask for instead.
    pub retention_max: Duration,
    /// How long clients are known to retry; a shorter retention was refused. A plugin that asks
    /// for less than this must not get it.
    pub client_retries_for: Option<Duration>,
    /// How long a reservation lives without renewal.
    pub lease: Duration,
    /// The client's patience; past it the answer is "still running". `None` waits for the
    /// upstream's own time-out.
    pub answer_within: Option<Duration>,
    /// What a second caller gets while the first is served.
    pub in_flight: InFlight,
    /// The status of "in progress".
    pub in_flight_status: u16,
    /// What each status of the upstream means.
    pub settle: SettleTable,
    /// What a retry may do about an execution with an unknown end.
    pub on_unknown: OnUnknown,
    /// What to do when the store does not answer.
    pub on_store_error: OnStoreError,
    /// What to do when a plugin fails.
    pub on_plugin_error: OnPluginError,
    /// The header, as written by the operator, in which the key goes upstream; `None` sends none.
    pub forward_as: Option<String>,
    /// Whether the upstream is told the fence.
    pub forward_fence: bool,
    /// Whether a reservation is claimed first and marked as sent in a second step.
    pub two_phase: bool,
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// The largest answer that is kept, in bytes.
    pub max_answer: usize,
    /// Which headers of a recorded answer are not replayed.
    pub replay_drop: ReplayDrop,
    /// Whether the guard acts or only watches.
    pub mode: Mode,
}

/// What to do with a request for which no plugin yields a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// Refuse it.
    Reject,
    /// Forward it unprotected, and count it.
    Forward,
}

/// Whose keys the keys of a route are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeSource {
    /// The value of this header (in lower case). Without the header the request is refused.
    Header(String),
    /// Everybody's: all clients of the route share one set of keys.
    Shared,
}

/// What must be equal in two requests under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintRule {
    /// How the body is read.
    pub mode: FingerprintMode,
    /// Further headers that count, in lower case, sorted, each once.
    pub headers: Vec<String>,
}

/// How a body enters the fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FingerprintMode {
    /// Byte for byte.
    Raw,
    /// In the canonical form of RFC 8785, so that spaces and the order of members do not count.
    Json {
        /// What to leave out.
        ignore: Vec<JsonPointer>,
    },
    /// Part by part, so that a fresh boundary does not count.
    Multipart,
}

/// A JSON pointer (RFC 6901) with its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer {
    text: String,
    steps: Vec<String>,
}

impl JsonPointer {
    /// Reads a pointer; the error completes "must be …". The empty pointer (the whole document)
    /// is refused: a fingerprint of nothing would let any body pass as the first one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("must be a JSON pointer such as \"/sent_at\", not {text:?}"));
        };
        let steps: Option<Vec<String>> = rest.split('/').map(unescape).collect();
        let steps = steps.ok_or_else(|| {
            format!(
                "must be a JSON pointer, in which `~` stands only in `~0` or `~1`, not {text:?}"
            )
        })?;
        Ok(Self { text: text.to_owned(), steps })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The member names or indices from the root, unescaped; at least one.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }
}

/// `~1` is `/` and `~0` is `~`; any other `~` is an error.
fn unescape(step: &str) -> Option<String> {
    let mut parts = step.split('~');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(1)?;
        out.push(match code {
            "0" => '~',
            "1" => '/',
            _ => return None,
        });
        out.push_str(rest);
    }
    Some(out)
}

/// What a second caller gets while the first is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// An answer at once: "in progress".
    Conflict,
    /// The first one's answer, if it comes within this time.
    Wait(Duration),
}

/// What to do when the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreError {
    /// Refuse the request: nothing runs unprotected.
    Reject,
    /// Forward it unprotected, and count it.
    Forward,
}

/// What to do when a plugin traps, takes too long or answers nonsense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPluginError {
    /// Refuse the request.
    Reject,
    /// Ask the next plugin, as if this one had passed.
    Next,
    /// Forward it unprotected, and count it.
    Forward,
}

/// Whether a guard acts.
///
/// The second mode, `shadow` (count and report, never interfere), is refused when a policy is
/// loaded: it does not exist yet. It is an enum already so that every place that must decide
/// about it will fail to compile on the day it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Enforce,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_pointer_is_read_by_rfc_6901() {
        let check = |text: &str, expected: Option<&[&str]>| {
            let steps = JsonPointer::parse(text).ok().map(|pointer| pointer.steps);
            let expected = expected.map(|e| e.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
            assert_eq!(steps, expected, "{text:?}");
        };
        check("/sent_at", Some(&["sent_at"]));
        check("/a/0/b", Some(&["a", "0", "b"]));
        check("/", Some(&[""]));
        check("/a~1b/m~0n", Some(&["a/b", "m~n"]));
        check("/~01", Some(&["~1"]));
        check("", None);
        check("sent_at", None);
        check("#/a", None);
        check("/a~", None);
        check("/a~2", None);
        check("/é", Some(&["é"]));
        check("/~é", None);
    }

    #[test]
    fn endpoints_take_turns() {
        let endpoint = |port| Endpoint { host: "127.0.0.1".to_owned(), port };
        let upstream = Upstream {
            name: "u".to_owned(),
            endpoints: vec![endpoint(1), endpoint(2)],
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            turn: AtomicUsize::new(usize::MAX - 1),
        };
        let ports: Vec<u16> =
            (0..4).filter_map(|_| upstream.next_endpoint()).map(|e| e.port).collect();
        assert_eq!(ports.len(), 4);
        assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "{ports:?}");
    }
}
