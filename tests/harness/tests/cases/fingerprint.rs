//! F: what was asked under a key.

use oncegate_tests::policy::{OPERATION, PAYMENTS};
use oncegate_tests::wait::until;
use oncegate_tests::world::{BODY, KEY, payment, payment_of};
use oncegate_tests::{
    Gate, Gateway, Policy, Reply, Request, Route, Store, StoreKind, Upstream, World, case,
};

fn in_mode(mode: &'static str) -> impl FnOnce(&Upstream) -> Policy {
    let fingerprint = format!("{{ mode = {mode:?} }}");
    move |upstream| Policy::payments_with(upstream, "fingerprint", &fingerprint)
}

/// Two bodies under one key, in the given mode: one operation.
async fn same(store: StoreKind, mode: &'static str, one: &Request, other: &Request) {
    let world = World::start(store, in_mode(mode)).await;
    let first = world.send(one.clone()).await;
    first.is_fresh(201);
    world.send(other.clone()).await.is_replay_of(&first);
    assert_eq!(world.upstream.runs(), 1);
}

/// Two bodies under one key, in the given mode: the second is refused, the first still replays.
async fn different(store: StoreKind, mode: &'static str, one: &Request, other: &Request) {
    let world = World::start(store, in_mode(mode)).await;
    let first = world.send(one.clone()).await;
    first.is_fresh(201);
    world.send(other.clone()).await.is_mismatch();
    world.send(one.clone()).await.is_replay_of(&first);
    assert_eq!(world.upstream.runs(), 1);
}

case!(on both,
    /// The order of members makes no other request in JSON mode, and another one in raw mode.
    async fn f01_the_order_of_members_counts_only_in_raw_mode(store) {
        let one = payment_of(KEY, "{\"a\":1,\"b\":2}");
        let other = payment_of(KEY, "{\"b\":2,\"a\":1}");
        same(store, "json", &one, &other).await;
        different(store, "raw", &one, &other).await;
    }
);

case!(on both,
    /// White space and escapes make no other request in JSON mode, and another one in raw mode.
    async fn f02_spelling_counts_only_in_raw_mode(store) {
        let one = payment_of(KEY, "{\"name\":\"a\",\"n\":10}");
        let other = payment_of(KEY, "{ \"name\" : \"\\u0061\",\r\n \"n\" : 1e1 }");
        same(store, "json", &one, &other).await;
        different(store, "raw", &one, &other).await;
    }
);

case!(on both,
    /// The order of a list is meaning, in every mode.
    async fn f03_the_order_of_a_list_always_counts(store) {
        let one = payment_of(KEY, "[1,2]");
        let other = payment_of(KEY, "[2,1]");
        different(store, "json", &one, &other).await;
        different(store, "raw", &one, &other).await;
    }
);

case!(on both,
    /// Two amounts that a double cannot tell apart are two requests.
    async fn f05_big_numbers_are_not_merged(store) {
        let amount = |text: &str| payment_of(KEY, &format!("{{\"n\":{text}}}"));
        different(store, "json", &amount("9007199254740993"), &amount("9007199254740992")).await;
        different(store, "json", &amount("0.1"), &amount("0.10000000000000000001")).await;
    }
);

case!(on both,
    /// A body that claims to be JSON and is not counts by its bytes, and is still forwarded.
    async fn f09_a_body_that_is_no_json_counts_by_its_bytes(store) {
        let world = World::start(store, in_mode("json")).await;
        let broken = || payment_of(KEY, "{\"amount\": ");
        let first = world.send(broken()).await;
        first.is_fresh(201);
        world.send(broken()).await.is_replay_of(&first);
        world.send(payment_of(KEY, "{\"amount\":")).await.is_mismatch();
        assert_eq!(world.upstream.the_run().body, b"{\"amount\": ");
    }
);

