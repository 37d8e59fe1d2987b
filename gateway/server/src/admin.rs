//! The admin listener: health, readiness, metrics and what is being served. Nothing here
//! changes anything.

use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::gateway::Gateway;

/// The admin routes. With a token, every one of them asks for it.
pub(crate) fn router(gateway: Arc<Gateway>, token: Option<String>) -> Router {
    let router = Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .with_state(gateway);
    match token {
        Some(token) => {
            let expected: Arc<[u8]> = Sha256::digest(token.as_bytes()).to_vec().into();
            router.layer(middleware::from_fn(move |request, next| {
                authorise(Arc::clone(&expected), request, next)
            }))
        }
        None => router,
    }
}

/// Compares digests, so that the time taken says nothing about the token.
async fn authorise(expected: Arc<[u8]>, request: Request, next: Next) -> Response {
    let shown = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .map(|token| Sha256::digest(token.as_bytes()));
    if shown.is_some_and(|shown| shown.as_slice() == expected.as_ref()) {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
    (StatusCode::UNAUTHORIZED, challenge, "a bearer token is required\n").into_response()
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    let not_ready = |why: String| (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n"));
    if gateway.is_draining() {
        return not_ready("draining".to_owned()).into_response();
    }
    let health = gateway.store.health();
    if !health.ready {
        let why = health.problem.unwrap_or_else(|| "no connection yet".to_owned());
        return not_ready(format!("store: {why}")).into_response();
    }
    "ready\n".into_response()
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    const OPEN_METRICS: HeaderValue =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    ([(header::CONTENT_TYPE, OPEN_METRICS)], gateway.metrics.render()).into_response()
}

async fn status(State(gateway): State<Arc<Gateway>>) -> axum::Json<Value> {
    let generation = gateway.generation.load_full();
    let health = gateway.store.health();
    let routes: Vec<Value> = generation
        .policy
        .routes
        .iter()
        .map(|route| {
            json!({
                "operation": route.operation.as_str(),
                "match": route.matcher.to_string(),
                "upstream": route.upstream.name,
                "guarded": route.guard.is_some(),
            })
        })
        .collect();
    let plugins: Vec<Value> = generation
        .plugins()
        .into_iter()
        .map(|(name, plugin)| json!({ "name": name, "sha256": plugin.digest_hex() }))
        .collect();
    let last_reload = gateway.last_reload().map(|report| {
        json!({
            "at": seconds(report.at),
            "ok": report.error.is_none(),
            "error": report.error,
            "needs_restart": report.needs_restart,
        })
    });
    axum::Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "generation": generation.number,
        "since": seconds(generation.since),
        "draining": gateway.is_draining(),
        "store": {
            "ready": health.ready,
            "problem": health.problem,
            "warnings": health.warnings,
        },
        "last_reload": last_reload,
        "routes": routes,
        "plugins": plugins,
    }))
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
