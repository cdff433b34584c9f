//! What a run leaves behind: the result line of each row and the summary of all, as written to files and ConfigMaps.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::cpu;
use crate::environment::{Environment, Tool};
use crate::row::Row;
use crate::verify::Faults;

/// Version of both documents; it rises when a field changes its meaning.
pub(crate) const SCHEMA: u32 = 1;

/// One line of `results.jsonl`: a row, what it measured, and where.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResultLine {
    /// Version of this document.
    pub(crate) schema: u32,
    /// What kind of run it was: `latency`.
    pub(crate) kind: String,
    /// Names the invocation that this line came from; all its lines share it.
    pub(crate) session: String,
    /// When the row began, RFC 3339.
    pub(crate) started_at: String,
    /// Which program measured.
    pub(crate) tool: Tool,
    /// Where it measured.
    pub(crate) environment: Environment,
    /// Where the broker was: `embedded`, or the address.
    pub(crate) target: String,
    /// What was asked of a row.
    pub(crate) workload: Workload,
    /// What came out.
    pub(crate) result: RowSummary,
    /// More figures of the row, for people who dig.
    pub(crate) detail: Detail,
}

/// What a row did.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Workload {
    /// Records published before the measurement.
    pub(crate) warmup_records: u64,
    /// Bytes of a value on the wire: the payload, or the 32-byte header where that is larger.
    pub(crate) value_bytes: u64,
    /// Connections that the subscribers shared.
    pub(crate) subscriber_connections: u32,
    /// What paced the publisher: `ack`, `ack-and-delivery` or `saturation`.
    pub(crate) pacing: String,
    /// The slow-subscriber policy the subscriptions had.
    pub(crate) policy: String,
}

/// The figures of a row that are copied into a FelixBenchmark's status. All numbers are whole, units in the names.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RowSummary {
    /// Bytes of a value as asked for.
    pub(crate) payload_bytes: u64,
    /// Subscribers.
    pub(crate) fanout: u64,
    /// Records in a batch.
    pub(crate) batch: u64,
    /// Records measured.
    pub(crate) records: u64,
    /// Median of publish to delivery, over all deliveries.
    pub(crate) p50_nanoseconds: u64,
    /// 99th percentile of publish to delivery.
    pub(crate) p99_nanoseconds: u64,
    /// 99.9th percentile of publish to delivery.
    pub(crate) p999_nanoseconds: u64,
    /// Deliveries a second, all subscribers together.
    pub(crate) delivered_per_second: u64,
    /// Bytes of values delivered a second, all subscribers together.
    pub(crate) delivered_bytes_per_second: u64,
    /// Records a second that the publisher handed to its client: an upper bound, not a delivery claim.
    pub(crate) published_per_second: u64,
    /// Records that the broker said it dropped.
    pub(crate) dropped: u64,
    /// Records that never came and that no gap accounts for.
    pub(crate) lost: u64,
    /// Records that came more than once.
    pub(crate) duplicates: u64,
    /// Records that came out of order.
    pub(crate) reordered: u64,
    /// Whether everything came once, in order, unchanged and acknowledged.
    pub(crate) passed: bool,
}

/// Figures beside the summary.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    /// From the first measured publish to the last delivery.
    pub(crate) window_nanoseconds: u64,
    /// From the first measured publish to the last one handed over.
    pub(crate) publish_nanoseconds: u64,
    /// Deliveries a second for one subscriber.
    pub(crate) delivered_per_subscriber_per_second: u64,
    /// Distinct records delivered, summed over subscribers.
    pub(crate) delivered_records: u64,
    /// Records that came changed.
    pub(crate) corrupt: u64,
    /// Largest publish to delivery.
    pub(crate) max_nanoseconds: u64,
    /// Mean of publish to delivery.
    pub(crate) mean_nanoseconds: u64,
    /// Pairs of quantile and nanoseconds, for curves.
    pub(crate) percentiles: Vec<(f64, u64)>,
    /// Processor time of this process while measuring; with an embedded broker, the broker's included.
    pub(crate) cpu_nanoseconds: u64,
    /// The same for a delivered gigabyte of values.
    pub(crate) cpu_nanoseconds_per_gigabyte: u64,
    /// Packets of the publisher's connection that were lost while measuring.
    pub(crate) lost_packets: u64,
    /// What a reader should know before trusting the row.
    pub(crate) warnings: Vec<String>,
    /// Why the row failed, where it did.
    pub(crate) failure: Option<String>,
}

/// `summary.json`: what the operator copies into the status.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// Version of this document.
    pub(crate) schema: u32,
    /// Which program measured.
    pub(crate) tool: Tool,
    /// Where it measured.
    pub(crate) environment: Environment,
    /// One entry a row, in the order asked for.
    pub(crate) rows: Vec<RowSummary>,
    /// Whether every row asked for ran and passed.
    pub(crate) passed: bool,
}

/// What the measuring of one row gives.
pub(crate) struct Measured {
    /// Latencies of all subscribers, in ns.
    pub(crate) latency: Histogram<u64>,
    /// Faults of all subscribers.
    pub(crate) faults: Faults,
    /// Distinct records delivered, summed over subscribers.
    pub(crate) delivered: u64,
    /// From the first measured publish to the last delivery, in ns.
    pub(crate) window_ns: u64,
    /// From the first measured publish to the last one handed over, in ns.
    pub(crate) publish_ns: u64,
    /// Processor time of this process from the first measured publish to the end, in ns.
    pub(crate) cpu_ns: u64,
    /// Packets that the publisher's connection lost.
    pub(crate) lost_packets: u64,
    /// What a reader should know.
    pub(crate) warnings: Vec<String>,
    /// Why the row failed although nothing above shows it: an error, a stall, a deadline.
    pub(crate) failure: Option<String>,
}

