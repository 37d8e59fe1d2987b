//! The one table from "what went wrong" to an answer: status, code, what the caller reads and
//! whether it may try again. Status codes are chosen here and nowhere else.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use oncegate_core::UnknownReason;
use oncegate_plugin_host::Refusal;
use serde_json::json;

use crate::outcome::Outcome;

/// The media type of every answer the gateway makes itself (RFC 9457).
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// What a machine may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Ask again with the same key.
    SameKey,
    /// Correct the request and use a new key.
    NewKey,
    /// Wait until somebody has found out how the first attempt ended.
    AfterResolution,
    /// Asking again will not help.
    Never,
}

impl Retry {
    fn as_str(self) -> &'static str {
        match self {
            Self::SameKey => "same-key",
            Self::NewKey => "new-key",
            Self::AfterResolution => "after-resolution",
            Self::Never => "never",
        }
    }
}

/// Why the upstream could not be asked at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// No connection: refused, name not found, reset before anything was sent.
    NoConnection,
    /// Nobody accepted the connection in time.
    ConnectTimeout,
}

/// Everything the gateway answers by itself.
#[derive(Clone, Debug)]
pub(crate) enum Problem {
    /// The route requires a key and none came.
    KeyMissing,
    /// The key breaks a rule; holds the rule.
    KeyInvalid(String),
    /// The scope source is absent; holds its name.
    ScopeMissing(String),
    /// The first attempt still runs. The status is the route's choice.
    InProgress { status: u16, retry_after: Duration },
    /// The key came with another request before.
    KeyReused,
    /// Nobody knows how an earlier attempt ended.
    OutcomeUnknown(UnknownReason),
    /// This attempt was sent, and nobody knows how it ended.
    AttemptUnknown(UnknownReason),
    /// It ran; its answer was not kept. Holds the upstream's status then.
    AnswerNotKept(u16),
    /// The body is over the limit, in bytes.
    BodyTooLarge(usize),
    /// The body did not arrive whole.
    BodyIncomplete(String),
    /// The body did not arrive in time.
    BodyTimeout,
    /// The client's patience is over; the execution goes on.
    StillRunning { retry_after: Duration },
    /// The upstream was never sent the request.
    UpstreamUnreachable(Unreachable),
    /// The store cannot say whether the operation ran.
    StoreUnavailable,
    /// A plugin failed; holds the stable reason.
    PluginFailed(&'static str),
    /// A plugin decided to refuse.
    PluginRefused(Refusal),
    /// `Upgrade` or `CONNECT` where one answer must be kept.
    UpgradeRefused,
    /// From TLS early data, which anyone who saw it may send again.
    TooEarly,
    /// No route matches.
    NoRoute,
    /// The request head breaks a rule; holds the rule.
    BadRequest(String),
    /// An unguarded upstream broke off or timed out.
    UpstreamFailed { timeout: bool },
    /// A failure in the gateway's own code.
    Internal,
}

/// One row of the table.
struct Row {
    status: u16,
    code: &'static str,
    title: &'static str,
    retry: Retry,
    outcome: Outcome,
}

const fn row(
    status: u16,
    code: &'static str,
    title: &'static str,
    retry: Retry,
    outcome: Outcome,
) -> Row {
    Row { status, code, title, retry, outcome }
}

impl Problem {
    /// The client's patience of `waited` is over.
    pub(crate) fn still_running(waited: Duration) -> Self {
        Self::StillRunning { retry_after: waited.min(Duration::from_secs(30)) }
    }

