//! The engine, and every setting of it with its reason.

use std::thread;
use std::time::Duration;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig,
    Strategy,
};

use crate::Limits;

/// How often a running guest can be looked at. One tick is also the shortest time-out.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Core instances, memories and tables that one component may consist of. A small guest has a
/// handful; Python brings a hundred core instances, script engines a few memories and tables.
const CORE_INSTANCES_PER_COMPONENT: u32 = 128;
const MEMORIES_PER_COMPONENT: u32 = 3;
const TABLES_PER_COMPONENT: u32 = 8;

/// A guest of ours has two or three pages. That much is reset by writing, which is cheaper
/// than the system call for the same, and does not stop the other threads of the process.
const MEMORY_KEPT_BYTES: usize = 128 * 1024;
const TABLE_KEPT_BYTES: usize = 16 * 1024;

const STACK_BYTES: usize = 512 * 1024;

/// An engine for these limits, with its ticker running.
pub(crate) fn start(limits: &Limits) -> wasmtime::Result<Engine> {
    let engine = Engine::new(&config(limits))?;
    start_ticker(&engine)?;
    Ok(engine)
}

fn config(limits: &Limits) -> Config {
    let mut config = Config::new();
    config
        // Cranelift only: the faster compiler cannot be interrupted.
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        // A guest in an endless loop is stopped by the epoch; counting fuel costs more.
        .epoch_interruption(true)
        // The interface is synchronous. Support for concurrent guests doubles the cost of a
        // call that is otherwise one microsecond.
        .concurrency_support(false)
        // The same request must give the same key on every processor.
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        // The start image of a memory is mapped, not copied.
        .memory_init_cow(true)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(4 * STACK_BYTES)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(limits)));
    config
}

/// Everything an instance needs is reserved once and reused: address space, not memory.
fn pool(limits: &Limits) -> PoolingAllocationConfig {
    let instances = limits.concurrent_instances.max(1);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_PER_COMPONENT))
        .total_memories(instances.saturating_mul(MEMORIES_PER_COMPONENT))
        .total_tables(instances.saturating_mul(TABLES_PER_COMPONENT))
        .total_stacks(instances)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_tables_per_component(TABLES_PER_COMPONENT)
        .max_memory_size(limits.memory_bytes)
        .linear_memory_keep_resident(MEMORY_KEPT_BYTES)
        .table_keep_resident(TABLE_KEPT_BYTES)
        // Scanning page maps instead of resetting blindly would save some microseconds, but
        // does not see a dirty page that was swapped out: on a machine with swap the next
        // instance in the slot could read what the previous one wrote.
        .pagemap_scan(Enabled::No);
    // Memory protection keys stay off, by leaving out wasmtime's feature for them.
    pool
}

/// One thread for the whole engine. It holds the engine weakly, so it ends with it.
fn start_ticker(engine: &Engine) -> wasmtime::Result<()> {
    let engine = engine.weak();
    thread::Builder::new().name("oncegate-epoch".into()).spawn(move || {
        loop {
            thread::sleep(TICK);
            match engine.upgrade() {
                Some(engine) => engine.increment_epoch(),
                None => return,
            }
        }
    })?;
    Ok(())
}
