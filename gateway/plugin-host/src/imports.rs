//! What a guest may call, and the gate that lets nothing else in.
//!
//! Every function counts its call, answers in time proportional to its input, and hands out
//! copies. Guest pointers do not occur here: the component model lifts and checks every value
//! before these functions run.

use std::sync::Arc;
use std::time::Instant;

use hmac::Mac;
use oncegate_core::hex;
use regex::{Regex, RegexBuilder};
use sha2::{Digest, Sha256};
use wasmtime::component::Component;
use wasmtime::{Engine, ResourceLimiter};

use crate::bindings::oncegate::plugin::body::BodyError;
use crate::bindings::oncegate::plugin::{body, log, request, tools, types};
use crate::canonical::{Json, JsonError, Pointer};
use crate::error::{LoadError, Stop};
use crate::parts::keyed;
use crate::plugin::{Needs, Surroundings};
use crate::request::Request;

/// Bytes that a guest gets from one `read` or one JSON value.
const READ_BYTES_MAX: usize = 64 * 1024;
/// JSON text that a guest may hand over.
const JSON_BYTES_MAX: usize = 1024 * 1024;
/// A match costs up to the product of pattern and text, and cannot be interrupted.
const PATTERN_BYTES_MAX: usize = 1024;
const PATTERN_COMPILED_BYTES_MAX: usize = 64 * 1024;
const TEXT_BYTES_MAX: usize = 8 * 1024;
/// Lines that one call may write to the log, and how long they may be.
const LOG_LINES_MAX: u32 = 16;
const LOG_BYTES_MAX: usize = 512;

/// What the host knows about one instance.
pub(crate) struct State {
    pub(crate) surroundings: Arc<Surroundings>,
    pub(crate) memory: Memory,
    /// When the instance must be done, configuration included.
    pub(crate) deadline: Instant,
    /// The request, during `derive` only.
    request: Option<Arc<Request>>,
    needs: Needs,
    calls_left: u32,
    log_lines_left: u32,
}

impl State {
    pub(crate) fn new(
        surroundings: Arc<Surroundings>,
        memory_bytes: usize,
        host_calls: u32,
        deadline: Instant,
    ) -> Self {
        Self {
            surroundings,
            memory: Memory { taken: 0, max: memory_bytes, denied: false },
            deadline,
            request: None,
            needs: Needs::default(),
            calls_left: host_calls,
            log_lines_left: LOG_LINES_MAX,
        }
    }

    /// From here on the guest may look at this request, as far as it declared.
    pub(crate) fn bind(&mut self, request: Arc<Request>, needs: Needs) {
        self.request = Some(request);
        self.needs = needs;
    }

    fn count(&mut self) -> Result<(), Stop> {
        self.calls_left = self.calls_left.checked_sub(1).ok_or(Stop::TooManyHostCalls)?;
        Ok(())
    }

    fn request(&mut self) -> Result<&Request, Stop> {
        self.count()?;
        self.request.as_deref().ok_or(Stop::NotNow)
    }

    /// The request, if its body may be looked at; otherwise what to tell the guest.
    fn body(&mut self) -> Result<Result<&Request, BodyError>, Stop> {
        let declared = self.needs.body;
        let request = self.request()?;
        Ok(if declared { Ok(request) } else { Err(BodyError::NotBuffered) })
    }
}

/// Bounds the memory of one instance, all its memories together, and remembers a refusal: the
/// trap that a guest makes of it says nothing of the cause.
pub(crate) struct Memory {
    taken: usize,
    max: usize,
    pub(crate) denied: bool,
}

impl ResourceLimiter for Memory {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let taken = self.taken.saturating_add(desired.saturating_sub(current));
        if taken > self.max {
            self.denied = true;
            return Ok(false);
        }
        self.taken = taken;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        _desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // Bounded by the pool's table size.
        Ok(true)
    }
}

impl types::Host for State {}

impl request::Host for State {
    fn method(&mut self) -> wasmtime::Result<String> {
        Ok(self.request()?.method.clone())
    }

    fn route(&mut self) -> wasmtime::Result<String> {
        Ok(self.request()?.route.clone())
    }

