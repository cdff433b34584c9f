//! Batches that the ring has let go and a cursor still holds, and what they take: a batch that several cursors hold is
//! counted once, each cursor's entry for it is counted for each.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use felix_wire::Offset;

use crate::limits::PIN_OVERHEAD;
use crate::ring::{Entries, Entry, cost};

/// What the pins of one shard take. Only changed by whoever has the shard, so nothing else is ordered by it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PinnedBytes(Arc<AtomicU64>);

impl PinnedBytes {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Counts a batch for as long as one of the clones is there.
    pub(crate) fn pin(&self, entry: &Entry) -> Pin {
        let bytes = cost(entry.batch.len()) - PIN_OVERHEAD;
        self.0.fetch_add(bytes, Relaxed);
        Pin(Arc::new(PinnedBatch {
            bytes,
            sum: self.clone(),
        }))
    }
}

/// A share in a batch that is counted once.
#[derive(Clone, Debug)]
pub(crate) struct Pin(#[expect(dead_code, reason = "held for its end")] Arc<PinnedBatch>);

#[derive(Debug)]
struct PinnedBatch {
    bytes: u64,
    sum: PinnedBytes,
}

impl Drop for PinnedBatch {
    fn drop(&mut self) {
        self.sum.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// What one cursor holds, oldest first, without a hole.
#[derive(Debug)]
pub(crate) struct Pins {
    entries: Entries,
    /// One for each entry.
    pins: VecDeque<Pin>,
    sum: PinnedBytes,
}

impl Pins {
    pub(crate) fn new(sum: PinnedBytes) -> Self {
        Self {
            entries: Entries::default(),
            pins: VecDeque::new(),
            sum,
        }
    }

    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    pub(crate) fn push(&mut self, entry: Entry, pin: Pin) {
        self.entries.push(entry);
        self.pins.push_back(pin);
        self.sum.0.fetch_add(PIN_OVERHEAD, Relaxed);
    }

    /// Drops what ends behind `offset`.
    pub(crate) fn cut_behind(&mut self, offset: Offset) {
        self.entries.cut_behind(offset);
        self.settle();
    }

    /// Drops what ends at `offset` or before.
    pub(crate) fn cut_before(&mut self, offset: Offset) {
        let before = self.entries.len();
        self.entries.cut_before(offset);
        self.pins.drain(..before - self.entries.len());
        self.give_back(before - self.entries.len());
    }

    /// Lets go of the pins of entries that are gone from the end.
    fn settle(&mut self) {
        let surplus = self.pins.len() - self.entries.len();
        self.pins.truncate(self.entries.len());
        self.give_back(surplus);
    }

    fn give_back(&self, entries: usize) {
        self.sum.0.fetch_sub(entries as u64 * PIN_OVERHEAD, Relaxed);
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.give_back(self.pins.len());
    }
}
