//! `/metrics` while the benchmark runs: finished rows and the progress of the running one. The only file that names a metric.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use crate::outcome::RowSummary;
use crate::progress::Progress;

/// Quantiles that each row exports, and how they are written.
const QUANTILES: [&str; 3] = ["0.5", "0.99", "0.999"];

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RowLabels {
    payload: u64,
    fanout: u64,
    batch: u64,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct QuantileLabels {
    payload: u64,
    fanout: u64,
    batch: u64,
    quantile: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct StateLabels {
    state: RowState,
}

#[derive(Clone, Copy, Debug, EncodeLabelValue, Eq, Hash, PartialEq)]
enum RowState {
    #[expect(non_camel_case_types, reason = "the variant's name is the label's value")]
    passed,
    #[expect(non_camel_case_types, reason = "the variant's name is the label's value")]
    failed,
}

type Figure = Gauge<f64, AtomicU64>;

/// The metrics of one invocation.
pub(crate) struct Metrics {
    registry: Registry,
    latency: Family<QuantileLabels, Figure>,
    delivered_records: Family<RowLabels, Figure>,
    delivered_bytes: Family<RowLabels, Figure>,
    published_records: Family<RowLabels, Figure>,
    dropped: Family<RowLabels, Gauge>,
    rows: Family<StateLabels, Gauge>,
    running_expected: Gauge,
    running_delivered: Gauge,
    progress: Arc<Progress>,
}

impl Metrics {
    /// Registers all metrics; `progress` is read at each scrape.
    pub(crate) fn new(progress: Arc<Progress>) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            latency: Family::default(),
            delivered_records: Family::default(),
            delivered_bytes: Family::default(),
            published_records: Family::default(),
            dropped: Family::default(),
            rows: Family::default(),
            running_expected: Gauge::default(),
            running_delivered: Gauge::default(),
            progress,
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        named(
            registry,
            "delivery_latency_seconds",
            "Publish to delivery, over all deliveries of a row; queueing delay where batch is above 1",
            &self.latency,
        );
        named(
            registry,
            "delivered_records_per_second",
            "Deliveries a second of a row, all subscribers together",
            &self.delivered_records,
        );
        named(
            registry,
            "delivered_bytes_per_second",
            "Bytes of values delivered a second, all subscribers together",
            &self.delivered_bytes,
        );
        named(
            registry,
            "published_records_per_second",
            "Records a second handed to the client, an upper bound",
            &self.published_records,
        );
        named(
            registry,
            "dropped_records",
            "Records that the broker said it dropped",
            &self.dropped,
        );
        named(registry, "rows", "Rows finished, by verdict", &self.rows);
        named(
            registry,
            "running_expected_records",
            "Deliveries that the running row expects, warm-up included",
            &self.running_expected,
        );
        named(
            registry,
            "running_delivered_records",
            "Deliveries that the running row has seen, warm-up included",
            &self.running_delivered,
        );
    }

    /// Takes a finished row.
    pub(crate) fn observe(&self, row: &RowSummary) {
        let RowSummary {
            payload_bytes: payload,
            fanout,
            batch,
            ..
        } = *row;
        let latencies = [row.p50_nanoseconds, row.p99_nanoseconds, row.p999_nanoseconds];
        for (quantile, nanoseconds) in QUANTILES.into_iter().zip(latencies) {
            let labels = QuantileLabels {
                payload,
                fanout,
                batch,
                quantile,
            };
            self.latency.get_or_create(&labels).set(nanoseconds as f64 / 1e9);
        }
        let labels = RowLabels {
            payload,
            fanout,
            batch,
        };
        self.delivered_records
            .get_or_create(&labels)
            .set(row.delivered_per_second as f64);
        self.delivered_bytes
            .get_or_create(&labels)
            .set(row.delivered_bytes_per_second as f64);
        self.published_records
            .get_or_create(&labels)
            .set(row.published_per_second as f64);
        self.dropped.get_or_create(&labels).set(row.dropped as i64);
        let state = if row.passed {
            RowState::passed
        } else {
            RowState::failed
        };
        self.rows.get_or_create(&StateLabels { state }).inc();
    }

    /// The OpenMetrics text.
    pub(crate) fn text(&self) -> String {
        self.running_expected.set(self.progress.expected() as i64);
        self.running_delivered.set(self.progress.delivered() as i64);
        let mut text = String::new();
        // Writing into a String cannot fail; an encoder that did would leave a scrape without its end mark.
        if encode(&mut text, &self.registry).is_err() {
            text.clear();
        }
        text
    }
}

fn named(registry: &mut Registry, name: &str, help: &str, metric: &(impl Metric + Clone)) {
    registry.register(format!("felix_benchmark_{name}"), help, metric.clone());
}

/// Serves `/metrics` until the task is dropped. Fails where the address cannot be bound.
pub(crate) async fn serve(
    metrics: Arc<Metrics>,
    bind: SocketAddr,
) -> std::io::Result<tokio::task::JoinHandle<()>> {
    let listener = tokio::net::TcpListener::bind(bind).await?;
    let routes = Router::new().route("/metrics", get(scrape)).with_state(metrics);
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::warn!(%error, "the metrics server ended");
        }
    }))
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    (
        [(
            CONTENT_TYPE,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        )],
        metrics.text(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_row_is_exported_in_seconds() {
        let progress = Arc::new(Progress::new());
        progress.begin("row", 100);
        progress
            .counter()
            .fetch_add(40, std::sync::atomic::Ordering::Relaxed);
        let metrics = Metrics::new(progress);
        metrics.observe(&RowSummary {
            payload_bytes: 256,
            fanout: 10,
            batch: 1,
            p99_nanoseconds: 250_000,
            delivered_per_second: 5_000,
            passed: true,
            ..RowSummary::default()
        });
        let text = metrics.text();
        for line in [
            r#"felix_benchmark_delivery_latency_seconds{payload="256",fanout="10",batch="1",quantile="0.99"} 0.00025"#,
            r#"felix_benchmark_delivered_records_per_second{payload="256",fanout="10",batch="1"} 5000.0"#,
            r#"felix_benchmark_dropped_records{payload="256",fanout="10",batch="1"} 0"#,
            r#"felix_benchmark_rows{state="passed"} 1"#,
            "felix_benchmark_running_expected_records 100",
            "felix_benchmark_running_delivered_records 40",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing from\n{text}"
            );
        }
    }
}