/// A form of one field and one file, the way a browser writes it.
fn form(boundary: &str, file: &str) -> Request {
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n1250\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"scan\"; filename=\"scan.txt\"\r\n\
         Content-Type: text/plain\r\n\r\n{file}\r\n--{boundary}--\r\n"
    );
    Request::post(PAYMENTS)
        .key(KEY)
        .header("Content-Type", format!("multipart/form-data; boundary={boundary}"))
        .body(body)
}

case!(on both,
    /// A form is sent again with a fresh boundary: the same request in multipart mode, another one
    /// in raw mode.
    async fn f10_a_fresh_boundary_counts_only_in_raw_mode(store) {
        let one = form("----one-8f2a", "receipt");
        let other = form("----two-77c1", "receipt");
        same(store, "multipart", &one, &other).await;
        different(store, "raw", &one, &other).await;
    }
);

case!(on both,
    /// Another file in the same form is another request.
    async fn f11_the_content_of_a_file_counts(store) {
        let one = form("----one-8f2a", "receipt");
        different(store, "multipart", &one, &form("----one-8f2a", "other receipt")).await;
    }
);

case!(on both,
    /// How the body was framed is not part of the request.
    async fn f13_framing_makes_no_other_request(store) {
        let one = payment(KEY);
        same(store, "raw", &one, &one.clone().chunked(5)).await;
        same(store, "raw", &one.clone().chunked(3), &one.clone().chunked(7)).await;
    }
);