/// Quantiles kept of each row; enough for a curve, few enough for a line.
const QUANTILES: [f64; 18] = [
    0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9975, 0.999, 0.9995, 0.99975, 0.9999,
    0.99995, 0.99999, 1.0,
];

impl Measured {
    /// The figures for status and table.
    pub(crate) fn summary(&self, row: &Row) -> RowSummary {
        RowSummary {
            payload_bytes: row.payload.into(),
            fanout: row.fanout.into(),
            batch: row.batch.into(),
            records: row.total,
            p50_nanoseconds: self.quantile(0.5),
            p99_nanoseconds: self.quantile(0.99),
            p999_nanoseconds: self.quantile(0.999),
            delivered_per_second: per_second(self.delivered, self.window_ns),
            delivered_bytes_per_second: per_second(self.delivered * row.value_bytes() as u64, self.window_ns),
            published_per_second: per_second(row.total, self.publish_ns),
            dropped: self.faults.dropped,
            lost: self.faults.lost,
            duplicates: self.faults.duplicates,
            reordered: self.faults.reordered,
            passed: self.passed(row),
        }
    }

    /// The figures beside them.
    pub(crate) fn detail(&self, row: &Row) -> Detail {
        Detail {
            window_nanoseconds: self.window_ns,
            publish_nanoseconds: self.publish_ns,
            delivered_per_subscriber_per_second: per_second(self.delivered, self.window_ns)
                / u64::from(row.fanout),
            delivered_records: self.delivered,
            corrupt: self.faults.corrupt,
            max_nanoseconds: if self.latency.is_empty() {
                0
            } else {
                self.latency.max()
            },
            mean_nanoseconds: self.latency.mean() as u64,
            percentiles: QUANTILES.iter().map(|q| (*q, self.quantile(*q))).collect(),
            cpu_nanoseconds: self.cpu_ns,
            cpu_nanoseconds_per_gigabyte: self.price(row),
            lost_packets: self.lost_packets,
            warnings: self.warnings.clone(),
            failure: self.failure.clone(),
        }
    }

    /// Whether every subscriber was given every record, once, in order and unchanged, and nothing else failed.
    pub(crate) fn passed(&self, row: &Row) -> bool {
        self.faults.none() && self.failure.is_none() && self.delivered == row.total * u64::from(row.fanout)
    }

    fn price(&self, row: &Row) -> u64 {
        let bytes = self.delivered * row.value_bytes() as u64;
        cpu::seconds_per_gigabyte(Duration::from_nanos(self.cpu_ns), bytes)
            .map_or(0, |seconds| (seconds * 1e9) as u64)
    }

    fn quantile(&self, quantile: f64) -> u64 {
        if self.latency.is_empty() {
            0
        } else {
            self.latency.value_at_quantile(quantile)
        }
    }
}

/// A row that could not be measured: counted as failed, with every record lost.
pub(crate) fn failed(row: &Row, why: String) -> Measured {
    Measured {
        latency: crate::measure::latency_histogram(),
        faults: Faults {
            lost: row.total * u64::from(row.fanout),
            ..Faults::default()
        },
        delivered: 0,
        window_ns: 0,
        publish_ns: 0,
        cpu_ns: 0,
        lost_packets: 0,
        warnings: Vec::new(),
        failure: Some(why),
    }
}

/// `count` in `nanoseconds`, as a rate a second; 0 where nothing was timed.
fn per_second(count: u64, nanoseconds: u64) -> u64 {
    if nanoseconds == 0 {
        return 0;
    }
    let rate = u128::from(count) * 1_000_000_000 / u128::from(nanoseconds);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        crate::row::parse("payload=100,fanout=2,batch=1,total=10").unwrap()
    }

    fn measured(delivered: u64, faults: Faults) -> Measured {
        let mut latency = crate::measure::latency_histogram();
        latency.record_n(1_000, delivered).unwrap();
        Measured {
            latency,
            faults,
            delivered,
            window_ns: 2_000_000_000,
            publish_ns: 1_000_000_000,
            cpu_ns: 0,
            lost_packets: 0,
            warnings: Vec::new(),
            failure: None,
        }
    }

    #[test]
    fn rates_come_from_the_window_and_count_every_subscriber() {
        let summary = measured(20, Faults::default()).summary(&row());
        assert_eq!(summary.delivered_per_second, 10);
        assert_eq!(summary.delivered_bytes_per_second, 1_000);
        assert_eq!(summary.published_per_second, 10);
        assert!(summary.passed);
    }

    #[test]
    fn a_shortfall_or_any_fault_fails_the_row() {
        assert!(!measured(19, Faults::default()).passed(&row()));
        assert!(
            !measured(
                20,
                Faults {
                    duplicates: 1,
                    ..Faults::default()
                }
            )
            .passed(&row())
        );
        assert!(!failed(&row(), "no broker".into()).passed(&row()));
        assert_eq!(failed(&row(), "no broker".into()).summary(&row()).lost, 20);
    }

    #[test]
    fn the_summary_has_the_names_that_the_operator_reads() {
        let json = serde_json::to_value(measured(20, Faults::default()).summary(&row())).unwrap();
        let mut names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let mut expected = [
            "payloadBytes",
            "fanout",
            "batch",
            "records",
            "p50Nanoseconds",
            "p99Nanoseconds",
            "p999Nanoseconds",
            "deliveredPerSecond",
            "deliveredBytesPerSecond",
            "publishedPerSecond",
            "dropped",
            "lost",
            "duplicates",
            "reordered",
            "passed",
        ];
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
}
