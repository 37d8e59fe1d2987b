//! The built-in plugins as the gateway runs them: compiled to WebAssembly, through the host.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncegate_plugin_host::{
    Decision, KeySource, LoadError, Needs, Part, Plugin, Request, derived_key, resolve,
};
use support::{host, load, post, request, source};

/// What became of a request, in one word and a text.
async fn outcome(plugin: &Plugin, request: &Arc<Request>) -> (&'static str, String) {
    match plugin.derive(request).await.expect("a decision") {
        Decision::Track(tracking) => match tracking.key {
            KeySource::Client(key) => ("key", key.expose().to_owned()),
            KeySource::Derived(parts) => {
                let resolved = resolve(&parts, request).expect("well-formed parts");
                ("key", derived_key(&resolved, None).expose().to_owned())
            }
        },
        Decision::Pass => ("pass", String::new()),
        Decision::Bypass(reason) => ("bypass", reason),
        Decision::Reject(refusal) => {
            assert_eq!(refusal.status, 400);
            ("reject", refusal.code)
        }
    }
}

#[tokio::test]
async fn header_key_reads_keys_as_the_specification_and_most_clients_write_them() {
    const UUID: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
    let host = host();
    let lenient = load(&host, "oncegate-header-key", "{}").await.expect("loads");
    let strict = load(&host, "oncegate-header-key", r#"{"syntax":"strict"}"#).await.expect("loads");
    let invalid = ("reject", "key-invalid");
    let long = |length: usize| format!("\"{}\"", "k".repeat(length));
    let quoted_uuid = format!("\"{UUID}\"");
    let (k255, k256, k8000, two_byte) =
        (long(255), long(256), long(8000), format!("\"{}\"", "é".repeat(128)));
    let key_255 = "k".repeat(255);

    type Outcome<'a> = (&'static str, &'a str);
    let cases: &[(&str, &[&[u8]], Outcome<'_>, Outcome<'_>)] = &[
        ("K01 quoted", &[quoted_uuid.as_bytes()], ("key", UUID), ("key", UUID)),
        ("K02 bare", &[UUID.as_bytes()], ("key", UUID), invalid),
        ("K03 empty", &[b""], invalid, invalid),
        ("K03 empty string", &[b"\"\""], invalid, invalid),
        ("K03 spaces", &[b"   "], invalid, invalid),
        ("K04 white space around", &[b" \t\"abc\" \t"], ("key", "abc"), ("key", "abc")),
        ("K04 white space inside", &[b"\" abc \""], ("key", " abc "), ("key", " abc ")),
        ("K05 not closed", &[b"\"abc"], invalid, invalid),
        ("K05 not opened", &[b"abc\""], invalid, invalid),
        ("K05 single quotes", &[b"'abc'"], ("key", "'abc'"), invalid),
        ("K07 not ASCII", &["ключ-1".as_bytes()], invalid, invalid),
        ("K07 not ASCII, quoted", &["\"ключ-1\"".as_bytes()], invalid, invalid),
        ("K08 tab", &[b"\"a\tb\""], invalid, invalid),
        ("K10 two equal lines", &[b"\"K\"", b"\"K\""], invalid, invalid),
        ("K11 two lines", &[b"\"a\"", b"\"b\""], invalid, invalid),
        ("K11 a list", &[b"\"a\", \"b\""], invalid, invalid),
        ("K11 a bare list", &[b"a, b"], invalid, invalid),
        ("K12 one byte", &[b"\"k\""], ("key", "k"), ("key", "k")),
        ("K12 255 bytes", &[k255.as_bytes()], ("key", &key_255), ("key", &key_255)),
        ("K12 256 bytes", &[k256.as_bytes()], invalid, invalid),
        ("K12 8000 bytes", &[k8000.as_bytes()], invalid, invalid),
        ("K12 128 characters", &[two_byte.as_bytes()], invalid, invalid),
        ("K18 none", &[], ("pass", ""), ("pass", "")),
        ("K21 space in quotes", &[b"\"order 17\""], ("key", "order 17"), ("key", "order 17")),
        ("K21 space in a bare key", &[b"order 17"], invalid, invalid),
        ("escapes", &[br#""a\"b\\c""#], ("key", r#"a"b\c"#), ("key", r#"a"b\c"#)),
        ("parameters", &[b"\"abc\";v=1;x"], ("key", "abc"), ("key", "abc")),
        ("parameters of a bare key", &[b"abc;v=1"], invalid, invalid),
    ];
    for (name, lines, expected_lenient, expected_strict) in cases {
        let headers: Vec<_> = lines.iter().map(|line| ("idempotency-key", *line)).collect();
        let request = post(&headers, "{}");
        let (word, text) = outcome(&lenient, &request).await;
        assert_eq!((word, text.as_str()), *expected_lenient, "{name}, lenient");
        let (word, text) = outcome(&strict, &request).await;
        assert_eq!((word, text.as_str()), *expected_strict, "{name}, strict");
    }
}

#[tokio::test]
async fn header_key_can_be_required_renamed_and_shortened() {
    let config = r#"{"header":"X-Request-Id","required":true,"max_bytes":4}"#;
    let plugin = load(&host(), "oncegate-header-key", config).await.expect("loads");
    let check = async |name: &'static str, value: &[u8], expected: (&str, &str)| {
        let (word, text) = outcome(&plugin, &post(&[(name, value)], "")).await;
        assert_eq!((word, text.as_str()), expected);
    };
    check("idempotency-key", b"abcd", ("reject", "key-missing")).await;
    check("x-request-id", b"abcd", ("key", "abcd")).await;
    check("x-request-id", b"abcde", ("reject", "key-invalid")).await;
}

#[tokio::test]
async fn header_key_leaves_fingerprint_and_scope_to_the_route() {
    let plugin = load(&host(), "oncegate-header-key", "").await.expect("loads");
    let decision = plugin.derive(&post(&[("idempotency-key", b"k")], "")).await;
    let Ok(Decision::Track(tracking)) = decision else { panic!("{decision:?}") };
    assert!(tracking.fingerprint.is_empty() && tracking.scope.is_empty());
    assert_eq!(tracking.retention, None);
    assert_eq!(plugin.manifest().name, "header-key");
    assert_eq!(plugin.manifest().needs, Needs::default());
}

#[tokio::test]
async fn a_wrong_configuration_is_refused_with_its_place() {
    let host = host();
    let check = async |package: &'static str, config: &str, expected: &[&str]| match load(
        &host, package, config,
    )
    .await
    {
        Err(LoadError::Configure(problems)) => {
            let places: Vec<&str> = problems.iter().map(|p| p.at.as_str()).collect();
            assert_eq!(places, expected, "{config}");
        }
        other => panic!("{config}: {other:?}"),
    };
    check("oncegate-header-key", r#"{"heder":"X","max_bytes":256}"#, &["/max_bytes", "/heder"])
        .await;
    check("oncegate-fingerprint", "{}", &["/parts"]).await;
    check("oncegate-fingerprint", r#"{"parts":["body","x"]}"#, &["/parts/1"]).await;
    check("oncegate-fingerprint", r#"{"parts":["body-json"],"ignore":["a"]}"#, &["/ignore/0"])
        .await;
}

/// Whether two requests get one key under this configuration.
async fn same(config: &str, left: Request, right: Request) -> bool {
    let plugin = load(&host(), "oncegate-fingerprint", config).await.expect("loads");
    let (left, right) = (Arc::new(left), Arc::new(right));
    let (first, second) = (outcome(&plugin, &left).await, outcome(&plugin, &right).await);
    assert_eq!((first.0, second.0), ("key", "key"), "{config}");
    first.1 == second.1
}

#[tokio::test]
async fn fingerprint_compares_bodies_as_configured() {
    let raw = r#"{"parts":["method","path","body"]}"#;
    let json = r#"{"parts":["method","path","body-json"]}"#;
    let ignore = r#"{"parts":["body-json"],"ignore":["/sent_at"]}"#;
    let body = |text: &str| request(&[], text);
    let cases = [
        ("F01 raw", raw, r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, false),
        ("F01 json", json, r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, true),
        ("F02 raw", raw, r#"{"a":1}"#, r#"{ "\u0061": 1 }"#, false),
        ("F02 json", json, r#"{"a":1}"#, r#"{ "\u0061": 1 }"#, true),
        ("F03 raw", raw, "[1,2]", "[2,1]", false),
        ("F03 json", json, "[1,2]", "[2,1]", false),
        ("F05", json, r#"{"n":9007199254740993}"#, r#"{"n":9007199254740992}"#, false),
        ("F05 equal", json, r#"{"n":1.0}"#, r#"{"n":1e0}"#, true),
        ("F09", json, "not json", "not json", true),
        ("F09 other", json, "not json", "not json either", false),
        ("ignored", ignore, r#"{"a":1,"sent_at":1}"#, r#"{"sent_at":2,"a":1}"#, true),
        ("not ignored", ignore, r#"{"a":1,"sent_at":1}"#, r#"{"sent_at":1,"a":2}"#, false),
    ];
    for (name, config, left, right, expected) in cases {
        assert_eq!(same(config, body(left), body(right)).await, expected, "{name}");
    }
}

#[tokio::test]
async fn fingerprint_compares_forms_without_their_boundary() {
    let form = |boundary: &str, file: &str| {
        let body = format!("--{boundary}\r\nA: b\r\n\r\n{file}\r\n--{boundary}--\r\n");
        let kind = format!("multipart/form-data; boundary={boundary}");
        request(&[("content-type", kind.as_bytes())], &body)
    };
    let aware = r#"{"parts":["body-multipart"]}"#;
    assert!(same(aware, form("one", "x"), form("two", "x")).await, "F10");
    assert!(!same(r#"{"parts":["body"]}"#, form("one", "x"), form("two", "x")).await, "F10 raw");
    assert!(!same(aware, form("one", "x"), form("one", "y")).await, "F11");
}

#[tokio::test]
async fn fingerprint_keeps_parts_apart() {
    let at = |path: &str, query: Option<&str>, body: &str| Request {
        path: path.into(),
        query: query.map(Into::into),
        ..request(&[], body)
    };
    let all = r#"{"parts":["path","query","body"]}"#;
    assert!(!same(all, at("/a", None, "bc"), at("/ab", None, "c")).await, "F16");
    assert!(!same(all, at("/a", Some(""), ""), at("/a", None, "")).await, "F16");
    let params = r#"{"parts":["query:a","query:b"],"absent":"include"}"#;
    let (left, right) = (at("/", Some("a=&a=b&c="), ""), at("/", Some("a=&b=c&b="), ""));
    assert!(!same(params, left, right).await, "F16");
}

#[tokio::test]
async fn fingerprint_makes_no_key_from_a_value_that_is_not_there() {
    let host = host();
    let present = request(&[("webhook-id", b"msg_1")], r#"{"id":7}"#);
    let present = Arc::new(Request {
        query: Some("q=1".into()),
        path_params: vec![("p".into(), "1".into())],
        principal: Some("alice".into()),
        ..present
    });
    let absent = post(&[], r#"{"id":null}"#);
    for part in ["header:Webhook-Id", "json:/id", "query:q", "path-param:p", "principal"] {
        let config = |absent: &str| format!(r#"{{"parts":["{part}"],"absent":"{absent}"}}"#);
        for (mode, expected) in [("pass", "pass"), ("reject", "reject"), ("include", "key")] {
            let plugin = load(&host, "oncegate-fingerprint", &config(mode)).await.expect("loads");
            assert_eq!(outcome(&plugin, &present).await.0, "key", "{part} {mode}");
            assert_eq!(outcome(&plugin, &absent).await.0, expected, "{part} {mode}");
        }
    }
}

#[tokio::test]
async fn fingerprint_hands_on_its_retention_and_needs() {
    let config = r#"{"parts":["principal","body"],"retention_ms":60000}"#;
    let plugin = load(&host(), "oncegate-fingerprint", config).await.expect("loads");
    assert_eq!(plugin.manifest().needs, Needs { body: true, principal: true });
    let request = Arc::new(Request { principal: Some("a".into()), ..request(&[], "x") });
    let Ok(Decision::Track(tracking)) = plugin.derive(&request).await else { panic!() };
    assert_eq!(tracking.retention, Some(Duration::from_secs(60)));
    assert_eq!(tracking.key, KeySource::Derived(vec![Part::Principal, Part::BodyBytes]));
}

#[tokio::test]
async fn a_pinned_plugin_is_loaded_only_with_these_bytes() {
    let host = host();
    let plain = host.load(source("oncegate-header-key", "{}")).await.expect("loads");
    let digest = oncegate_core::unhex(plain.digest_hex()).expect("hexadecimal");
    let pin: [u8; 32] = digest.try_into().expect("32 bytes");
    let mut pinned = source("oncegate-header-key", "{}");
    pinned.sha256 = Some(pin);
    host.load(pinned.clone()).await.expect("the pinned bytes load");
    pinned.sha256 = Some([7; 32]);
    let error = host.load(pinned).await.expect_err("other bytes do not");
    assert_eq!(error.code(), "pin-mismatch");
}