    fn row(&self) -> Row {
        use Outcome as O;
        use Retry::{AfterResolution, Never, NewKey, SameKey};
        match self {
            Self::KeyMissing => {
                row(400, "key-missing", "An idempotency key is required", NewKey, O::Invalid)
            }
            Self::KeyInvalid(_) => {
                row(400, "key-invalid", "The idempotency key is malformed", NewKey, O::Invalid)
            }
            Self::ScopeMissing(_) => {
                row(401, "scope-missing", "It is not known whose key this is", SameKey, O::Invalid)
            }
            Self::InProgress { status, .. } => {
                row(*status, "in-progress", "The first attempt still runs", SameKey, O::InProgress)
            }
            Self::KeyReused => row(
                422,
                "key-reused",
                "The key was used for a different request",
                NewKey,
                O::Mismatch,
            ),
            Self::OutcomeUnknown(_) => row(
                409,
                "outcome-unknown",
                "It is not known how an earlier attempt ended",
                AfterResolution,
                O::Unknown,
            ),
            Self::AttemptUnknown(UnknownReason::UpstreamTimeout) => row(
                504,
                "outcome-unknown",
                "The request was sent, but no answer came in time",
                AfterResolution,
                O::Unknown,
            ),
            Self::AttemptUnknown(_) => row(
                502,
                "outcome-unknown",
                "The request was sent, but its answer was lost",
                AfterResolution,
                O::Unknown,
            ),
            Self::AnswerNotKept(_) => row(
                409,
                "answer-not-kept",
                "The operation ran, but its answer was not kept",
                Never,
                O::Tombstone,
            ),
            Self::BodyTooLarge(_) => {
                row(413, "body-too-large", "The request body is too large", Never, O::Invalid)
            }
            Self::BodyIncomplete(_) => row(
                400,
                "body-incomplete",
                "The request body did not arrive whole",
                SameKey,
                O::Invalid,
            ),
            Self::BodyTimeout => row(
                408,
                "body-timeout",
                "The request body did not arrive in time",
                SameKey,
                O::Invalid,
            ),
            Self::StillRunning { .. } => row(
                504,
                "still-running",
                "The operation still runs; ask again with the same key",
                SameKey,
                O::StillRunning,
            ),
            Self::UpstreamUnreachable(Unreachable::NoConnection) => row(
                502,
                "upstream-unreachable",
                "The request was not sent: no connection to the upstream",
                SameKey,
                O::Released,
            ),
            Self::UpstreamUnreachable(Unreachable::ConnectTimeout) => row(
                503,
                "upstream-unreachable",
                "The request was not sent: the upstream did not accept in time",
                SameKey,
                O::Released,
            ),
            Self::StoreUnavailable => row(
                503,
                "store-unavailable",
                "The record of earlier attempts cannot be reached",
                SameKey,
                O::StoreError,
            ),
            Self::PluginFailed(_) => row(
                500,
                "plugin-failed",
                "The key of this request could not be derived",
                SameKey,
                O::PluginError,
            ),
            Self::PluginRefused(refusal) => row(
                refusal.status,
                "plugin-refused",
                "The request was refused by policy",
                NewKey,
                O::Refused,
            ),
            Self::UpgradeRefused => row(
                501,
                "upgrade-refused",
                "This operation cannot be upgraded or tunnelled",
                Never,
                O::Invalid,
            ),
            Self::TooEarly => {
                row(425, "too-early", "Sent as early data; send it again", SameKey, O::Invalid)
            }
            Self::NoRoute => {
                row(404, "no-route", "No route serves this request", Never, O::NoRoute)
            }
            Self::BadRequest(_) => {
                row(400, "bad-request", "The request is malformed", Never, O::Invalid)
            }
            Self::UpstreamFailed { timeout: false } => {
                row(502, "upstream-failed", "The upstream broke off", Never, O::PassFailed)
            }
            Self::UpstreamFailed { timeout: true } => row(
                504,
                "upstream-failed",
                "The upstream did not answer in time",
                Never,
                O::PassFailed,
            ),
            Self::Internal => row(500, "internal", "The gateway failed", SameKey, O::Internal),
        }
    }

    /// The terminal outcome that goes with this answer.
    pub(crate) fn outcome(&self) -> Outcome {
        self.row().outcome
    }