    fn scheme(&mut self) -> wasmtime::Result<String> {
        Ok(self.request()?.scheme.clone())
    }

    fn authority(&mut self) -> wasmtime::Result<String> {
        Ok(self.request()?.authority.clone())
    }

    fn path(&mut self) -> wasmtime::Result<String> {
        Ok(self.request()?.path.clone())
    }

    fn path_param(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        Ok(self.request()?.path_param(&name).map(Into::into))
    }

    fn query(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(self.request()?.query.clone())
    }

    fn query_param(&mut self, name: String) -> wasmtime::Result<Vec<String>> {
        let values = self.request()?.query_param(&name);
        Ok(values.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect())
    }

    fn header_names(&mut self) -> wasmtime::Result<Vec<String>> {
        let mut names: Vec<String> =
            self.request()?.headers.keys().map(|name| name.as_str().into()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn header(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        let first = self.request()?.header_values(&name).next();
        Ok(first.and_then(|line| std::str::from_utf8(line).ok()).map(Into::into))
    }

    fn header_values(&mut self, name: String) -> wasmtime::Result<Vec<Vec<u8>>> {
        Ok(self.request()?.header_values(&name).map(<[u8]>::to_vec).collect())
    }

    fn principal(&mut self) -> wasmtime::Result<Option<String>> {
        let declared = self.needs.principal;
        let principal = self.request()?.principal.clone();
        // Answering "nobody" would silently make one key for all callers.
        if declared { Ok(principal) } else { Err(Stop::NotDeclared.into()) }
    }
}

impl body::Host for State {
    fn size(&mut self) -> wasmtime::Result<Result<u64, BodyError>> {
        Ok(self.body()?.map(|request| request.body.len() as u64))
    }

    fn content_type(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(self.request()?.content_type().map(Into::into))
    }

    fn sha256(&mut self) -> wasmtime::Result<Result<Vec<u8>, BodyError>> {
        Ok(self.body()?.map(|request| request.body_sha256().to_vec()))
    }

    fn read(&mut self, offset: u64, len: u32) -> wasmtime::Result<Result<Vec<u8>, BodyError>> {
        Ok(self.body()?.map(|request| slice(&request.body, offset, len).to_vec()))
    }

    fn json(&mut self, pointer: String) -> wasmtime::Result<Result<Option<String>, BodyError>> {
        Ok(self.body()?.and_then(|request| {
            let pointer = Pointer::parse(&pointer).ok_or(BodyError::BadPointer)?;
            let value = request.json()?.at(&pointer).map(Json::to_text);
            match value {
                Some(text) if text.len() > READ_BYTES_MAX => Err(BodyError::TooLarge),
                value => Ok(value),
            }
        }))
    }

    fn json_sha256(&mut self) -> wasmtime::Result<Result<Vec<u8>, BodyError>> {
        Ok(self.body()?.and_then(|request| Ok(Sha256::digest(request.json_text()?).to_vec())))
    }
}

/// At most so many bytes from there, fewer at the end.
fn slice(bytes: &[u8], offset: u64, len: u32) -> &[u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let rest = &bytes[start..];
    &rest[..rest.len().min(len as usize).min(READ_BYTES_MAX)]
}

impl From<JsonError> for BodyError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::NotJson => Self::NotJson,
            JsonError::DuplicateName => Self::DuplicateName,
            JsonError::TooDeep => Self::TooLarge,
        }
    }
}

impl tools::Host for State {
    fn sha256(&mut self, data: Vec<u8>) -> wasmtime::Result<Vec<u8>> {
        self.count()?;
        Ok(Sha256::digest(data).to_vec())
    }

    fn hmac_sha256(
        &mut self,
        secret: String,
        data: Vec<u8>,
    ) -> wasmtime::Result<Result<Vec<u8>, String>> {
        self.count()?;
        let Some(bytes) = self.surroundings.secrets.get(&secret) else {
            return Ok(Err(format!("there is no secret named {secret:?}")));
        };
        Ok(Ok(keyed(bytes).chain_update(data).finalize().into_bytes().to_vec()))
    }

