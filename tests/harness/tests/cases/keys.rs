//! K: how a key is written.

use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::world::{BODY, KEY, payment};
use oncegate_tests::{Policy, Request, Route, Upstream, World, case};

/// The key of [`KEY`] without its quotes.
fn bare() -> &'static str {
    KEY.trim_matches('"')
}

fn strict(upstream: &Upstream) -> Policy {
    let config = "{ header = \"Idempotency-Key\", required = false, syntax = \"strict\" }";
    Policy::new()
        .upstream("payments", &[&upstream.url()])
        .plugin("client-key", "builtin:header-key", config)
        .route(Route::guarded(OPERATION, PAYMENTS))
}

/// The key is optional, and a request without one is forwarded unprotected.
fn optional(upstream: &Upstream) -> Policy {
    Policy::payments_with(upstream, "missing_key", "\"forward\"")
}

case!(on both,
    /// A quoted String is a key, and the upstream receives it in the client's own bytes.
    async fn k01_a_quoted_key_is_accepted_and_forwarded_as_sent(store) {
        let world = World::payments(store).await;
        world.pay(KEY).await.is_fresh(201);
        assert_eq!(world.upstream.the_run().key(), Some(KEY));
    }
);

case!(on both,
    /// The same key with and without quotes is one operation.
    async fn k02_a_bare_key_equals_the_quoted_one(store) {
        let world = World::payments(store).await;
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        world.pay(bare()).await.is_replay_of(&first);
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// In strict syntax a bare key is refused, and never runs the operation a second time.
    async fn k02_a_bare_key_is_refused_in_strict_syntax(store) {
        let world = World::start(store, strict).await;
        world.pay(KEY).await.is_fresh(201);
        world.pay(bare()).await.is_invalid_key();
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// An empty key is a broken key, not an absent one: it is refused even where keys are optional.
    async fn k03_an_empty_key_is_invalid_and_not_absent(store) {
        let world = World::start(store, optional).await;
        for empty in ["", "\"\"", "   ", "\t"] {
            world.pay(empty).await.is_invalid_key();
        }
        assert_eq!(world.upstream.runs(), 0);
    }
);

case!(on both,
    /// Blanks around the key do not count; blanks inside the quotes do.
    async fn k04_blanks_count_only_inside_the_quotes(store) {
        let world = World::payments(store).await;
        let first = world.pay("\"abc\"").await;
        first.is_fresh(201);
        for padded in ["  \"abc\"", "\"abc\"  ", "\t\"abc\" \t"] {
            world.pay(padded).await.is_replay_of(&first);
        }
        world.pay("\" abc\"").await.is_fresh(201);
        world.pay("\"abc \"").await.is_fresh(201);
        assert_eq!(world.upstream.runs(), 3);
    }
);

case!(on both,
    /// Half a pair of quotes is no String, and nobody strips the half that is there.
    async fn k05_unbalanced_quotes_are_refused(store) {
        let world = World::start(store, strict).await;
        for broken in ["\"abc", "abc\"", "'abc'", "\"a\"bc\"", "\"abc\\\""] {
            world.pay(broken).await.is_invalid_key();
        }
        assert_eq!(world.upstream.runs(), 0);
    }
);

case!(on both,
    /// Also where bare keys are allowed, a lone quote makes neither a String nor a bare key.
    async fn k05_unbalanced_quotes_are_no_bare_key_either(store) {
        let world = World::payments(store).await;
        for broken in ["\"abc", "abc\"", "a\"bc"] {
            world.pay(broken).await.is_invalid_key();
        }
        assert_eq!(world.upstream.runs(), 0);
    }
);

case!(on both,
    /// Bytes outside ASCII are refused; they do not make the request an unprotected one.
    async fn k07_a_key_outside_ascii_is_refused_not_ignored(store) {
        let world = World::start(store, optional).await;
        for key in ["ключ-1".as_bytes(), "\"ключ-1\"".as_bytes(), b"\"caf\xe9\""] {
            world.pay(key).await.is_invalid_key();
        }
        assert_eq!(world.upstream.runs(), 0);
    }
);

case!(on both,
    /// Control bytes in a key are refused, and no line of the log is made by them.
    async fn k08_control_bytes_are_refused_and_split_no_log_line(store) {
        let world = World::payments(store).await;
        world.pay("\"a\tforged-by-tab\"").await.is_invalid_key();
        // These never get past the parser of the head, which has no words for its refusal.
        for key in ["\"a\nforged: by-lf\"", "\"a\rforged-by-cr\"", "\"a\0forged-by-nul\"", "\"a\x01\"", "\"a\x7f\""] {
            let answer = world.pay(key).await;
            assert_eq!(answer.status, 400, "{key:?}: {answer:?}");
        }
        assert_eq!(world.upstream.runs(), 0);
        let forged = |line: &str| line.trim_start().starts_with("forged");
        assert!(!world.gateway.log().lines().any(forged), "{}", world.gateway.log());
    }
);

case!(on both,
    /// Two lines are refused even when they agree, and reserve nothing: the honest retry runs.
    async fn k10_a_repeated_key_line_is_refused_and_reserves_nothing(store) {
        let world = World::payments(store).await;
        let doubled = payment(KEY).key(KEY);
        world.send(doubled.clone()).await.is_invalid_key();
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        world.send(doubled).await.is_invalid_key();
        assert_eq!(world.upstream.the_run().key(), Some(KEY));
    }
);

case!(on both,
    /// The header holds one key: neither two lines nor a list on one line is taken apart.
    async fn k11_several_keys_are_refused(store) {
        let world = World::payments(store).await;
        world.send(payment("\"a\"").key("\"b\"")).await.is_invalid_key();
        world.pay("\"a\", \"b\"").await.is_invalid_key();
        world.pay("a, b").await.is_invalid_key();
        assert_eq!(world.upstream.runs(), 0);
    }
);

case!(on both,
    /// A key has 1 to 255 bytes, whatever it is made of; both edges hold.
    async fn k12_a_key_has_1_to_255_bytes(store) {
        let world = World::payments(store).await;
        for length in [1, 255] {
            world.pay(format!("\"{}\"", "k".repeat(length))).await.is_fresh(201);
        }
        for length in [256, 8000] {
            world.pay(format!("\"{}\"", "k".repeat(length))).await.is_invalid_key();
        }
        // 128 characters, 256 bytes: too long by bytes, and no ASCII anyway.
        world.pay(format!("\"{}\"", "é".repeat(128))).await.is_invalid_key();
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// The limit is the same for a bare key.
    async fn k12_a_bare_key_has_1_to_255_bytes(store) {
        let world = World::payments(store).await;
        for length in [1, 255] {
            world.pay("k".repeat(length)).await.is_fresh(201);
        }
        world.pay("k".repeat(256)).await.is_invalid_key();
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// The spelling of the header's name and the version of HTTP make no other operation.
    async fn k13_the_name_of_the_header_has_no_case(store) {
        let world = World::payments(store).await;
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        for name in ["IDEMPOTENCY-KEY", "idempotency-key", "iDeMpOtEnCy-KeY"] {
            let request = Request::post(PAYMENTS).header(name, KEY).json(BODY);
            world.send(request).await.is_replay_of(&first);
        }
        world.gateway.send_h2(&payment(KEY)).await.is_replay_of(&first);
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// Where a key is required, a request without one is refused and goes nowhere.
    async fn k17_a_required_key_that_is_missing_is_refused(store) {
        let world = World::payments(store).await;
        let keyless = Request::post(PAYMENTS).json(BODY);
        world.send(keyless).await.is_problem(400, "key-missing", "new-key");
        assert_eq!(world.upstream.runs(), 0);
    }
);

case!(on both,
    /// Where a key is optional, a request without one passes, and is counted as unprotected.
    async fn k18_an_optional_key_that_is_missing_is_counted_unprotected(store) {
        let world = World::start(store, optional).await;
        for run in 1..=2 {
            let answer = world.send(Request::post(PAYMENTS).json(BODY)).await;
            assert_eq!((answer.status, answer.outcome()), (201, Some("unprotected")), "{answer:?}");
            assert_eq!(world.upstream.runs(), run);
        }
        assert_eq!(world.gateway.metrics().await.outcome("unprotected"), 2);
    }
);

case!(on both,
    /// A request that the gateway answers itself is answered once: the upstream is not called too.
    async fn k20_what_the_gateway_answers_stops_there(store) {
        let world = World::payments(store).await;
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        world.pay(KEY).await.is_replay_of(&first);
        world.pay("\"\"").await.is_invalid_key();
        world.send(Request::post(PAYMENTS).key(KEY).json("{}")).await.is_mismatch();
        let huge = Request::post(PAYMENTS).key("huge").body(vec![b'x'; 1024 * 1024 + 1]);
        world.send(huge).await.is_problem(413, "body-too-large", "never");
        assert_eq!(world.upstream.seen().heads, 1, "{:?}", world.upstream.seen());
    }
);

case!(on both,
    /// An inner blank belongs to a quoted key and breaks a bare one.
    async fn k21_an_inner_blank_needs_quotes(store) {
        let world = World::payments(store).await;
        world.pay("\"order 7\"").await.is_fresh(201);
        world.pay("order 7").await.is_invalid_key();
        assert_eq!(world.upstream.the_run().key(), Some("\"order 7\""));
    }
);
