//! The admin listener: what it shows, and to whom.

use oncegate_tests::gateway::Launch;
use oncegate_tests::{Connection, Policy, Request, Store, StoreKind, Upstream};

const TOKEN: &str = "operators-only-0123456789";

#[tokio::test]
async fn on_loopback_it_shows_health_metrics_and_status_and_changes_nothing() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let gateway = Launch::new(&store, Policy::payments(&upstream)).start().await;
    for path in ["/healthz", "/readyz", "/metrics", "/status"] {
        assert_eq!(gateway.ask(path).await.status, 200, "{path}");
        let mut connection = Connection::to(gateway.admin_address()).await;
        let posted = connection.exchange(&Request::post(path).json("{}")).await;
        assert_eq!(posted.status, 405, "{path}: {posted:?}");
    }
    assert_eq!(gateway.ask("/nothing").await.status, 404);
    let status = gateway.status().await;
    assert_eq!(status["generation"], 1);
    assert_eq!(status["routes"][0]["operation"], "create-payment");
}

#[tokio::test]
async fn with_a_token_it_shows_nothing_to_anybody_else() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let gateway = Launch::new(&store, Policy::payments(&upstream))
        .env("ONCEGATE_ADMIN__TOKEN", TOKEN)
        .start()
        .await;
    let mut connection = Connection::to(gateway.admin_address()).await;
    for shown in [None, Some("Bearer wrong"), Some("Basic b3BlcmF0b3I6"), Some(TOKEN)] {
        for path in ["/healthz", "/status", "/metrics", "/nothing"] {
            let request = match shown {
                Some(value) => Request::get(path).header("Authorization", value),
                None => Request::get(path),
            };
            let answer = connection.exchange(&request).await;
            assert_eq!(answer.status, 401, "{path} {shown:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    let operator = Request::get("/status").header("Authorization", format!("Bearer {TOKEN}"));
    assert_eq!(connection.exchange(&operator).await.status, 200);
    assert!(!gateway.log().contains(TOKEN));
}

#[tokio::test]
async fn beyond_loopback_it_does_not_start_without_a_token() {
    let upstream = Upstream::start().await;
    let store = Store::start(StoreKind::Embedded);
    let refusal = Launch::new(&store, Policy::payments(&upstream))
        .env("ONCEGATE_ADMIN__ADDRESS", "0.0.0.0:0")
        .refused()
        .await;
    assert_eq!(refusal.code, Some(2));
    assert!(refusal.log.contains("loopback address unless a token is set"), "{}", refusal.log);
}