    fn canonical_json(&mut self, json: String) -> wasmtime::Result<Result<String, String>> {
        self.count()?;
        Ok(parse_json(&json).map(|json| json.to_text()))
    }

    fn json_pointer(
        &mut self,
        json: String,
        pointer: String,
    ) -> wasmtime::Result<Result<Option<String>, String>> {
        self.count()?;
        Ok(parse_json(&json).and_then(|json| {
            let pointer = Pointer::parse(&pointer)
                .ok_or_else(|| format!("{pointer:?} is not a JSON pointer"))?;
            Ok(json.at(&pointer).map(Json::to_text))
        }))
    }

    fn regex_captures(
        &mut self,
        pattern: String,
        text: String,
    ) -> wasmtime::Result<Result<Option<Vec<Option<String>>>, String>> {
        self.count()?;
        Ok(captures(&self.surroundings, &pattern, &text))
    }

    fn hex(&mut self, data: Vec<u8>) -> wasmtime::Result<String> {
        self.count()?;
        Ok(hex(&data))
    }
}

fn parse_json(text: &str) -> Result<Json, String> {
    if text.len() > JSON_BYTES_MAX {
        return Err(format!(
            "the text has {} bytes, at most {JSON_BYTES_MAX} are read",
            text.len()
        ));
    }
    Json::parse(text.as_bytes()).map_err(|error| error.to_string())
}

fn captures(
    surroundings: &Surroundings,
    pattern: &str,
    text: &str,
) -> Result<Option<Vec<Option<String>>>, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!(
            "the text has {} bytes, at most {TEXT_BYTES_MAX} are matched",
            text.len()
        ));
    }
    let regex = surroundings.patterns.get(pattern, || compile(pattern))?;
    Ok(regex
        .captures(text)
        .map(|found| found.iter().map(|group| group.map(|group| group.as_str().into())).collect()))
}

fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("a pattern has at most {PATTERN_BYTES_MAX} bytes"));
    }
    RegexBuilder::new(pattern)
        .size_limit(PATTERN_COMPILED_BYTES_MAX)
        .dfa_size_limit(PATTERN_COMPILED_BYTES_MAX)
        .build()
        .map_err(|error| error.to_string())
}

impl log::Host for State {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        self.count()?;
        let Some(left) = self.log_lines_left.checked_sub(1) else { return Ok(()) };
        self.log_lines_left = left;
        let plugin = &*self.surroundings.name;
        let message = one_line(&message);
        match level {
            log::Level::Debug => tracing::debug!(plugin, message, "plugin message"),
            log::Level::Info => tracing::info!(plugin, message, "plugin message"),
            log::Level::Warn => tracing::warn!(plugin, message, "plugin message"),
            log::Level::Error => tracing::error!(plugin, message, "plugin message"),
        }
        Ok(())
    }
}

