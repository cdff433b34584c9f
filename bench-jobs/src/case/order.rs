//! Whether one subscriber got each publisher's records once, in order and unchanged, without knowing their number before.
//! Pure.

use std::sync::Arc;

use crate::payload::{Pattern, Stamp};
use crate::verify::Faults;

/// Checks the deliveries of one subscriber.
pub(super) struct Order {
    pattern: Arc<Pattern>,
    /// Per publisher, the sequence that must come next.
    next: Vec<u64>,
    faults: Faults,
}

impl Order {
    pub(super) fn new(pattern: Arc<Pattern>, publishers: usize) -> Self {
        Self {
            pattern,
            next: vec![0; publishers],
            faults: Faults::default(),
        }
    }

    /// Takes a delivered value; `None` where it is not the next record of one of this run's publishers.
    pub(super) fn take(&mut self, value: &[u8]) -> Option<Stamp> {
        let stamp = self.pattern.read(value).ok();
        let next = stamp.and_then(|stamp| self.next.get_mut(stamp.publisher as usize));
        let (Some(stamp), Some(next)) = (stamp, next) else {
            self.faults.corrupt += 1;
            return None;
        };
        if stamp.sequence < *next {
            self.faults.duplicates += 1;
            return None;
        }
        self.faults.lost += stamp.sequence - *next;
        *next = stamp.sequence + 1;
        Some(stamp)
    }

    /// The middle says that it dropped records.
    pub(super) fn gap(&mut self, records: u64) {
        self.faults.dropped += records.max(1);
    }

    /// The verdict, once all have come that were published, by publisher.
    pub(super) fn finish(&self, published: &[u64]) -> Faults {
        let missing = |(next, published): (&u64, &u64)| published.saturating_sub(*next);
        let missing: u64 = self.next.iter().zip(published).map(missing).sum();
        let mut faults = self.faults;
        faults.lost = (faults.lost + missing).saturating_sub(faults.dropped);
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::HEADER_BYTES;

    fn pattern(run: u32) -> Arc<Pattern> {
        Pattern::new(run, HEADER_BYTES + 4, 1)
    }

    fn verdict(deliveries: &[(u32, u64)], published: &[u64]) -> Faults {
        let pattern = pattern(9);
        let mut order = Order::new(pattern.clone(), published.len());
        for &(publisher, sequence) in deliveries {
            order.take(pattern.values(publisher).write(sequence, 0));
        }
        order.finish(published)
    }

    #[test]
    fn publishers_may_interleave() {
        assert!(verdict(&[(0, 0), (1, 0), (0, 1), (1, 1)], &[2, 2]).none());
    }

    #[test]
    fn each_fault_is_counted() {
        assert_eq!(verdict(&[(0, 0), (0, 2)], &[3]).lost, 1, "a hole");
        assert_eq!(verdict(&[(0, 0)], &[3]).lost, 2, "an end that never came");
        assert_eq!(verdict(&[(0, 0), (0, 0)], &[1]).duplicates, 1);
        assert_eq!(
            verdict(&[(0, 0), (0, 1), (0, 0)], &[2]).duplicates,
            1,
            "an older one"
        );
        assert_eq!(
            verdict(&[(5, 0)], &[0]).corrupt,
            1,
            "a publisher that there is not"
        );
    }

    #[test]
    fn changed_values_and_other_runs_do_not_count() {
        let mut order = Order::new(pattern(9), 1);
        assert_eq!(order.take(b"short"), None);
        assert_eq!(order.take(pattern(8).values(0).write(0, 0)), None);
        let mut changed = pattern(9).values(0).write(0, 0).to_vec();
        changed[HEADER_BYTES + 3] ^= 1;
        assert_eq!(order.take(&changed), None);
        assert_eq!(
            order.finish(&[1]),
            Faults {
                corrupt: 3,
                lost: 1,
                ..Faults::default()
            }
        );
    }

    #[test]
    fn a_gap_is_a_drop_even_where_nobody_counted() {
        let mut order = Order::new(pattern(9), 1);
        order.gap(0);
        assert_eq!(
            order.finish(&[1]),
            Faults {
                dropped: 1,
                ..Faults::default()
            }
        );
    }
}