    /// What the caller can act on, without secrets.
    fn detail(&self) -> String {
        match self {
            Self::KeyMissing => {
                "Send an Idempotency-Key header: one key per intent, the same on every retry."
                    .into()
            }
            Self::KeyInvalid(rule) | Self::BadRequest(rule) | Self::BodyIncomplete(rule) => {
                rule.clone()
            }
            Self::ScopeMissing(source) => {
                format!("The request carries no {source}, which says whose key it is.")
            }
            Self::InProgress { .. } => {
                "Another attempt with this key is being executed. Ask again with the same key."
                    .into()
            }
            Self::KeyReused => {
                "This key already names another request. A new intent needs a new key.".into()
            }
            Self::OutcomeUnknown(reason) | Self::AttemptUnknown(reason) => format!(
                "The operation may or may not have taken effect ({}). It will not be executed again until that is resolved.",
                reason.as_str()
            ),
            Self::AnswerNotKept(status) => format!(
                "The operation was executed and answered with status {status}. It will not be executed again."
            ),
            Self::BodyTooLarge(limit) => format!("At most {limit} bytes are accepted here."),
            Self::BodyTimeout => "Nothing was reserved and nothing was forwarded.".into(),
            Self::StillRunning { .. } => {
                "The operation goes on. Its answer will be kept for a retry with the same key."
                    .into()
            }
            Self::UpstreamUnreachable(_) => {
                "Nothing was executed. The key is free for a retry.".into()
            }
            Self::StoreUnavailable => {
                "Nothing was executed by this attempt. Ask again with the same key.".into()
            }
            Self::PluginFailed(reason) => {
                format!("The plugin failed ({reason}). Nothing was executed.")
            }
            Self::PluginRefused(refusal) => refusal.detail.clone(),
            Self::UpgradeRefused => "An operation that is executed once needs one answer.".into(),
            Self::TooEarly => "Early data can be replayed by others (RFC 8470).".into(),
            Self::NoRoute => "No policy has a route for this method, host and path.".into(),
            Self::UpstreamFailed { .. } => "This route is not protected against repeats.".into(),
            Self::Internal => "The cause is in the gateway's log.".into(),
        }
    }

    /// Seconds to wait, rounded up, where waiting helps.
    fn retry_after(&self) -> Option<u64> {
        let span = if let Self::InProgress { retry_after, .. }
        | Self::StillRunning { retry_after } = self
        {
            *retry_after
        } else if let Self::StoreUnavailable
        | Self::UpstreamUnreachable(Unreachable::ConnectTimeout) = self
        {
            Duration::from_secs(1)
        } else {
            return None;
        };
        Some(span.as_millis().div_ceil(1000).clamp(1, 3600) as u64)
    }

    /// Renders the answer. `base` is the configured base URL of problem pages, if any.
    pub(crate) fn response(&self, base: Option<&str>) -> Response<Body> {
        let row = self.row();
        let code = if let Self::PluginRefused(refusal) = self { &refusal.code } else { row.code };
        let kind = match base {
            Some(base) => format!("{base}{}", row.code),
            None => format!("urn:oncegate:problem:{}", row.code),
        };
        let body = json!({
            "type": kind,
            "title": row.title,
            "status": row.status,
            "code": code,
            "detail": self.detail(),
            "retry": row.retry.as_str(),
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() =
            StatusCode::from_u16(row.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if base.is_some()
            && let Ok(link) = HeaderValue::from_str(&format!("<{kind}>; rel=\"describedby\""))
        {
            headers.insert(header::LINK, link);
        }
        response
    }
}

/// A plugin's refusal, under the gateway's own code where it is one of the key rules.
impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal.code.as_str() {
            "key-missing" => Self::KeyMissing,
            "key-invalid" => Self::KeyInvalid(refusal.detail),
            _ => Self::PluginRefused(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_told_in_whole_seconds_and_never_zero() {
        let after = |millis| {
            let retry_after = Duration::from_millis(millis);
            Problem::InProgress { status: 409, retry_after }.retry_after()
        };
        assert_eq!(after(0), Some(1));
        assert_eq!(after(1_000), Some(1));
        assert_eq!(after(1_001), Some(2));
    }

    #[test]
    fn the_type_follows_the_configured_base() {
        let link = |base| {
            let response = Problem::KeyReused.response(base);
            response.headers().get(header::LINK).map(|v| v.to_str().expect("text").to_owned())
        };
        assert_eq!(link(None), None);
        let expected = "<https://docs.example.com/p/key-reused>; rel=\"describedby\"";
        assert_eq!(link(Some("https://docs.example.com/p/")).as_deref(), Some(expected));
    }
}
