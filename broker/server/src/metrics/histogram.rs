//! A latency histogram for the data path: one atomic addition for each observation, no lock.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// Upper bounds in nanoseconds: 10 us to 10 s in steps of 1, 2 and 5.
const BOUNDS: [u64; 19] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Counts of latencies. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencyHistogram(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// One for each bound, and one for all that is longer.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_nanoseconds: AtomicU64,
}

impl LatencyHistogram {
    /// Counts one latency.
    pub(crate) fn observe(&self, nanoseconds: u64) {
        let bucket = BOUNDS.partition_point(|bound| *bound < nanoseconds);
        self.0.counts[bucket].fetch_add(1, Relaxed);
        self.0.sum_nanoseconds.fetch_add(nanoseconds, Relaxed);
    }
}

impl EncodeMetric for LatencyHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bounds = BOUNDS
            .iter()
            .map(|bound| *bound as f64 / 1e9)
            .chain([f64::INFINITY]);
        let counts = self.0.counts.iter().map(|count| count.load(Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = self.0.sum_nanoseconds.load(Relaxed) as f64 / 1e9;
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for LatencyHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket_and_all_counts_add_up() {
        let histogram = LatencyHistogram::default();
        for nanoseconds in [0, 10_000, 10_001, 10_000_000_000, 10_000_000_001, u64::MAX / 4] {
            histogram.observe(nanoseconds);
        }
        let counts: Vec<u64> = histogram
            .0
            .counts
            .iter()
            .map(|count| count.load(Relaxed))
            .collect();
        assert_eq!(counts[0], 2);
        assert_eq!(counts[1], 1);
        assert_eq!(counts[18], 1);
        assert_eq!(counts[19], 2);
    }
}
