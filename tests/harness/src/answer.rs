//! What came back, and the sentences that tests say about it.

use serde_json::Value;

use crate::http1::{Framing, Headers};

/// One answer, as it stood on the wire.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Every header line, in order.
    pub headers: Headers,
    /// The body, without framing.
    pub body: Vec<u8>,
    /// Lines after a chunked body.
    pub trailers: Headers,
    /// How the end of the body was told.
    pub framing: Framing,
    /// Informational answers that came before.
    pub informational: Vec<u16>,
}

/// An RFC 9457 answer in the gateway's own words.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The last part of `type`.
    pub code: String,
    /// What the client should do next.
    pub retry: String,
}

impl Answer {
    /// The one value of this header.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.one(name)
    }

    /// What the gateway says became of the request: `fresh`, `replayed`, ...
    #[track_caller]
    pub fn outcome(&self) -> Option<&str> {
        self.header("Idempotency-Status")
    }

    /// The body as text, for messages and comparisons.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads the body as a problem document. Panics when it is none: then the upstream spoke, or
    /// the gateway broke its word on the form of its answers.
    #[track_caller]
    pub fn problem(&self) -> Problem {
        let media_type = self.header("Content-Type");
        assert_eq!(media_type, Some("application/problem+json"), "not a problem: {self:?}");
        let document: Value = serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("a problem that is not JSON ({error}): {self:?}"));
        let text = |member: &str| match document[member].as_str() {
            Some(text) => text.to_owned(),
            None => panic!("a problem without {member:?}: {document}"),
        };
        assert_eq!(document["status"].as_u64(), Some(u64::from(self.status)), "{document}");
        let kind = text("type");
        match kind.strip_prefix("urn:oncegate:problem:") {
            Some(code) => Problem { code: code.to_owned(), retry: text("retry") },
            None => panic!("a problem of an unknown type: {kind}"),
        }
    }

    /// The gateway itself answered with this status, this code and this advice.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str, retry: &str) -> &Self {
        let problem = self.problem();
        let found = (self.status, problem.code.as_str(), problem.retry.as_str());
        assert_eq!(found, (status, code, retry), "{}", self.text());
        self
    }

    /// The upstream was called for this request, and this is its answer.
    #[track_caller]
    pub fn is_fresh(&self, status: u16) -> &Self {
        assert_eq!((self.status, self.outcome()), (status, Some("fresh")), "{self:?}");
        assert!(!self.headers.has("Idempotent-Replayed"), "a fresh answer marked as a replay");
        self
    }

    /// This is `first` given again: same status, same bytes, and marked.
    #[track_caller]
    pub fn is_replay_of(&self, first: &Self) -> &Self {
        assert_eq!(self.outcome(), Some("replayed"), "{self:?}");
        assert_eq!(self.header("Idempotent-Replayed"), Some("true"), "{self:?}");
        assert_eq!(self.status, first.status, "a replay with another status");
        assert_eq!(self.text(), first.text(), "a replay with another body");
        assert_eq!(self.body, first.body, "a replay with another body");
        self
    }

    /// The first attempt still runs; come back with the same key.
    #[track_caller]
    pub fn is_in_progress(&self) -> &Self {
        self.is_problem(409, "in-progress", "same-key");
        assert!(self.retry_after_s() >= 1, "an invitation to hammer: {self:?}");
        self
    }

    /// The key was seen with another request.
    #[track_caller]
    pub fn is_mismatch(&self) -> &Self {
        self.is_problem(422, "key-reused", "new-key")
    }

    /// The key cannot be read.
    #[track_caller]
    pub fn is_invalid_key(&self) -> &Self {
        self.is_problem(400, "key-invalid", "new-key")
    }

    /// Nobody knows how the first attempt ended, and it will not be run again.
    #[track_caller]
    pub fn is_unknown(&self) -> &Self {
        self.is_problem(409, "outcome-unknown", "after-resolution");
        assert_eq!(self.outcome(), Some("unknown"), "{self:?}");
        self
    }

    /// The call failed after it was sent: a gateway error that owns up to the open end.
    #[track_caller]
    pub fn is_ambiguous_failure(&self) -> &Self {
        assert!(matches!(self.status, 502 | 504), "{self:?}");
        assert_eq!(self.outcome(), Some("unknown"), "{self:?}");
        self
    }

    /// `Retry-After` in seconds.
    #[track_caller]
    pub fn retry_after_s(&self) -> u64 {
        let value = self.header("Retry-After").and_then(|text| text.parse().ok());
        value.unwrap_or_else(|| panic!("no Retry-After in seconds: {self:?}"))
    }
}
