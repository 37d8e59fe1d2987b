//! The clauses over the memory store.

mod support;

async fn subject() -> support::Memory {
    support::Memory::new(support::clock())
}

oncegate_store::conformance!(subject);
