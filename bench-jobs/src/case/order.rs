//! Whether one subscriber got each publisher's records once, in order and unchanged, without knowing their number before.
//! Pure.

use crate::payload::{self, Stamp};
use crate::verify::Faults;

/// Checks the deliveries of one subscriber.
pub(super) struct Order {
    run: u32,
    /// Per publisher, the sequence that must come next.
    next: Vec<u64>,
    faults: Faults,
}

impl Order {
    pub(super) fn new(run: u32, publishers: usize) -> Self {
        Self {
            run,
            next: vec![0; publishers],
            faults: Faults::default(),
        }
    }

    /// Takes a delivered value; `None` where it is not the next record of one of this run's publishers.
    pub(super) fn take(&mut self, value: &[u8]) -> Option<Stamp> {
        let stamp = payload::read(value).ok().filter(|stamp| stamp.run == self.run);
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
    use crate::payload::{HEADER_BYTES, PayloadWriter};

    fn verdict(deliveries: &[(u32, u64)], published: &[u64]) -> Faults {
        let writer = PayloadWriter::new();
        let mut order = Order::new(9, published.len());
        for &(publisher, sequence) in deliveries {
            let stamp = Stamp {
                run: 9,
                publisher,
                sequence,
                intended_ns: 0,
                late_ns: 0,
            };
            let mut value = vec![0; HEADER_BYTES + 4];
            writer.write(&stamp, &mut value);
            order.take(&value);
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
        let mut order = Order::new(9, 1);
        assert_eq!(order.take(b"short"), None);
        let stamp = Stamp {
            run: 8,
            publisher: 0,
            sequence: 0,
            intended_ns: 0,
            late_ns: 0,
        };
        let mut value = vec![0; HEADER_BYTES];
        PayloadWriter::new().write(&stamp, &mut value);
        assert_eq!(order.take(&value), None);
        assert_eq!(
            order.finish(&[1]),
            Faults {
                corrupt: 2,
                lost: 1,
                ..Faults::default()
            }
        );
    }

    #[test]
    fn a_gap_is_a_drop_even_where_nobody_counted() {
        let mut order = Order::new(9, 1);
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
