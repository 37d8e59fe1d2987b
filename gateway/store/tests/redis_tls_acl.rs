//! A Redis behind TLS, and a user with no more rights than the documentation lists.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use oncegate_core::Release;
use oncegate_store::{RedisConfig, RedisStore, ScanFilter, Store};
use oncegate_test_redis::{RedisServer, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::calls::{finish, id, proceed, replayed, reserve};
use support::{PATIENCE, redis_config, redis_store};
use tempfile::TempDir;

/// The rights as documented in `redis.rs`.
const RIGHTS: &str = "+evalsha +script|load +time +get +set +del +info +scan +getrange +select";

struct Certificates {
    dir: TempDir,
    ca_pem: String,
}

impl Certificates {
    /// A CA, and a certificate of it for `127.0.0.1` and `localhost`.
    fn new() -> Self {
        let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        let ca = CertifiedIssuer::self_signed(ca, ca_key).expect("a CA");
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("parameters");
        let cert = params.signed_by(&key, &ca).expect("a certificate");
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("cert.pem"), cert.pem()).expect("written");
        fs::write(dir.path().join("key.pem"), key.serialize_pem()).expect("written");
        fs::write(dir.path().join("ca.pem"), ca.pem()).expect("written");
        Self { dir, ca_pem: ca.pem() }
    }

    fn files(&self) -> Tls {
        let path = |name| self.dir.path().join(name);
        Tls { cert: path("cert.pem"), key: path("key.pem"), ca: path("ca.pem") }
    }
}

async fn every_call_works(store: &RedisStore) {
    let claim = proceed(store, &id(1), 1).await;
    store.finish(&id(1), finish(claim, b"done")).await.expect("stored");
    assert_eq!(replayed(store, &id(1)).await, b"done");
    let claim = proceed(store, &id(2), 1).await;
    let release = Release { owner: claim.owner, fence: Some(claim.fence) };
    store.release(&id(2), release).await.expect("released");
    assert!(store.peek(&id(1)).await.expect("a look").is_some());
    assert_eq!(store.scan(10, ScanFilter::All).await.expect("a listing").len(), 1);
}

/// The first problem that is more than "not yet".
async fn problem(config: RedisConfig) -> String {
    let store = RedisStore::new(config).expect("good settings");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let health = store.ready(Duration::from_millis(20)).await;
        assert!(!health.ready, "it was let in");
        let problem = health.problem.expect("an unready store says why");
        if problem != "not connected to Redis yet" {
            assert!(store.reserve(&id(1), reserve(1)).await.is_err());
            return problem;
        }
        assert!(Instant::now() < deadline, "{problem}");
    }
}

#[tokio::test]
async fn tls_with_a_ca_of_ones_own() {
    let certificates = Certificates::new();
    let server = RedisServer::builder().tls(certificates.files()).start();
    let port = server.tls_port().expect("a TLS port");
    for host in ["127.0.0.1", "localhost"] {
        let config = RedisConfig {
            url: format!("rediss://{host}:{port}/0"),
            namespace: host.to_owned(),
            ca_pem: Some(certificates.ca_pem.clone().into_bytes()),
            ..redis_config(&server)
        };
        every_call_works(&redis_store(config).await).await;
    }
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_refused() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    let server = RedisServer::builder().tls(theirs.files()).start();
    let port = server.tls_port().expect("a TLS port");
    let said = problem(RedisConfig {
        url: format!("rediss://127.0.0.1:{port}/0"),
        ca_pem: Some(ours.ca_pem.into_bytes()),
        ..redis_config(&server)
    })
    .await;
    assert!(said.contains("TLS failed"), "{said}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let certificates = Certificates::new();
    let server = RedisServer::builder().tls(certificates.files()).start();
    let port = server.tls_port().expect("a TLS port");
    let said = problem(RedisConfig {
        // It resolves to this machine as well, and is not in the certificate.
        url: format!("rediss://127.0.0.2:{port}/0"),
        ca_pem: Some(certificates.ca_pem.into_bytes()),
        ..redis_config(&server)
    })
    .await;
    assert!(said.contains("TLS failed") || said.contains("cannot connect"), "{said}");
}

fn with_user(rights: &str) -> (RedisServer, RedisConfig) {
    let acl = format!("user gateway on >s3cret ~{}:* {rights}", support::NAMESPACE);
    let server = RedisServer::builder().acl(&acl).start();
    let config = RedisConfig {
        username: Some("gateway".to_owned()),
        password: Some("s3cret".to_owned()),
        ..redis_config(&server)
    };
    (server, config)
}

#[tokio::test]
async fn the_documented_rights_suffice() {
    let (server, config) = with_user(RIGHTS);
    let url = format!("redis://127.0.0.1:{}/2", server.port());
    every_call_works(&redis_store(RedisConfig { url, ..config }).await).await;
}

#[tokio::test]
async fn a_missing_right_is_said_in_words() {
    let (_server, config) = with_user("+evalsha +time +get +set +del");
    let said = problem(config).await;
    assert!(said.contains("lacks a right") && said.contains("info"), "{said}");
}

#[tokio::test]
async fn a_wrong_password_is_said_without_repeating_it() {
    let (_server, config) = with_user(RIGHTS);
    let config = RedisConfig { password: Some("gu3ss".to_owned()), ..config };
    assert!(!format!("{config:?}").contains("gu3ss"));
    let said = problem(config).await;
    assert!(said.contains("did not accept"), "{said}");
    assert!(!said.contains("gu3ss"), "{said}");
}

#[tokio::test]
async fn another_namespace_is_out_of_the_users_reach() {
    let (_server, config) = with_user(RIGHTS);
    let config = RedisConfig { namespace: "elsewhere".to_owned(), ..config };
    let store = redis_store(config).await;
    let denied = store.reserve(&id(1), reserve(1)).await.expect_err("not its keys");
    assert_eq!(denied.code(), "store-denied", "{denied:?}");
}
