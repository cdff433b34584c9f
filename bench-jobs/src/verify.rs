//! What one subscriber was given: each record exactly once, in order, unchanged. Pure; the counts decide pass or fail.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::payload::{BadPayload, Pattern, Stamp};

/// What was wrong with the deliveries, summed over subscribers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Faults {
    /// Records that the broker said it dropped, by its gaps.
    pub(crate) dropped: u64,
    /// Records that never came and that no gap accounts for.
    pub(crate) lost: u64,
    /// Records that came more than once.
    pub(crate) duplicates: u64,
    /// Records that came after a later one of the same publisher and shard.
    pub(crate) reordered: u64,
    /// Records with a byte that is not as it was sent, or that are not benchmark records at all.
    pub(crate) corrupt: u64,
}

impl Faults {
    /// Whether every record came once, in order and unchanged.
    pub(crate) fn none(&self) -> bool {
        *self == Self::default()
    }

    /// The sum with another subscriber's.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            dropped: self.dropped + other.dropped,
            lost: self.lost + other.lost,
            duplicates: self.duplicates + other.duplicates,
            reordered: self.reordered + other.reordered,
            corrupt: self.corrupt + other.corrupt,
        }
    }
}

/// Checks the deliveries of one subscriber in one run with one publisher.
pub(crate) struct Verifier {
    pattern: Arc<Pattern>,
    expected: u64,
    /// One bit per sequence: what has come.
    seen: Vec<u64>,
    /// Per shard, one more than the highest sequence that has come.
    next: Vec<u64>,
    received: u64,
    foreign: u64,
    faults: Faults,
}

impl Verifier {
    /// Expects sequences `0..expected` of a run's values. Takes one bit of memory for each.
    pub(crate) fn new(pattern: Arc<Pattern>, expected: u64) -> Self {
        Self {
            pattern,
            expected,
            seen: vec![0; expected.div_ceil(64) as usize],
            next: Vec::new(),
            received: 0,
            foreign: 0,
            faults: Faults::default(),
        }
    }

    /// Takes one delivered value; the stamp comes back where it is the first delivery of a record of this run.
    pub(crate) fn take(&mut self, shard: u32, value: &[u8]) -> Option<Stamp> {
        let stamp = match self.pattern.read(value) {
            Ok(stamp) => stamp,
            Err(BadPayload::Damaged) => {
                self.faults.corrupt += 1;
                return None;
            }
            Err(BadPayload::Foreign) => {
                self.foreign += 1;
                return None;
            }
        };
        if stamp.sequence >= self.expected {
            self.faults.corrupt += 1;
            return None;
        }
        if !self.mark(stamp.sequence) {
            self.faults.duplicates += 1;
            return None;
        }
        self.follow(shard as usize, stamp.sequence);
        Some(stamp)
    }

    /// Takes a gap: the broker says that `records` were dropped.
    pub(crate) fn gap(&mut self, records: u64) {
        self.faults.dropped += records;
    }

    /// Distinct records of this run received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Records accounted for: received or told as dropped.
    pub(crate) fn accounted(&self) -> u64 {
        self.received + self.faults.dropped
    }

    /// Records of other runs seen on the stream; they are not counted anywhere else.
    pub(crate) fn foreign(&self) -> u64 {
        self.foreign
    }

    /// The verdict, once no more is expected.
    pub(crate) fn finish(&self) -> Faults {
        let missing = self.expected - self.received;
        Faults {
            lost: missing.saturating_sub(self.faults.dropped),
            ..self.faults
        }
    }

    fn mark(&mut self, sequence: u64) -> bool {
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        let fresh = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        self.received += u64::from(fresh);
        fresh
    }

    fn follow(&mut self, shard: usize, sequence: u64) {
        if shard >= self.next.len() {
            self.next.resize(shard + 1, 0);
        }
        if sequence < self.next[shard] {
            self.faults.reordered += 1;
        } else {
            self.next[shard] = sequence + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::HEADER_BYTES;

    fn pattern(run: u32) -> Arc<Pattern> {
        Pattern::new(run, HEADER_BYTES + 8, 1)
    }

    fn value(run: u32, sequence: u64) -> Vec<u8> {
        pattern(run).values(0).write(sequence, sequence).to_vec()
    }

    fn verdict(expected: u64, deliveries: &[(u32, u64)]) -> Faults {
        let mut verifier = Verifier::new(pattern(9), expected);
        for &(shard, sequence) in deliveries {
            verifier.take(shard, &value(9, sequence));
        }
        verifier.finish()
    }

    #[test]
    fn everything_once_and_in_order_is_no_fault() {
        assert!(verdict(4, &[(0, 0), (0, 1), (0, 2), (0, 3)]).none());
        assert!(
            verdict(4, &[(1, 1), (0, 0), (1, 3), (0, 2)]).none(),
            "order holds within a shard"
        );
    }

    #[test]
    fn each_fault_is_counted_as_itself() {
        assert_eq!(
            verdict(3, &[(0, 0), (0, 2)]),
            Faults {
                lost: 1,
                ..Faults::default()
            }
        );
        assert_eq!(
            verdict(2, &[(0, 0), (0, 1), (0, 1)]),
            Faults {
                duplicates: 1,
                ..Faults::default()
            }
        );
        assert_eq!(
            verdict(2, &[(0, 1), (0, 0)]),
            Faults {
                reordered: 1,
                ..Faults::default()
            }
        );
        assert_eq!(
            verdict(1, &[(0, 0), (0, 5)]),
            Faults {
                corrupt: 1,
                ..Faults::default()
            }
        );
    }

    #[test]
    fn a_gap_explains_what_is_missing_and_still_fails() {
        let mut verifier = Verifier::new(pattern(9), 10);
        verifier.take(0, &value(9, 0));
        verifier.gap(8);
        verifier.take(0, &value(9, 9));
        assert_eq!(verifier.accounted(), 10);
        assert_eq!(
            verifier.finish(),
            Faults {
                dropped: 8,
                ..Faults::default()
            }
        );
    }

    #[test]
    fn changed_and_foreign_records_are_told_apart() {
        let mut verifier = Verifier::new(pattern(9), 2);
        assert_eq!(verifier.take(0, &value(8, 0)), None);
        let mut changed = value(9, 1);
        changed[HEADER_BYTES] ^= 0x80;
        assert_eq!(verifier.take(0, &changed), None);
        assert_eq!(verifier.take(0, b"short"), None);
        assert_eq!((verifier.foreign(), verifier.received()), (1, 0));
        assert_eq!(
            verifier.finish(),
            Faults {
                lost: 2,
                corrupt: 2,
                ..Faults::default()
            }
        );
    }
}
