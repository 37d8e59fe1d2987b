//! What a loaded generation holds, and what becomes of files, environment and errors.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncegate_policy::{
    Component, Environment, FingerprintMode, InFlight, Loaded, Meaning, MissingKey, Mode,
    OnPluginError, OnStoreError, OnUnknown, Problems, Quick, ScopeSource, Source, StoreUrl, load,
    quick,
};
use proptest::prelude::*;

/// Loads a directory of these files.
fn load_files(files: &[(&str, &str)], env: &[(&str, &str)]) -> Result<Loaded, String> {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        fs::write(directory.path().join(name), text).expect("written");
    }
    load_directory(directory.path(), env).map_err(|problems| relative(&problems, directory.path()))
}

fn load_directory(path: &Path, env: &[(&str, &str)]) -> Result<Loaded, Problems> {
    load(&Source { path: path.to_path_buf(), env: env.iter().copied().collect() })
}

fn relative(problems: &Problems, directory: &Path) -> String {
    problems.to_string().replace(&format!("{}/", directory.display()), "")
}

fn sound(files: &[(&str, &str)], env: &[(&str, &str)]) -> Loaded {
    load_files(files, env).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(files: &[(&str, &str)], env: &[(&str, &str)]) -> String {
    load_files(files, env).expect_err("must be refused")
}

const BASE: &str = r#"
[upstream.u]
endpoints = ["http://127.0.0.1:9001"]
[plugin.k]
component = "builtin:header-key"
"#;

const ROUTE: &str = r#"
[[route]]
operation = "pay"
match = { methods = ["POST"], path = "/pay" }
upstream = "u"
key = ["k"]
scope = { header = "X-Api-Key" }
"#;

/// A policy with one guarded route that has these further lines.
fn with(lines: &str) -> String {
    format!("{BASE}{ROUTE}{lines}\n")
}

#[test]
fn a_route_that_says_little_gets_the_documented_defaults() {
    let loaded = sound(&[("a.toml", &with(""))], &[]);
    let route = &loaded.policy.routes[0];
    let guard = route.guard.as_ref().expect("guarded");
    assert_eq!(route.upstream_timeout, Duration::from_secs(30));
    assert_eq!(guard.plugins, ["k"]);
    assert_eq!(guard.missing_key, MissingKey::Reject);
    assert_eq!(guard.scope, ScopeSource::Header("x-api-key".to_owned()));
    assert_eq!(guard.fingerprint.mode, FingerprintMode::Raw);
    assert_eq!(guard.retention, Duration::from_secs(86_400));
    assert_eq!(guard.retention_max, guard.retention);
    assert_eq!(guard.client_retries_for, None);
    assert_eq!(guard.lease, Duration::from_secs(30));
    assert_eq!(guard.answer_within, None);
    assert_eq!(guard.in_flight, InFlight::Conflict);
    assert_eq!(guard.in_flight_status, 409);
    assert_eq!(guard.on_unknown, OnUnknown::Hold);
    assert_eq!(guard.on_store_error, OnStoreError::Reject);
    assert_eq!(guard.on_plugin_error, OnPluginError::Reject);
    assert_eq!(guard.forward_as.as_deref(), Some("Idempotency-Key"));
    assert!(!guard.forward_fence && !guard.two_phase && guard.settle.keep);
    assert_eq!((guard.max_body, guard.max_answer), (1 << 20, 1 << 20));
    assert!(guard.replay_drop.drops("set-cookie") && !guard.replay_drop.drops("location"));
    assert_eq!(guard.mode, Mode::Enforce);
    assert_eq!(guard.settle.meaning(503), Meaning::Release);
    assert!(route.guard_for("POST").is_some() && route.guard_for("GET").is_none());
}

#[test]
fn a_route_that_says_everything_is_heard() {
    let lines = r#"
upstream_timeout = "45s"
missing_key = "forward"
fingerprint = { mode = "json", ignore = ["/sent_at"], headers = ["X-B", "x-a", "X-a"] }
retention = "48h"
retention_max = "72h"
client_retries_for = "24h"
lease = "10s"
answer_within = "20s"
in_flight = { wait = "5s" }
in_flight_status = 425
settle = { store = [404], release = ["4xx"], unknown = ["5xx"], keep = false }
on_unknown = "retry"
on_store_error = "forward"
on_plugin_error = "next"
forward_as = "X-Request-Key"
forward_fence = true
two_phase = true
max_body = "64KiB"
max_answer = 1000
replay_drop = ["X-Shard"]
replay_keep = ["Date"]
mode = "enforce"
"#;
    let loaded = sound(&[("a.toml", &with(lines))], &[]);
    let route = &loaded.policy.routes[0];
    let guard = route.guard.as_ref().expect("guarded");
    assert_eq!(route.upstream_timeout, Duration::from_secs(45));
    assert_eq!(guard.fingerprint.headers, ["x-a", "x-b"]);
    let FingerprintMode::Json { ignore } = &guard.fingerprint.mode else { panic!("not json") };
    assert_eq!(ignore[0].steps(), ["sent_at"]);
    assert_eq!(guard.retention_max, Duration::from_secs(72 * 3_600));
    assert_eq!(guard.answer_within, Some(Duration::from_secs(20)));
    assert_eq!(guard.in_flight, InFlight::Wait(Duration::from_secs(5)));
    assert_eq!(guard.settle.meaning(404), Meaning::Store);
    assert_eq!(guard.settle.meaning(400), Meaning::Release);
    assert_eq!(guard.settle.meaning(503), Meaning::Unknown);
    assert_eq!(guard.forward_as.as_deref(), Some("X-Request-Key"));
    assert_eq!((guard.max_body, guard.max_answer), (65_536, 1_000));
    assert!(guard.replay_drop.drops("x-shard") && !guard.replay_drop.drops("date"));
}

#[test]
fn forwarding_the_key_can_be_switched_off() {
    for line in ["forward_as = false", "forward_as = \"none\""] {
        let loaded = sound(&[("a.toml", &with(line))], &[]);
        let guard = loaded.policy.routes[0].guard.as_ref().expect("guarded");
        assert_eq!(guard.forward_as, None, "{line}");
    }
}

#[test]
fn several_files_in_both_languages_are_one_policy() {
    let yaml = r#"
route:
  - operation: ship
    match: { methods: [POST], path: "/orders/{id}/ship" }
    upstream: u
    key: [k]
    scope: shared
  - operation: read
    match: { path: "/{*rest}" }
    upstream: u
"#;
    let files = [("10-base.toml", BASE), ("20-pay.toml", ROUTE), ("30-ship.yaml", yaml)];
    let loaded = sound(&files, &[]);
    let names: Vec<&str> = loaded.policy.routes.iter().map(|r| r.operation.as_str()).collect();
    assert_eq!(names, ["pay", "ship", "read"]);
    let matched = loaded.policy.route("any", "POST", "/orders/7/ship").expect("a route");
    assert_eq!(matched.route.operation.as_str(), "ship");
    assert_eq!(matched.params, [("id".to_owned(), "7".to_owned())]);
    let matched = loaded.policy.route("any", "GET", "/orders/7/ship").expect("a route");
    assert_eq!(matched.route.operation.as_str(), "read");
    assert!(matched.route.guard.is_none());
}

#[test]
fn all_that_must_be_watched_is_listed() {
    let directory = tempfile::tempdir().expect("a directory");
    let plugin = "[plugin.w]\ncomponent = \"plugins/w.wasm\"\n";
    fs::write(directory.path().join("a.toml"), with("")).expect("written");
    fs::write(directory.path().join("b.toml"), plugin).expect("written");
    fs::write(directory.path().join("notes.txt"), "not a policy").expect("written");
    fs::write(directory.path().join(".hidden.toml"), "not a policy").expect("written");
    let loaded = load_directory(directory.path(), &[]).expect("sound");
    let at = |name: &str| directory.path().join(name);
    assert_eq!(
        loaded.policy.files,
        [at(""), at("a.toml"), at("b.toml"), at("plugins/w.wasm")]
            .map(|path| path.components().collect::<std::path::PathBuf>())
    );
    let plugin = &loaded.policy.plugins["w"];
    assert_eq!(plugin.component, Component::File(at("plugins/w.wasm")));
    assert_eq!(plugin.declared_in, at("b.toml"));
    let warnings: Vec<String> = loaded.policy.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [format!("{}: plugin.w: is not used by any route", at("b.toml").display())]
    );
}

