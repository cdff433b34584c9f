//! The figures of finished benchmarks as metrics: a Job's own endpoint is gone by then, so the operator shows them for as
//! long as the FelixBenchmark exists.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use felix_crds::{FelixBenchmark, LatencyResult};
use kube::{ResourceExt, runtime::reflector::Store};
use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::MetricType, registry::Registry,
};

use crate::controllers::Guarded;

/// Nanoseconds of a second.
const NANOSECONDS: f64 = 1e9;

/// Where the figures are read at each scrape: the stores of the running controllers.
#[derive(Clone, Default)]
pub(crate) struct Results(Arc<Mutex<Vec<Store<Guarded<FelixBenchmark>>>>>);

impl Results {
    /// Registers the metrics `felix_benchmark_*`.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let results = Self::default();
        registry.register_collector(Box::new(results.clone()));
        results
    }

    /// From now on also shows the benchmarks of this store.
    pub(crate) fn add(&self, store: Store<Guarded<FelixBenchmark>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(store);
    }

    /// All benchmarks that have figures, in the order of their names.
    fn benchmarks(&self) -> Vec<FelixBenchmark> {
        let stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let objects = stores.iter().flat_map(Store::state);
        let mut found: Vec<FelixBenchmark> = objects.filter_map(|object| object.0.clone().ok()).collect();
        found.retain(|benchmark| {
            benchmark
                .status
                .as_ref()
                .is_some_and(|status| !status.rows.is_empty())
        });
        found.sort_by_key(|benchmark| (benchmark.namespace(), benchmark.name_any()));
        found
    }
}

impl fmt::Debug for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").finish_non_exhaustive()
    }
}

impl Collector for Results {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode(&self.benchmarks(), encoder)
    }
}

/// A metric that has one value a row.
struct RowMetric {
    name: &'static str,
    help: &'static str,
    value: fn(&LatencyResult) -> i64,
}

const ROW_METRICS: [RowMetric; 4] = [
    RowMetric {
        name: "felix_benchmark_published_records_per_second",
        help: "Records published a second",
        value: |row| row.published_per_second,
    },
    RowMetric {
        name: "felix_benchmark_delivered_records_per_second",
        help: "Records delivered a second, over all subscribers",
        value: |row| row.delivered_per_second,
    },
    RowMetric {
        name: "felix_benchmark_delivered_bytes_per_second",
        help: "Payload bytes delivered a second, over all subscribers",
        value: |row| row.delivered_bytes_per_second,
    },
    RowMetric {
        name: "felix_benchmark_dropped_records",
        help: "Records that subscribers were told they did not get",
        value: |row| row.dropped,
    },
];

fn encode(benchmarks: &[FelixBenchmark], mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let rows = || benchmarks.iter().flat_map(rows_of);
    if rows().next().is_none() {
        return Ok(());
    }
    let name = "felix_benchmark_delivery_latency_seconds";
    let help = "Time from publish to delivery by quantile";
    let mut latency = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (benchmark, row) in rows() {
        for (quantile, nanoseconds) in [
            ("0.5", row.p50_nanoseconds),
            ("0.99", row.p99_nanoseconds),
            ("0.999", row.p999_nanoseconds),
        ] {
            let mut labels = labels(benchmark, row);
            labels.push(("quantile", quantile.to_owned()));
            latency
                .encode_family(&labels)?
                .encode_gauge(&seconds(nanoseconds))?;
        }
    }
    for metric in &ROW_METRICS {
        let mut family = encoder.encode_descriptor(metric.name, metric.help, None, MetricType::Gauge)?;
        for (benchmark, row) in rows() {
            family
                .encode_family(&labels(benchmark, row))?
                .encode_gauge(&(metric.value)(row))?;
        }
    }
    Ok(())
}

fn rows_of(benchmark: &FelixBenchmark) -> impl Iterator<Item = (&FelixBenchmark, &LatencyResult)> {
    benchmark
        .status
        .iter()
        .flat_map(|status| &status.rows)
        .map(move |row| (benchmark, row))
}

fn labels(benchmark: &FelixBenchmark, row: &LatencyResult) -> Vec<(&'static str, String)> {
    vec![
        ("namespace", benchmark.namespace().unwrap_or_default()),
        ("benchmark", benchmark.name_any()),
        ("payload", row.payload_bytes.to_string()),
        ("fanout", row.fanout.to_string()),
        ("batch", row.batch.to_string()),
    ]
}

/// Exact up to 2^53 ns, which is a hundred days.
fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / NANOSECONDS
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher};
    use prometheus_client::encoding::text;

    use super::*;

    fn benchmark(name: &str, rows: Vec<LatencyResult>) -> Guarded<FelixBenchmark> {
        let mut benchmark: FelixBenchmark = serde_json::from_value(serde_json::json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixBenchmark",
            "metadata": { "name": name, "namespace": "team-a" },
            "spec": {
                "clusterRef": { "name": "main" }, "streamRef": { "name": "orders" }, "latency": { "preset": "quick" },
            },
        }))
        .unwrap();
        benchmark.status = Some(felix_crds::FelixBenchmarkStatus {
            rows,
            ..Default::default()
        });
        kube::core::DeserializeGuard(Ok(benchmark))
    }

    fn scrape(benchmarks: Vec<Guarded<FelixBenchmark>>) -> String {
        let (store, mut writer) = reflector::store();
        for benchmark in benchmarks {
            writer.apply_watcher_event(&watcher::Event::Apply(benchmark));
        }
        let mut registry = Registry::default();
        Results::register(&mut registry).add(store);
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn every_figure_of_a_finished_run_is_shown_with_its_row() {
        let row = LatencyResult {
            payload_bytes: 1024,
            fanout: 10,
            batch: 1,
            p50_nanoseconds: 110_000,
            p999_nanoseconds: 1_500_000_000,
            delivered_per_second: 70_000,
            delivered_bytes_per_second: 71_680_000,
            published_per_second: 7_000,
            ..LatencyResult::default()
        };
        let text = scrape(vec![benchmark("nightly", vec![row])]);
        let row = r#"namespace="team-a",benchmark="nightly",payload="1024",fanout="10",batch="1""#;
        for line in [
            format!(r#"felix_benchmark_delivery_latency_seconds{{{row},quantile="0.5"}} 0.00011"#),
            format!(r#"felix_benchmark_delivery_latency_seconds{{{row},quantile="0.999"}} 1.5"#),
            format!("felix_benchmark_delivered_records_per_second{{{row}}} 70000"),
            format!("felix_benchmark_delivered_bytes_per_second{{{row}}} 71680000"),
            format!("felix_benchmark_published_records_per_second{{{row}}} 7000"),
            format!("felix_benchmark_dropped_records{{{row}}} 0"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_run_without_figures_is_not_shown() {
        assert!(!scrape(vec![benchmark("waiting", Vec::new())]).contains("felix_benchmark"));
    }
}
