//! The usual set: a store, an upstream, and one gateway between.

use std::fmt::Display;

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::http1::Request;
use crate::policy::{PAYMENTS, Policy};
use crate::store::{Store, StoreKind};
use crate::upstream::Upstream;

/// A key as the draft writes it.
pub const KEY: &str = "\"8e03978e-40d5-43dd-bc93-6894a57f9324\"";

/// A body of a payment.
pub const BODY: &str = "{\"amount\":1250,\"currency\":\"EUR\"}";

/// A store, an upstream, and one gateway between. Dropped in this order.
pub struct World {
    /// The gateway.
    pub gateway: Gateway,
    /// What it protects.
    pub upstream: Upstream,
    /// Where it keeps its records.
    pub store: Store,
}

impl World {
    /// Everything started, with the policy made for the upstream.
    pub async fn start<P: Display>(kind: StoreKind, policy: impl FnOnce(&Upstream) -> P) -> Self {
        let upstream = Upstream::start().await;
        let store = Store::start(kind);
        let gateway = Gateway::start(&store, policy(&upstream)).await;
        Self { gateway, upstream, store }
    }

    /// One guarded route, `POST /v1/payments`.
    pub async fn payments(kind: StoreKind) -> Self {
        Self::start(kind, Policy::payments).await
    }

    /// Sends one request over a connection of its own.
    #[track_caller]
    pub fn send(&self, request: Request) -> impl Future<Output = Answer> + Send + use<> {
        self.gateway.send(request)
    }

    /// Pays under this key, with the usual body.
    #[track_caller]
    pub fn pay<K: AsRef<[u8]>>(&self, key: K) -> impl Future<Output = Answer> + Send + use<K> {
        self.send(payment(key))
    }
}

/// A payment under this key, with the usual body.
pub fn payment(key: impl AsRef<[u8]>) -> Request {
    Request::post(PAYMENTS).key(key).json(BODY)
}

/// A payment under this key, with another body.
pub fn payment_of(key: impl AsRef<[u8]>, body: &str) -> Request {
    Request::post(PAYMENTS).key(key).json(body)
}