#[test]
fn a_refused_policy_tells_what_to_watch() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| -> PathBuf { directory.path().join(name).components().collect() };
    let plugin = "[plugin.w]\ncomponent = \"../plugins/w.wasm\"\n";
    fs::create_dir(at("policies")).expect("created");
    fs::write(at("policies/a.toml"), with("retention = 0") + plugin).expect("written");
    fs::write(at("elsewhere.toml"), "not toml").expect("written");
    std::os::unix::fs::symlink("../elsewhere.toml", at("policies/b.toml")).expect("linked");
    let problems = load_directory(&at("policies"), &[]).expect_err("refused");
    assert_eq!(
        problems.watched(),
        [
            at("policies"),
            at("policies/../plugins/w.wasm"),
            at("policies/a.toml"),
            at("policies/b.toml")
        ]
    );
    // What is watched is not part of what is wrong.
    let same = Problems::of(problems.iter().cloned().collect()).expect("problems");
    assert!(same.watched().is_empty());
    assert_eq!(same, problems);
    assert_eq!(same.to_string(), problems.to_string());

    let missing = load_directory(&at("gone"), &[]).expect_err("refused");
    assert_eq!(missing.watched(), [at("gone")]);
}

#[test]
fn a_redirect_cannot_be_released() {
    for (status, accepted) in [("303", false), ("302", false), ("\"3xx\"", false), ("404", true)] {
        let text = with(&format!("settle = {{ release = [{status}] }}"));
        let loaded = load_files(&[("a.toml", &text)], &[]);
        assert_eq!(loaded.is_ok(), accepted, "{status}");
        if let Err(said) = loaded {
            let rule = "a.toml: route[0].settle.release[0]: must not be a redirect";
            assert!(said.starts_with(rule), "{said}");
        }
    }
}

