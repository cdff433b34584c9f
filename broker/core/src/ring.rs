//! The latest batches of a shard, in a byte budget.

use alloc::collections::VecDeque;

use felix_wire::{Batch, Offset};

use crate::limits::BATCH_OVERHEAD;

/// A place in a shard's history: what came before it since the shard began. Counting bytes and records beside offsets
/// makes every lag and every loss one subtraction, whether or not the ring still has what lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The next offset.
    pub(crate) offset: Offset,
    /// Bytes of the batches before, each with [`BATCH_OVERHEAD`].
    pub(crate) bytes: u64,
    /// Records before.
    pub(crate) records: u64,
    /// Batches before, which finds the next one in the ring without a search.
    pub(crate) batches: u64,
}

impl Mark {
    /// The place behind `batch`, which begins here.
    pub(crate) fn after(self, batch: &Batch) -> Self {
        Self {
            offset: batch.next_offset(),
            bytes: self.bytes + cost(batch.len()),
            records: self.records + u64::from(batch.record_count()),
            batches: self.batches + 1,
        }
    }

    /// The one that lies further on.
    pub(crate) fn max_offset(self, other: Self) -> Self {
        if other.offset > self.offset { other } else { self }
    }

    /// The one that lies less far on.
    pub(crate) fn min_offset(self, other: Self) -> Self {
        if other.offset < self.offset { other } else { self }
    }
}

/// What a batch of this length costs in ring and windows.
pub(crate) const fn cost(batch_len: usize) -> u64 {
    batch_len as u64 + BATCH_OVERHEAD
}

/// A batch and where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) batch: Batch,
    pub(crate) start: Mark,
    pub(crate) end: Mark,
}

/// What [`BATCH_OVERHEAD`] reckons with.
const _: () = assert!(size_of::<Entry>() <= 96);

/// Batches one behind the other, oldest first, without a hole.
#[derive(Debug, Default)]
pub(crate) struct Entries(VecDeque<Entry>);

impl Entries {
    pub(crate) fn first(&self) -> Option<&Entry> {
        self.0.front()
    }

    pub(crate) fn last(&self) -> Option<&Entry> {
        self.0.back()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => last.end.bytes - first.start.bytes,
            _ => 0,
        }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        assert!(
            self.last().is_none_or(|last| last.end == entry.start),
            "batches lie without a hole"
        );
        self.0.push_back(entry);
    }

    pub(crate) fn pop_first(&mut self) -> Option<Entry> {
        self.0.pop_front()
    }

    /// Drops what ends behind `offset`.
    pub(crate) fn cut_behind(&mut self, offset: Offset) {
        self.0
            .truncate(self.0.partition_point(|entry| entry.end.offset <= offset));
    }

    /// Drops what ends at `offset` or before.
    pub(crate) fn cut_before(&mut self, offset: Offset) {
        self.0
            .drain(..self.0.partition_point(|entry| entry.end.offset <= offset));
    }

    /// The batch that begins at `mark`, or holds it.
    pub(crate) fn at(&self, mark: Mark) -> Option<&Entry> {
        let before = mark.batches.checked_sub(self.first()?.start.batches)?;
        self.0.get(usize::try_from(before).ok()?)
    }

    /// The first batch that satisfies `wanted`, which holds for all batches from some one on.
    pub(crate) fn first_where(&self, wanted: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        self.0.get(self.0.partition_point(|entry| !wanted(entry)))
    }

    /// The last batch that satisfies `wanted`, which holds for all batches up to some one.
    pub(crate) fn last_where(&self, wanted: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        self.0.get(self.0.partition_point(wanted).checked_sub(1)?)
    }
}