/// A guest must not be able to write a line that looks like the gateway's own.
fn one_line(message: &str) -> String {
    let end = message.floor_char_boundary(LOG_BYTES_MAX);
    message[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Lets a component pass that imports nothing but this interface, in any version of 1.x.
pub(crate) fn check_imports(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    match component.component_type().imports(engine).find(|(name, _)| !is_ours(name)) {
        None => Ok(()),
        Some((name, _)) => {
            Err(LoadError::ForbiddenImport { import: name.into(), hint: hint(name) })
        }
    }
}

fn is_ours(import: &str) -> bool {
    import.starts_with("oncegate:plugin/")
        && import.split_once('@').is_some_and(|(_, version)| version.starts_with("1."))
}

/// How the usual toolchains are told to leave it out.
fn hint(import: &str) -> &'static str {
    if import.starts_with("oncegate:plugin/") {
        "build it against version 1 of the interface"
    } else if import.starts_with("wasi:") {
        "build without WASI. Rust: target wasm32-unknown-unknown; componentize-js: `-d stdio random \
         clocks http fetch-event`; componentize-qjs and componentize-py: `--stub-wasi`; other \
         toolchains: `wasm-tools component new --adapt` with an adapter that answers with constants"
    } else {
        "remove it; plugins get the request, the body, tools and a log, nothing else"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_interface_may_be_imported() {
        for ours in ["oncegate:plugin/request@1.0.0", "oncegate:plugin/later@1.7.3"] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in [
            "wasi:clocks/wall-clock@0.2.6",
            "oncegate:plugin/request@2.0.0",
            "oncegate:plugin/request",
            "oncegate:plugin/request@10.0.0",
            "oncegate:plugins/request@1.0.0",
            "env",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }

    fn state(host_calls: u32) -> State {
        let secrets = [("k".to_owned(), b"Jefe".to_vec())].into();
        let surroundings = Surroundings {
            name: "test".into(),
            config: "{}".into(),
            secrets: Arc::new(secrets),
            patterns: Default::default(),
        };
        State::new(Arc::new(surroundings), 1024, host_calls, Instant::now())
    }

    fn bound(body: &str, needs: Needs) -> State {
        let mut request = Request {
            method: "POST".into(),
            query: Some("a=1&a=%FF".into()),
            principal: Some("alice".into()),
            body: body.to_owned().into(),
            ..Request::default()
        };
        for (name, value) in [("x-b", &b"1"[..]), ("x-a", b"\xff"), ("x-b", b"2")] {
            let value = http::HeaderValue::from_bytes(value).expect("a header value");
            request.headers.append(name, value);
        }
        let mut state = state(100);
        state.bind(Arc::new(request), needs);
        state
    }

    const ALL: Needs = Needs { body: true, principal: true };

    #[track_caller]
    fn stopped<T: std::fmt::Debug>(answer: wasmtime::Result<T>, expected: Stop) {
        let error = answer.expect_err("a stop");
        assert_eq!(error.downcast_ref::<Stop>(), Some(&expected));
    }

    #[test]
    fn there_is_no_request_before_derive() {
        stopped(request::Host::method(&mut state(9)), Stop::NotNow);
        stopped(body::Host::size(&mut state(9)), Stop::NotNow);
        assert!(tools::Host::hex(&mut state(9), vec![1]).is_ok());
    }

    #[test]
    fn calls_are_counted() {
        let mut state = state(2);
        for _ in 0..2 {
            tools::Host::hex(&mut state, vec![]).expect("within the limit");
        }
        stopped(tools::Host::hex(&mut state, vec![]), Stop::TooManyHostCalls);
        stopped(request::Host::path(&mut state), Stop::TooManyHostCalls);
    }

    #[test]
    fn what_is_not_declared_is_not_shown() {
        let mut state = bound("{}", Needs::default());
        stopped(request::Host::principal(&mut state), Stop::NotDeclared);
        let refused = Some(BodyError::NotBuffered);
        assert_eq!(body::Host::size(&mut state).expect("an answer").err(), refused);
        assert_eq!(body::Host::json(&mut state, String::new()).expect("an answer").err(), refused);
    }

    #[test]
    fn the_request_is_shown_as_it_is() {
        let mut state = bound("", ALL);
        let state = &mut state;
        assert_eq!(request::Host::method(state).expect("method"), "POST");
        assert_eq!(request::Host::principal(state).expect("caller").as_deref(), Some("alice"));
        assert_eq!(request::Host::header_names(state).expect("names"), ["x-a", "x-b"]);
        let mut values = |name: &str| request::Host::header_values(state, name.into());
        assert_eq!(values("X-B").expect("lines"), [b"1", b"2"]);
        assert_eq!(values("x-a").expect("lines"), [b"\xff"]);
        assert!(values("not a name").expect("lines").is_empty());
        assert_eq!(request::Host::header(state, "x-a".into()).expect("text"), None);
        let decoded = request::Host::query_param(state, "a".into()).expect("values");
        assert_eq!(decoded, ["1", "\u{fffd}"]);
    }

    #[test]
    fn the_body_is_shown_in_pieces_and_values() {
        let mut state = bound(r#"{"b":[1.0,"x"],"a":null}"#, ALL);
        let mut json =
            |pointer: &str| body::Host::json(&mut state, pointer.into()).expect("an answer");
        assert_eq!(json("/b").expect("json").as_deref(), Some(r#"[1,"x"]"#));
        assert_eq!(json("/c").expect("json"), None);
        assert_eq!(json("c"), Err(BodyError::BadPointer));
        let whole = body::Host::json_sha256(&mut state).expect("an answer").expect("json");
        assert_eq!(whole, Sha256::digest(br#"{"a":null,"b":[1,"x"]}"#).to_vec());
        assert_eq!(
            body::Host::read(&mut state, 1, 3).expect("an answer").expect("bytes"),
            b"\"b\""
        );

        let json = |text: &str| {
            body::Host::json(&mut bound(text, ALL), String::new()).expect("an answer").err()
        };
        assert_eq!(json("x"), Some(BodyError::NotJson));
        assert_eq!(json(r#"{"a":1,"a":1}"#), Some(BodyError::DuplicateName));
        assert_eq!(json(&"[".repeat(200)), Some(BodyError::TooLarge));
        assert_eq!(json(&format!("\"{}\"", "x".repeat(READ_BYTES_MAX))), Some(BodyError::TooLarge));
    }

    #[test]
    fn tools_answer_or_say_why_not() {
        let mut state = state(100);
        let state = &mut state;
        let mut hmac = |secret: &str| {
            let data = b"what do ya want for nothing?".to_vec();
            tools::Host::hmac_sha256(state, secret.into(), data).expect("an answer")
        };
        // RFC 4231, test case 2.
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&hmac("k").expect("a digest")), expected);
        assert!(hmac("other").is_err());
        let canonical = tools::Host::canonical_json(state, "{\"b\":1e0, \"a\":2}".into());
        assert_eq!(canonical.expect("an answer").as_deref(), Ok(r#"{"a":2,"b":1}"#));
        let value = tools::Host::json_pointer(state, "[1]".into(), "/0".into());
        assert_eq!(value.expect("an answer"), Ok(Some("1".into())));
        assert!(parse_json(&" ".repeat(JSON_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn patterns_are_matched_within_limits() {
        let state = state(100);
        let captures = |pattern: &str, text: &str| captures(&state.surroundings, pattern, text);
        let groups = captures("(a)|(b)", "xb").expect("valid").expect("a match");
        assert_eq!(groups, [Some("b".to_owned()), None, Some("b".to_owned())]);
        assert_eq!(captures("^a$", "b"), Ok(None));
        assert!(captures("(", "").is_err());
        assert!(captures(r"(a)\1", "").is_err(), "no back-references");
        assert!(captures(&"a".repeat(PATTERN_BYTES_MAX + 1), "").is_err());
        assert!(captures("((a{100}){100}){100}", "").is_err());
        assert!(captures("a", &"a".repeat(TEXT_BYTES_MAX + 1)).is_err());
        // More patterns than are kept: the same answers.
        for round in 0..2 {
            for number in 0..200 {
                let found = captures(&format!("^{number}$"), &number.to_string());
                assert!(matches!(found, Ok(Some(_))), "{round} {number}");
            }
        }
    }

    #[test]
    fn reads_stay_inside_the_body() {
        let bytes = vec![7; READ_BYTES_MAX + 10];
        let len = |offset, len| slice(&bytes, offset, len).len();
        assert_eq!(len(0, 5), 5);
        assert_eq!(len(0, u32::MAX), READ_BYTES_MAX);
        assert_eq!(len(READ_BYTES_MAX as u64 + 5, 100), 5);
        assert_eq!(len(u64::MAX, 1), 0);
    }

    #[test]
    fn memory_is_counted_over_all_memories() {
        let mut memory = Memory { taken: 0, max: 100, denied: false };
        let mut grow = |current, desired| {
            let allowed = memory.memory_growing(current, desired, None).expect("an answer");
            (allowed, memory.denied)
        };
        assert_eq!(grow(0, 60), (true, false));
        assert_eq!(grow(0, 40), (true, false));
        assert_eq!(grow(40, 41), (false, true));
    }

    #[test]
    fn a_log_message_is_one_bounded_line() {
        assert_eq!(one_line("a\r\nb\u{85}"), "a  b ");
        assert_eq!(one_line(&"é".repeat(300)).len(), LOG_BYTES_MAX);
        assert_eq!(one_line(&format!("x{}", "é".repeat(300))).len(), LOG_BYTES_MAX - 1);
    }
}
