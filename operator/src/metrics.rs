//! What the operator counts and measures of itself, in the registry that /metrics shows.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Upper bounds of a reconcile's duration in seconds: from one without a write to one that ran into the time limit.
const DURATION_BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Kind of the object.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// Kind of the object and how the reconcile ended.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    kind: &'static str,
    result: &'static str,
}

/// Counters and gauges of the operator.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    reconciles: Family<ResultLabels, Counter>,
    watch_errors: Family<KindLabel, Counter>,
    durations: Family<KindLabel, Histogram, fn() -> Histogram>,
    leader: Gauge,
}

impl Metrics {
    /// Registers everything under `felix_operator_`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            watch_errors: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            leader: Gauge::default(),
        };
        let operator = registry.sub_registry_with_prefix("felix_operator");
        operator.register(
            "reconciles",
            "Reconciles by kind and result",
            metrics.reconciles.clone(),
        );
        operator.register(
            "watch_errors",
            "Failed watches and queue errors by kind",
            metrics.watch_errors.clone(),
        );
        operator.register(
            "reconcile_seconds",
            "Duration of reconciles by kind",
            metrics.durations.clone(),
        );
        operator.register(
            "leader",
            "1 where this replica does the work",
            metrics.leader.clone(),
        );
        metrics
    }

    /// One reconcile ended.
    pub(crate) fn observe_reconcile(&self, kind: &'static str, result: &'static str, took: Duration) {
        self.reconciles
            .get_or_create(&ResultLabels { kind, result })
            .inc();
        self.durations
            .get_or_create(&KindLabel { kind })
            .observe(took.as_secs_f64());
    }

    /// A watch failed and is tried again.
    pub(crate) fn observe_watch_error(&self, kind: &'static str) {
        self.watch_errors.get_or_create(&KindLabel { kind }).inc();
    }

    /// Whether this replica does the work.
    pub(crate) fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_the_documented_ones() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.observe_reconcile("FelixCluster", "ok", Duration::from_millis(3));
        metrics.observe_watch_error("FelixCluster");
        metrics.set_leader(true);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "felix_operator_reconciles_total{kind=\"FelixCluster\",result=\"ok\"} 1",
            "felix_operator_reconcile_seconds_count{kind=\"FelixCluster\"} 1",
            "felix_operator_watch_errors_total{kind=\"FelixCluster\"} 1",
            "felix_operator_leader 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
