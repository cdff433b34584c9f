//! What one subscriber got: verified, counted inside the window, timed.

use std::sync::Arc;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::order::Order;
use super::pace::Marks;
use super::plan::{Case, Middle, Window};
use crate::arrivals::Arrivals;
use crate::measure::latency_histogram;
use crate::payload::Pattern;
use crate::verify::Faults;

/// What the subscribers of a process share.
pub(super) struct Shared {
    pub(super) window: Window,
    pub(super) marks: Marks,
    pub(super) arrivals: Arrivals,
    pub(super) pattern: Arc<Pattern>,
    /// Ends the subscribers' tasks.
    pub(super) stop: CancellationToken,
}

/// Counts what one subscriber gets.
pub(super) struct Meter {
    shared: Arc<Shared>,
    /// `None` where there are no records, only bytes.
    order: Option<Order>,
    latency: Option<Histogram<u64>>,
    value_bytes: u64,
    received_bytes: u64,
    window_bytes: u64,
    /// Records that others have been told of.
    told: u64,
}

/// What all subscribers of a run got.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Delivered {
    /// Bytes of values that arrived in the window.
    pub(crate) window_bytes: u64,
    /// Records that arrived in all.
    pub(crate) records: u64,
    pub(crate) faults: Faults,
    /// Publish to delivery, in ns; 0 where it was not measured.
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    /// Deliveries behind them.
    pub(crate) latencies: u64,
}

impl Meter {
    pub(super) fn new(case: &Case, shared: Arc<Shared>) -> Self {
        let order = || Order::new(shared.pattern.clone(), case.publishers);
        Self {
            order: (case.middle != Middle::Relay).then(order),
            shared,
            latency: case.acked.then(latency_histogram),
            value_bytes: case.value_bytes() as u64,
            received_bytes: 0,
            window_bytes: 0,
            told: 0,
        }
    }

    /// A record arrived.
    pub(super) fn record(&mut self, value: &[u8], now_ns: u64) {
        let stamp = self.order.as_mut().and_then(|order| order.take(value));
        if let Some(stamp) = stamp {
            self.bytes(value.len() as u64, now_ns);
            self.latency(stamp.intended_ns, now_ns);
        }
    }

    /// Bytes arrived.
    pub(super) fn bytes(&mut self, bytes: u64, now_ns: u64) {
        self.received_bytes += bytes;
        if self.shared.window.contains(now_ns) {
            self.window_bytes += bytes;
        }
    }

    /// A record that left at `sent_ns` arrived. Does nothing where latencies are not asked for.
    pub(super) fn latency(&mut self, sent_ns: u64, now_ns: u64) {
        if let Some(latency) = &mut self.latency
            && self.shared.window.contains(now_ns)
        {
            latency.saturating_record(now_ns.saturating_sub(sent_ns).max(1));
        }
    }

    /// The middle says that it dropped records.
    pub(super) fn gap(&mut self, records: u64) {
        if let Some(order) = &mut self.order {
            order.gap(records);
        }
    }

    /// Tells others of what arrived since the last time.
    pub(super) fn tell(&mut self) {
        let received = self.received();
        self.shared.arrivals.add(received - self.told);
        self.shared.marks.moved(self.told, received);
        self.told = received;
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    fn received(&self) -> u64 {
        self.received_bytes / self.value_bytes
    }

    fn faults(&self, published: &[u64]) -> Faults {
        if let Some(order) = &self.order {
            return order.finish(published);
        }
        let published = published.iter().sum::<u64>() * self.value_bytes;
        Faults {
            lost: published
                .saturating_sub(self.received_bytes)
                .div_ceil(self.value_bytes),
            duplicates: self
                .received_bytes
                .saturating_sub(published)
                .div_ceil(self.value_bytes),
            ..Faults::default()
        }
    }
}

impl Delivered {
    /// Adds up the subscribers, who should have what was published, by publisher.
    pub(super) fn of(meters: &[Meter], published: &[u64]) -> Self {
        let mut latency = latency_histogram();
        let mut delivered = Self::default();
        for meter in meters {
            delivered.window_bytes += meter.window_bytes;
            delivered.records += meter.received();
            delivered.faults = delivered.faults.plus(meter.faults(published));
            // All have the same bounds, so adding cannot fail.
            meter
                .latency
                .iter()
                .for_each(|one| latency.add(one).unwrap_or_default());
        }
        delivered.latencies = latency.len();
        delivered.p50_ns = latency.value_at_quantile(0.5);
        delivered.p99_ns = latency.value_at_quantile(0.99);
        delivered
    }
}

#[cfg(test)]
mod tests {
    use super::super::pace::{Pace, Report};
    use super::super::plan::tests::case;
    use super::*;

    fn meter(case: &Case) -> Meter {
        let report = Report::Here(Arc::new(Pace::new(case.in_flight())));
        let shared = Shared {
            window: Window {
                begin_ns: 100,
                end_ns: 200,
            },
            marks: Marks::new(1, case.step(), report),
            arrivals: Arrivals::new(Arc::new(crate::progress::Progress::new())),
            pattern: case.pattern(),
            stop: CancellationToken::new(),
        };
        Meter::new(case, Arc::new(shared))
    }

    #[test]
    fn only_the_window_counts_and_everything_is_verified() {
        let case = Case {
            acked: true,
            batch: 1,
            ..case(Middle::Felix)
        };
        let mut meter = meter(&case);
        let mut values = case.pattern().values(0);
        for (sequence, now) in [(0, 90), (1, 110), (2, 190), (3, 250)] {
            meter.record(values.write(sequence, now - 5), now);
        }
        let delivered = Delivered::of(&[meter], &[4]);
        assert_eq!((delivered.window_bytes, delivered.records), (2 * 256, 4));
        assert_eq!((delivered.latencies, delivered.p50_ns), (2, 5));
        assert!(delivered.faults.none());
    }

    #[test]
    fn bytes_without_records_are_counted_to_the_last() {
        let case = case(Middle::Relay);
        let mut meter = meter(&case);
        meter.bytes(256 * 3 + 255, 150);
        assert_eq!(meter.faults(&[4]).lost, 1);
        meter.bytes(1, 160);
        assert!(meter.faults(&[4]).none());
        meter.bytes(1, 170);
        assert_eq!(meter.faults(&[4]).duplicates, 1);
    }
}
