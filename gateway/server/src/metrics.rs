//! Every metric of the gateway, named once. Labels are enums or names from the configuration,
//! so their number is bounded; no key and no tenant ever becomes one.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::outcome::Outcome;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    operation: String,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OperationLabel {
    operation: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct EndingLabels {
    operation: String,
    ending: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UnprotectedLabels {
    operation: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PluginLabels {
    plugin: String,
    reason: &'static str,
}

/// Shown by the operation label of requests that matched no operation.
pub(crate) const NO_OPERATION: &str = "-";

/// Something happened that a sound store and sound code would have prevented, or that the
/// gateway noticed and healed. Each is a live measure of what was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A finished execution found no reservation: the store had lost it.
    Restored,
    /// A running execution put its lost reservation back.
    Reasserted,
    /// Somebody else held the key when an execution ended: it ran twice.
    Superseded,
    /// A permit was dropped before anything was sent.
    ReservedDropped,
    /// A permit was dropped after sending, without an ending.
    DispatchedDropped,
    /// The reservation ran out before the first byte left.
    LeaseRanOut,
}

impl Violation {
    /// The stable name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Restored => "restored",
            Self::Reasserted => "reasserted",
            Self::Superseded => "superseded",
            Self::ReservedDropped => "reserved-dropped",
            Self::DispatchedDropped => "dispatched-dropped",
            Self::LeaseRanOut => "lease-ran-out",
        }
    }
}

/// From a quarter of a millisecond to eight seconds.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 16))
}

/// All families and the registry that renders them.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    executions: Family<EndingLabels, Counter>,
    violations: Family<ReasonLabel, Counter>,
    unprotected: Family<UnprotectedLabels, Counter>,
    plugin_failures: Family<PluginLabels, Counter>,
    store_errors: Family<ReasonLabel, Counter>,
    reloads: Family<ReasonLabel, Counter>,
    latency: Family<OperationLabel, Histogram, fn() -> Histogram>,
    renewals: Counter,
    /// Reservations taken and not yet ended by this process.
    pub(crate) held: Gauge,
    /// Open client connections.
    pub(crate) connections: Gauge,
    /// Number of the policy generation that serves.
    pub(crate) generation: Gauge<u64, AtomicU64>,
}

impl Metrics {
    /// Registers everything.
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("oncegate");
        let latency = Family::new_with_constructor(latency_histogram as fn() -> Histogram);
        let metrics = Self {
            requests: Family::default(),
            executions: Family::default(),
            violations: Family::default(),
            unprotected: Family::default(),
            plugin_failures: Family::default(),
            store_errors: Family::default(),
            reloads: Family::default(),
            latency,
            renewals: Counter::default(),
            held: Gauge::default(),
            connections: Gauge::default(),
            generation: Gauge::default(),
            registry: Registry::default(),
        };
        let mut register = |name: &str, help: &str, metric: Box<dyn RegisterInto>| {
            metric.register_into(&mut registry, name, help);
        };
        register(
            "requests",
            "Requests by operation and terminal outcome",
            Box::new(metrics.requests.clone()),
        );
        register(
            "executions",
            "Upstream executions by operation and ending",
            Box::new(metrics.executions.clone()),
        );
        register(
            "unprotected",
            "Guarded requests sent upstream without protection, by operation and reason",
            Box::new(metrics.unprotected.clone()),
        );
        register(
            "violations",
            "Detected losses and double executions by kind",
            Box::new(metrics.violations.clone()),
        );
        register(
            "plugin_failures",
            "Plugin calls that failed, by plugin and reason",
            Box::new(metrics.plugin_failures.clone()),
        );
        register(
            "store_errors",
            "Store commands that failed, by reason",
            Box::new(metrics.store_errors.clone()),
        );
        register("reloads", "Policy reloads by result", Box::new(metrics.reloads.clone()));
        register(
            "request_duration_seconds",
            "Time from request head to answer",
            Box::new(metrics.latency.clone()),
        );
        register(
            "lease_renewals",
            "Leases renewed for slow upstream calls",
            Box::new(metrics.renewals.clone()),
        );
        register(
            "reservations_held",
            "Reservations taken and not yet ended",
            Box::new(metrics.held.clone()),
        );
        register("connections", "Open client connections", Box::new(metrics.connections.clone()));
        register(
            "policy_generation",
            "Number of the policy generation that serves",
            Box::new(metrics.generation.clone()),
        );
        Self { registry, ..metrics }
    }

    /// The Prometheus text exposition.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing to a String cannot fail; an empty page is the honest rest.
            Err(std::fmt::Error) => String::new(),
        }
    }

    /// The one terminal outcome of a request.
    pub(crate) fn request_ended(&self, operation: &str, outcome: Outcome, seconds: f64) {
        let operation = operation.to_owned();
        self.requests.get_or_create(&RequestLabels { operation: operation.clone(), outcome }).inc();
        self.latency.get_or_create(&OperationLabel { operation }).observe(seconds);
    }

    /// An upstream call ended, and this is what was recorded of it.
    pub(crate) fn execution_ended(&self, operation: &str, ending: &'static str) {
        let labels = EndingLabels { operation: operation.to_owned(), ending };
        self.executions.get_or_create(&labels).inc();
    }

    /// A guarded request goes upstream without protection; counted before it does.
    pub(crate) fn sent_unprotected(&self, operation: &str, reason: &'static str) {
        let labels = UnprotectedLabels { operation: operation.to_owned(), reason };
        self.unprotected.get_or_create(&labels).inc();
    }

    /// See [`Violation`].
    pub(crate) fn violation(&self, violation: Violation) {
        self.violations.get_or_create(&ReasonLabel { reason: violation.as_str() }).inc();
    }

    /// A plugin call failed.
    pub(crate) fn plugin_failed(&self, plugin: &str, reason: &'static str) {
        let labels = PluginLabels { plugin: plugin.to_owned(), reason };
        self.plugin_failures.get_or_create(&labels).inc();
    }

    /// A store command failed.
    pub(crate) fn store_failed(&self, reason: &'static str) {
        self.store_errors.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// A reload ended: `applied`, `refused` or `unchanged`.
    pub(crate) fn reloaded(&self, reason: &'static str) {
        self.reloads.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// A lease was renewed.
    pub(crate) fn lease_renewed(&self) {
        self.renewals.inc();
    }
}

/// Lets one closure register metrics of different types.
trait RegisterInto {
    fn register_into(self: Box<Self>, registry: &mut Registry, name: &str, help: &str);
}

impl<M: prometheus_client::registry::Metric> RegisterInto for M {
    fn register_into(self: Box<Self>, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, *self);
    }
}