#[test]
fn a_guard_that_another_host_gets_past_is_warned_of() {
    let warnings = |host: &str, others: &str| {
        let guarded = with("").replace("match = {", &format!("match = {{ host = \"{host}\","));
        let guarded = guarded.replace("host = \"\",", "");
        let loaded = sound(&[("a.toml", &guarded), ("b.toml", others)], &[]);
        let warnings = loaded.policy.warnings.iter();
        warnings.filter(|w| w.note.contains("`Host`")).map(|w| w.note.clone()).collect::<Vec<_>>()
    };
    let open = |matching: &str, upstream: &str| {
        format!("[[route]]\noperation = \"rest\"\nmatch = {matching}\nupstream = \"{upstream}\"\n")
    };
    let any = open("{ path = \"/{*rest}\" }", "u");
    let said = warnings("api.example.com", &any);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("`pay` (`route[0]` in "), "{said:?}");
    assert!(said[0].contains("`rest` (`route[0]` in "), "{said:?}");
    assert_eq!(warnings("h", &open("{ path = \"/pay\", methods = [\"POST\"] }", "u")).len(), 1);
    // Another name for the same server.
    let alias = "[upstream.v]\nendpoints = [\"http://127.0.0.1:9001\"]\n";
    assert_eq!(warnings("h", &(open("{ path = \"/{x}\" }", "v") + alias)).len(), 1);

    let other = "[upstream.v]\nendpoints = [\"http://127.0.0.1:9002\"]\n";
    let guarded = ROUTE.replace("\"pay\"", "\"pay-any-host\"");
    for (host, others) in [
        ("", any.clone()),
        ("h", open("{ path = \"/{*rest}\", host = \"g\" }", "u")),
        ("h", open("{ path = \"/other\" }", "u")),
        ("h", open("{ path = \"/pay\", methods = [\"PUT\", \"GET\"] }", "u")),
        ("h", open("{ path = \"/{*rest}\" }", "v") + other),
        ("h", any.clone() + &guarded),
    ] {
        assert_eq!(warnings(host, &others), Vec::<String>::new(), "{host} {others}");
    }
}

#[test]
fn a_plugin_gets_its_table_as_json() {
    let text = r#"
[plugin.p]
component = "builtin:fingerprint"
config = { parts = ["method", "path"], deep = { z = 1, a = [true, 1.5] } }
"#;
    let loaded = sound(&[("a.toml", &(with("") + text))], &[]);
    assert_eq!(
        loaded.policy.plugins["p"].config_json,
        r#"{"deep":{"a":[true,1.5],"z":1},"parts":["method","path"]}"#
    );
    assert_eq!(loaded.policy.plugins["k"].config_json, "{}");
}

