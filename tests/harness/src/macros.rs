//! `case!`: one case, one test for each store.

/// Stamps a case of the catalogue on its stores.
///
/// `case!(on both, async fn k01_…(store) { … })` becomes a module `k01_…` with the tests
/// `embedded` and `redis`; `on redis` leaves one of them out, for cases about several gateways
/// or about the server itself. The runner finds the case again by the id its name begins with.
#[macro_export]
macro_rules! case {
    (on both, $(#[$meta:meta])* async fn $name:ident($store:ident) $body:block) => {
        $(#[$meta])*
        mod $name {
            use super::*;
            async fn case($store: $crate::StoreKind) $body
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn embedded() {
                case($crate::StoreKind::Embedded).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn redis() {
                case($crate::StoreKind::Redis).await;
            }
        }
    };
    (on redis, $(#[$meta:meta])* async fn $name:ident($store:ident) $body:block) => {
        $(#[$meta])*
        mod $name {
            use super::*;
            async fn case($store: $crate::StoreKind) $body
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn redis() {
                case($crate::StoreKind::Redis).await;
            }
        }
    };
}
