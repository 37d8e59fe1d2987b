//! Step 7: fresh, replayed, or a problem.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use oncegate_core::{Answer, Timestamp};

use super::record::{Recorded, Shown};
use super::stage::Reply;
use crate::headers;
use crate::outcome::Outcome;

/// The answer of this very attempt.
pub(crate) fn fresh(recorded: Recorded) -> Reply {
    let Recorded { context, outcome, shown, kept_for } = recorded;
    let reply = match shown {
        Shown::Answer(mut head, body) => {
            // What an inner gateway said about its own hop is not this hop's word.
            headers::strip_gateway_only(&mut head.headers);
            if hyper::body::Body::size_hint(&body).exact().is_some() {
                head.headers.remove(header::CONTENT_LENGTH);
            }
            Reply::guarded(outcome, Response::from_parts(*head, body))
        }
        Shown::Problem(problem) => context.problem(&problem),
    };
    match kept_for {
        Some(kept_for) => with_expiry(reply, kept_for),
        None => reply,
    }
}

/// The stored answer of an earlier execution.
pub(crate) fn replay(answer: Answer, at: Timestamp, expires_in: Duration) -> Reply {
    let mut reply = Reply::guarded(Outcome::Replayed, response_of(answer));
    let headers = reply.response.headers_mut();
    headers.insert(headers::REPLAYED, HeaderValue::from_static("true"));
    insert_date(headers, headers::COMPLETED, UNIX_EPOCH + Duration::from_micros(at.0));
    with_expiry(reply, expires_in)
}

/// The ambiguous answer of an execution with an unknown end, marked as such.
pub(crate) fn unknown(answer: Answer) -> Reply {
    let mut reply = Reply::guarded(Outcome::Unknown, response_of(answer));
    reply.response.headers_mut().insert(headers::REPLAYED, HeaderValue::from_static("true"));
    reply
}

/// Tells until when the record is kept.
pub(crate) fn with_expiry(mut reply: Reply, expires_in: Duration) -> Reply {
    let headers = reply.response.headers_mut();
    insert_date(headers, headers::EXPIRES, SystemTime::now() + expires_in);
    reply
}

fn insert_date(headers: &mut http::HeaderMap, name: HeaderName, date: SystemTime) {
    // An HTTP date has four digits for the year; a damaged record may say anything.
    const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);
    if date.duration_since(UNIX_EPOCH).is_ok_and(|since| since < YEAR_10000)
        && let Ok(value) = HeaderValue::from_str(&httpdate::fmt_http_date(date))
    {
        headers.insert(name, value);
    }
}

/// A stored answer is checked again as if it came from outside: a header line that is not one
/// is left out, a status that is not one becomes 502.
fn response_of(answer: Answer) -> Response<Body> {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = status;
    for (name, value) in answer.headers {
        if let (Ok(name), Ok(value)) =
            (name.parse::<HeaderName>(), HeaderValue::from_maybe_shared(bytes::Bytes::from(value)))
        {
            response.headers_mut().append(name, value);
        }
    }
    response
}