#[test]
fn the_environment_overrides_files_and_files_override_defaults() {
    let settings = r#"
[store]
url = "redis://files:6379"
namespace = "from-file"
"#;
    let env = [
        ("ONCEGATE_STORE__URL", "rediss://env:6379"),
        ("ONCEGATE_STORE__PASSWORD", "0123456789"),
        ("ONCEGATE_STORE__ALLOW_EVICTION", "true"),
        ("ONCEGATE_LISTENER__MAX_CONNECTIONS", "10"),
        ("ONCEGATE_ADMIN__TOKEN", "a-token-of-sixteen-bytes"),
        ("ONCEGATE_SECRETS__FINGERPRINT", "0123456789abcdef"),
        ("ONCEGATE_SECRETS__PARTNER_A", "s"),
        ("ONCEGATE_SECRETS__EMPTY", ""),
        ("ONCEGATE_PORT", "tcp://10.0.0.1:80"),
        ("OTHER__THING", "x"),
    ];
    let loaded = sound(&[("a.toml", &(with("") + settings))], &env);
    let settings = &loaded.settings;
    assert_eq!(settings.store.url, StoreUrl::Redis("rediss://env:6379".to_owned()));
    assert_eq!(settings.store.namespace, "from-file");
    assert_eq!(settings.store.timeout, Duration::from_secs(1));
    assert!(settings.store.allow_eviction);
    let password = settings.store.password.as_ref().expect("a password");
    assert_eq!(password.expose(), "0123456789");
    assert_eq!(settings.listener.max_connections, 10);
    assert!(settings.admin.token.is_some() && settings.secrets.fingerprint.is_some());
    let named: Vec<&String> = settings.secrets.named.keys().collect();
    assert_eq!(named, ["partner_a"]);
    let shown = format!("{loaded:?}");
    for secret in ["0123456789", "a-token-of-sixteen-bytes"] {
        assert!(!shown.contains(secret), "a secret is printed");
    }
}

#[test]
fn a_bad_variable_is_named_and_its_value_is_not_repeated() {
    let env = [
        ("ONCEGATE_STORE__URL", "mysql://db"),
        ("ONCEGATE_STORE__PASWORD", "hunter2"),
        ("ONCEGATE_STROE__TIMEOUT", "1s"),
        ("ONCEGATE_ADMIN__TOKEN", "hunter2"),
    ];
    assert_eq!(
        problems(&[("a.toml", &with(""))], &env),
        "ONCEGATE_STROE__TIMEOUT: names no section of the settings: `stroe`; did you mean `store`?\n\
         ONCEGATE_ADMIN__TOKEN: must have at least 16 bytes: what can be guessed is no secret\n\
         ONCEGATE_STORE__PASWORD: is not a known key; did you mean `password`?\n\
         ONCEGATE_STORE__URL: must begin with \"embedded:\", \"redis://\" or \"rediss://\", not \"mysql://db\""
    );
}

#[test]
fn an_error_in_one_file_hides_none_in_another() {
    let files = [
        ("a.toml", "[upstream.u]\nendpoints = ["),
        ("b.toml", "[plugin.k]\ncomponent = \"builtin:header-kay\"\n"),
        ("c.toml", &format!("{ROUTE}retention = 0\nlease = \"x\"\n")),
        ("d.yaml", "route: [\n"),
    ];
    let said = problems(&files, &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 5, "{said}");
    assert!(lines[0].starts_with("a.toml: line 2, column 14: "), "{said}");
    assert!(lines[1].starts_with("b.toml: plugin.k.component: "), "{said}");
    assert!(lines[2].starts_with("c.toml: route[0].retention: "), "{said}");
    assert!(lines[3].starts_with("c.toml: route[0].lease: "), "{said}");
    assert!(lines[4].starts_with("d.yaml: line "), "{said}");
}

#[test]
fn d08_a_retention_out_of_bounds_is_refused() {
    for (value, accepted) in [
        ("\"1s\"", true),
        ("\"90d\"", true),
        ("\"24h\"", true),
        ("\"999ms\"", false),
        ("\"90d 1s\"", false),
        ("\"0s\"", false),
        ("0", false),
        ("-1", false),
        ("\"-1h\"", false),
        ("\"24\"", false),
        ("nan", false),
        ("\"for ever\"", false),
        ("true", false),
        ("{}", false),
    ] {
        let loaded = load_files(&[("a.toml", &with(&format!("retention = {value}")))], &[]);
        assert_eq!(loaded.is_ok(), accepted, "{value}");
        if let Err(said) = loaded {
            assert!(said.starts_with("a.toml: route[0].retention: must be "), "{said}");
        }
    }
}

