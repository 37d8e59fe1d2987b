//! Guests built once per test binary, and short words for requests.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use oncegate_plugin_host::{Host, Limits, LoadError, Plugin, PluginSource, Request};

/// The component of a guest of this workspace.
pub(crate) fn guest(package: &'static str) -> Bytes {
    static HEADER_KEY: OnceLock<Bytes> = OnceLock::new();
    static FINGERPRINT: OnceLock<Bytes> = OnceLock::new();
    static HOSTILE: OnceLock<Bytes> = OnceLock::new();
    let built = match package {
        "oncegate-header-key" => &HEADER_KEY,
        "oncegate-fingerprint" => &FINGERPRINT,
        "oncegate-hostile" => &HOSTILE,
        other => panic!("no guest {other}"),
    };
    let build = || {
        let target = oncegate_guest_build::target_dir(Path::new(env!("CARGO_TARGET_TMPDIR")));
        oncegate_guest_build::component(package, &target).expect("guest builds")
    };
    built.get_or_init(|| build().into()).clone()
}

pub(crate) fn source(package: &'static str, config: &str) -> PluginSource {
    PluginSource {
        name: package.into(),
        bytes: guest(package),
        config: config.into(),
        sha256: None,
        secrets: Arc::new(BTreeMap::new()),
    }
}

/// A host with time to spare, so that a busy machine does not decide a test.
pub(crate) fn host() -> Host {
    host_with(|_| {})
}

pub(crate) fn host_with(change: impl FnOnce(&mut Limits)) -> Host {
    let mut limits = Limits {
        wall_time: std::time::Duration::from_secs(5),
        concurrent_instances: 8,
        ..Limits::default()
    };
    change(&mut limits);
    Host::new(limits).expect("host")
}

pub(crate) async fn load(
    host: &Host,
    package: &'static str,
    config: &str,
) -> Result<Arc<Plugin>, LoadError> {
    host.load(source(package, config)).await
}

/// A POST of `body` with these header lines.
pub(crate) fn post(headers: &[(&'static str, &[u8])], body: &str) -> Arc<Request> {
    Arc::new(request(headers, body))
}

pub(crate) fn request(headers: &[(&'static str, &[u8])], body: &str) -> Request {
    let mut request = Request {
        method: "POST".into(),
        route: "create-payment".into(),
        scheme: "https".into(),
        authority: "api.example.com".into(),
        path: "/v1/payments".into(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        ..Request::default()
    };
    for (name, value) in headers {
        let value = http::HeaderValue::from_bytes(value).expect("a header value");
        request.headers.append(*name, value);
    }
    request
}