case!(on both,
    /// The parts of a request are framed, so that bytes cannot wander from one into the next.
    async fn f16_parts_are_framed(store) {
        let world = World::payments(store).await;
        let with = |query: &str, body: &str| {
            Request::post(&format!("{PAYMENTS}{query}")).key(KEY).json(body)
        };
        let first = world.send(with("?a=&a=b&c=", "")).await;
        first.is_fresh(201);
        world.send(with("?a=&b=c&b=", "")).await.is_mismatch();
        world.send(with("?a=&a=b&", "c=")).await.is_mismatch();
        world.send(with("?a=&a=b&c=", "")).await.is_replay_of(&first);
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// A derived key is framed as well: what the path loses and the body gains is another request.
    async fn f16_parts_of_a_derived_key_are_framed(store) {
        let world = World::start(store, |upstream| {
            let derived = |path: &str| Route::guarded("derived", path).set("key", "[\"derived\"]");
            Policy::with(upstream)
                .fingerprint("derived", &["query", "body"])
                .route(derived("/a"))
        })
        .await;
        world.send(Request::post("/a?x=1").body("23")).await.is_fresh(201);
        world.send(Request::post("/a?x=12").body("3")).await.is_fresh(201);
        world.send(Request::post("/a?x=123").body("")).await.is_fresh(201);
        assert_eq!(world.upstream.runs(), 3);
    }
);

case!(on both,
    /// The digest taken when the key was reserved is the one that is kept: running or finished,
    /// the record knows the same request.
    async fn f17_the_digest_of_the_reservation_is_kept(store) {
        let world = World::payments(store).await;
        let gate = Gate::new();
        world.upstream.next(Reply::counted(1).held_by(&gate));
        let first = world.gateway.spawn_send(payment(KEY));
        world.upstream.until_runs(1).await;
        world.pay(KEY).await.is_in_progress();
        world.send(payment_of(KEY, "{}")).await.is_mismatch();
        gate.open();
        let first = first.await.expect("the client lives");
        first.is_fresh(201);
        world.pay(KEY).await.is_replay_of(&first);
        world.send(payment_of(KEY, "{}")).await.is_mismatch();
        assert_eq!(world.upstream.runs(), 1);
    }
);

case!(on both,
    /// Without a fallback nothing is guessed: two equal requests without a key are two.
    async fn f19_there_is_no_fallback_unless_asked_for(store) {
        let world = World::start(store, |upstream| {
            Policy::payments_with(upstream, "missing_key", "\"forward\"")
        })
        .await;
        for _ in 0..2 {
            let answer = world.send(Request::post(PAYMENTS).json(BODY)).await;
            assert_eq!(answer.outcome(), Some("unprotected"), "{answer:?}");
        }
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on both,
    /// With a fallback, equal requests without a key are one within its window, a new one after
    /// it, and a key that the client did send is always stronger.
    async fn f19_a_fallback_has_a_window_and_yields_to_a_key(store) {
        let world = World::start(store, |upstream| {
            let route = Route::guarded(OPERATION, PAYMENTS)
                .set("key", "[\"client-key\", \"body\"]")
                .set("retention", "\"1s\"");
            Policy::with(upstream).fingerprint("body", &["method", "path", "body"]).route(route)
        })
        .await;
        let keyless = || Request::post(PAYMENTS).json(BODY);
        let first = world.send(keyless()).await;
        first.is_fresh(201);
        world.send(keyless()).await.is_replay_of(&first);
        world.pay("\"on-purpose\"").await.is_fresh(201);
        world.pay("\"once-more\"").await.is_fresh(201);
        assert_eq!(world.upstream.runs(), 3);
        let again = until("the window to end", async || {
            let answer = world.send(keyless()).await;
            (answer.outcome() == Some("fresh")).then_some(answer)
        })
        .await;
        again.is_fresh(201);
        assert_eq!(world.upstream.runs(), 4);
    }
);

case!(on both,
    /// Two keys are two intents, even for the same request.
    async fn f20_the_key_is_stronger_than_the_body(store) {
        let world = World::payments(store).await;
        world.pay("\"K1\"").await.is_fresh(201);
        world.pay("\"K2\"").await.is_fresh(201);
        assert_eq!(world.upstream.runs(), 2);
    }
);

case!(on redis,
    /// With a secret the digest of a body cannot be made by guessing the body: who does not know
    /// the secret computes another one.
    async fn f21_a_keyed_digest_cannot_be_recomputed(store) {
        let upstream = Upstream::start().await;
        let store = Store::start(store);
        let knowing = |secret: &str| {
            Policy::payments(&upstream)
                .section(&format!("[secrets]\nfingerprint = {secret:?}\n"))
        };
        let pin = || payment_of(KEY, "{\"pin\":1234}");
        let one = Gateway::start(&store, knowing("0123456789abcdef0123456789abcdef")).await;
        let first = one.send(pin()).await;
        first.is_fresh(201);
        one.send(pin()).await.is_replay_of(&first);
        let guesser = Gateway::start(&store, knowing("ffffffffffffffffffffffffffffffff")).await;
        guesser.send(pin()).await.is_mismatch();
        let same = Gateway::start(&store, knowing("0123456789abcdef0123456789abcdef")).await;
        same.send(pin()).await.is_replay_of(&first);
        assert_eq!(upstream.runs(), 1);
    }
);

case!(on both,
    /// A changed body under the same key is an error by default.
    async fn f22_a_changed_body_is_refused_by_default(store) {
        different(store, "raw", &payment(KEY), &payment_of(KEY, "{\"amount\":1}")).await;
    }
);

case!(on both,
    /// Only a policy can make the body part of the identity; then a changed body is a new operation.
    async fn f22_the_body_is_part_of_the_identity_only_by_policy(store) {
        let world = World::start(store, |upstream| {
            Policy::with(upstream)
                .fingerprint("key-and-body", &["header:Idempotency-Key", "body"])
                .route(Route::guarded(OPERATION, PAYMENTS).set("key", "[\"key-and-body\"]"))
        })
        .await;
        let first = world.pay(KEY).await;
        first.is_fresh(201);
        world.send(payment_of(KEY, "{\"amount\":1}")).await.is_fresh(201);
        world.pay(KEY).await.is_replay_of(&first);
        assert_eq!(world.upstream.runs(), 2);
    }
);