#[test]
fn d13_a_retention_shorter_than_the_clients_retries_is_refused() {
    let said =
        problems(&[("a.toml", &with("retention = \"15m\"\nclient_retries_for = \"24h\""))], &[]);
    assert!(
        said.contains("route[0].retention: must be at least `client_retries_for` (1d)"),
        "{said}"
    );
    sound(&[("a.toml", &with("retention = \"24h\"\nclient_retries_for = \"24h\""))], &[]);
}

#[test]
fn s02_a_guarded_route_must_name_its_scope() {
    let text = with("").replace("scope = { header = \"X-Api-Key\" }", "");
    assert!(problems(&[("a.toml", &text)], &[]).contains("route[0].scope: is required"));
    let shared = with("").replace("{ header = \"X-Api-Key\" }", "\"shared\"");
    let loaded = sound(&[("a.toml", &shared)], &[]);
    let guard = loaded.policy.routes[0].guard.as_ref().expect("guarded");
    assert_eq!(guard.scope, ScopeSource::Shared);
}

#[test]
fn s10_a_credential_as_scope_is_allowed_with_a_warning() {
    let text = with("").replace("X-Api-Key", "Authorization");
    let loaded = sound(&[("a.toml", &text)], &[]);
    assert!(loaded.policy.warnings[0].note.contains("refreshed token"));
}

#[test]
fn a_directory_without_policy_and_a_policy_without_routes_are_refused() {
    assert!(problems(&[("notes.txt", "")], &[]).contains("holds no policy file"));
    assert!(problems(&[("a.toml", "")], &[]).contains("route: is required"));
    assert!(problems(&[("a.yaml", "# nothing\n")], &[]).contains("route: is required"));
    let missing = Source { path: "/nonexistent".into(), env: Environment::default() };
    let said = load(&missing).expect_err("refused").to_string();
    assert!(said.starts_with("/nonexistent: cannot be read: "), "{said}");
}

#[test]
fn what_is_not_text_or_too_large_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("a.toml"), [0xff, 0xfe]).expect("written");
    fs::write(directory.path().join("b.toml"), vec![b'#'; (8 << 20) + 1]).expect("written");
    fs::create_dir(directory.path().join("c.toml")).expect("created");
    std::os::unix::fs::symlink("gone", directory.path().join("d.toml")).expect("linked");
    let said = load_directory(directory.path(), &[]).expect_err("refused");
    let said = relative(&said, directory.path());
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "a.toml: must be UTF-8 text");
    assert_eq!(lines[1], "b.toml: must have at most 8MiB");
    assert_eq!(lines[2], "c.toml: must be a file");
    assert!(lines[3].starts_with("d.toml: cannot be read: "), "{said}");
    assert_eq!(lines.len(), 4, "{said}");
}

#[test]
fn a_policy_of_ten_thousand_routes_loads_in_both_languages() {
    let mut toml = BASE.to_owned();
    let mut yaml = "route:\n".to_owned();
    for n in 0..5_000 {
        toml += &ROUTE.replace("\"pay\"", &format!("\"t{n}\"")).replace("/pay", &format!("/t{n}"));
        yaml += &format!(
            "  - operation: y{n}\n    match: {{ methods: [POST], path: /y{n} }}\n    upstream: u\n    key: [k]\n    scope: shared\n"
        );
    }
    let loaded = sound(&[("a.toml", &toml), ("b.yaml", &yaml)], &[]);
    assert_eq!(loaded.policy.routes.len(), 10_000);
    let matched = loaded.policy.route("h", "POST", "/y4999").expect("a route");
    assert_eq!(matched.route.operation.as_str(), "y4999");
}

#[test]
fn settings_that_differ_name_the_sections_that_need_a_restart() {
    let one = sound(&[("a.toml", &with(""))], &[]).settings;
    let two = sound(
        &[("a.toml", &with("[listener]\naddress = \"127.0.0.1:1\"\n[store]\nnamespace = \"n\""))],
        &[],
    )
    .settings;
    assert_eq!(one.needs_restart(&one.clone()), Vec::<&str>::new());
    assert_eq!(one.needs_restart(&two), ["listener", "store"]);
}

#[test]
fn a_generation_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Loaded>();
    shared::<Problems>();
}

#[test]
fn a_secret_of_the_wrong_type_is_not_repeated() {
    let secrets = with("").replace("[upstream.u]", "secrets = \"hunter2\"\n[upstream.u]");
    let said = problems(&[("a.toml", &secrets)], &[]);
    assert_eq!(said, "a.toml: secrets: must be a table, not text");
    let said = problems(&[("a.toml", &with("[admin]\ntoken = 12345"))], &[]);
    assert_eq!(said, "a.toml: admin.token: must be text");
}

#[test]
fn a_gateway_needs_no_policy_file() {
    let wanted = Quick { upstream: "http://127.0.0.1:3000".to_owned(), ..Quick::default() };
    let loaded = quick(&wanted, &Environment::default()).expect("sound");
    let post = loaded.policy.route("h", "POST", "/any/path").expect("a route");
    let guard = post.route.guard_for("POST").expect("guarded");
    assert_eq!(guard.missing_key, MissingKey::Forward);
    assert_eq!(guard.scope, ScopeSource::Header("authorization".to_owned()));
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        let safe = loaded.policy.route("h", method, "/").expect("a route");
        assert!(safe.route.guard_for(method).is_none(), "{method}");
    }
    // A method that nobody thought of is no way past the guard.
    for method in ["PUT", "PATCH", "DELETE", "post", "MKCOL"] {
        let other = loaded.policy.route("h", method, "/").expect("a route");
        assert!(other.route.guard_for(method).is_some(), "{method}");
    }
    assert_eq!(loaded.policy.routes.len(), 1);
    assert_eq!(loaded.policy.files, Vec::<std::path::PathBuf>::new());

    let wanted = Quick {
        listen: Some("0.0.0.0:8000".to_owned()),
        store: Some("redis://cache:6379".to_owned()),
        scope: Some("shared".to_owned()),
        ..wanted
    };
    let loaded = quick(&wanted, &Environment::default()).expect("sound");
    assert_eq!(loaded.settings.listener.address.port(), 8_000);
    assert_eq!(loaded.settings.store.url, StoreUrl::Redis("redis://cache:6379".to_owned()));
    let post = loaded.policy.route("h", "POST", "/").expect("a route");
    assert_eq!(post.route.guard.as_ref().map(|guard| &guard.scope), Some(&ScopeSource::Shared));

    let wanted = Quick { upstream: "https://example.com".to_owned(), ..Quick::default() };
    let said = quick(&wanted, &Environment::default()).expect_err("refused").to_string();
    assert!(said.starts_with("upstream.default.endpoints[0]: must be an http:// URL"), "{said}");
}

/// Text that often gets past the parser, so that the checks behind it are reached.
fn policy_like() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "upstream",
        "plugin",
        "route",
        "listener",
        "admin",
        "store",
        "secrets",
        "drain",
        "match",
        "operation",
        "key",
        "scope",
        "settle",
        "retention",
        "fingerprint",
        "in_flight",
        "methods",
        "path",
        "endpoints",
        "component",
        "config",
        "u",
        "x",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "\"30s\"",
            "\"/a/{b}\"",
            "\"shared\"",
            "\"http://h:1\"",
            "\"builtin:header-key\"",
            "[]",
            "{}",
            "true",
            "0",
            "-1",
            "1.5",
            "nan",
            "\"\"",
            "1979-05-27",
            "[\"POST\"]",
            "[[1]]",
            "{ header = \"a\" }",
            "{ wait = \"1s\" }",
            "\"5xx\"",
            "[503, \"5xx\"]",
            "\"u\"",
        ])
        .prop_map(str::to_owned),
        "\"\\PC{0,8}\"",
    ];
    let line = prop_oneof![
        (word.clone(), value).prop_map(|(key, value)| format!("{key} = {value}")),
        word.clone().prop_map(|name| format!("[{name}]")),
        (word.clone(), word.clone()).prop_map(|(a, b)| format!("[{a}.{b}]")),
        word.prop_map(|name| format!("[[{name}]]")),
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn loading_any_text_never_panics(
        text in prop_oneof!["\\PC{0,200}", "[\\[\\]{}\\-:,&*!|>'\" \na-z0-9=.#]{0,200}", policy_like()],
        yaml: bool,
    ) {
        let name = if yaml { "a.yaml" } else { "a.toml" };
        if let Err(said) = load_files(&[(name, &text)], &[]) {
            prop_assert!(!said.is_empty());
            prop_assert!(said.lines().all(|line| line.contains(": ")), "{}", said);
        }
    }

    #[test]
    fn no_environment_panics(section in "[A-Z_]{0,8}", field in "\\PC{0,12}", value in "\\PC{0,12}") {
        let name = format!("ONCEGATE_{section}__{field}");
        let _ = load_files(&[("a.toml", &with(""))], &[(&name, &value)]);
    }
}
