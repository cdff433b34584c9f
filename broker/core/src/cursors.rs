//! The cursors of a shard: who is attached, who holds publishers back, who still relies on the ring, what was dropped.
//!
//! Two bounds are remembered so that storing a batch does not look at every cursor: no cursor relies on the ring below
//! `relied_from`, and none holds publishers back before `blocked_at`. Both may be too low, because cursors move forward;
//! each is worked out again when it is reached.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use felix_wire::{Gap, SlowPolicy};

use crate::cursor::{Cursor, CursorId, Delivery};
use crate::limits::MAX_BATCHES_PER_POLL;
use crate::pins::PinnedBytes;
use crate::ring::{Entries, Entry, Mark};

#[derive(Debug)]
pub(crate) struct Cursors {
    attached: BTreeMap<CursorId, Cursor>,
    next_id: u64,
    relied_from: u64,
    blocked_at: u64,
    pinned: PinnedBytes,
    /// Losses that were told, or belonged to cursors that have left.
    settled: Dropped,
}

/// Records dropped under each policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Under [`SlowPolicy::DropNew`].
    pub drop_new: u64,
    /// Under [`SlowPolicy::DropOld`].
    pub drop_old: u64,
}

impl Dropped {
    fn add(&mut self, policy: SlowPolicy, records: u64) {
        match policy {
            SlowPolicy::Block => assert_eq!(records, 0, "a blocking subscription loses nothing"),
            SlowPolicy::DropNew => self.drop_new += records,
            SlowPolicy::DropOld => self.drop_old += records,
        }
    }
}

impl Cursors {
    pub(crate) fn new() -> Self {
        Self {
            attached: BTreeMap::new(),
            next_id: 0,
            relied_from: u64::MAX,
            blocked_at: u64::MAX,
            pinned: PinnedBytes::default(),
            settled: Dropped::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.attached.len()
    }

    pub(crate) fn attach(&mut self, cursor: Cursor, ring: &Entries, tail: Mark) -> CursorId {
        let id = CursorId(self.next_id);
        self.next_id += 1;
        self.relied_from = self.relied_from.min(cursor.relies_from(ring, tail));
        if cursor.policy == SlowPolicy::Block {
            self.blocked_at = self.blocked_at.min(cursor.allowed_until());
        }
        self.attached.insert(id, cursor);
        id
    }

    /// Removes a cursor. What it had lost without being told stays counted.
    pub(crate) fn detach(&mut self, id: CursorId, ring: &Entries, tail: Mark) {
        let Some(cursor) = self.attached.remove(&id) else {
            return;
        };
        if let Some(loss) = cursor.open_loss(ring, tail) {
            self.settled.add(cursor.policy, loss.records());
        }
    }

    /// Hands out what the cursor is to be told next, at most `credit` bytes of batches, but at least one if there is
    /// any credit.
    pub(crate) fn poll(
        &mut self,
        id: CursorId,
        credit: u64,
        (ring, tail): (&Entries, Mark),
        out: &mut Vec<Delivery>,
    ) {
        let Some(cursor) = self.attached.get_mut(&id) else {
            return;
        };
        let mut left = credit;
        for _ in 0..MAX_BATCHES_PER_POLL {
            let room = if left == credit { u64::MAX } else { left };
            if left == 0 {
                return;
            }
            let Some((delivery, lost)) = cursor.advance(ring, tail, room) else {
                return;
            };
            self.settled.add(cursor.policy, lost);
            match &delivery {
                Delivery::Batch { batch, .. } => left = left.saturating_sub(batch.len() as u64),
                // Behind a gap the cursor relies on the ring again.
                Delivery::Gap(_) => self.relied_from = self.relied_from.min(cursor.relies_from(ring, tail)),
            }
            out.push(delivery);
        }
    }

    /// Whether a subscription makes publishers wait when the shard's log ends at `end`.
    pub(crate) fn block(&mut self, end: Mark) -> bool {
        if end.bytes >= self.blocked_at {
            let blocking = self
                .attached
                .values()
                .filter(|cursor| cursor.policy == SlowPolicy::Block);
            self.blocked_at = blocking.map(Cursor::allowed_until).min().unwrap_or(u64::MAX);
        }
        end.bytes >= self.blocked_at
    }

    /// Offers a batch that the ring, whose first one it is, will let go.
    pub(crate) fn keep(&mut self, entry: &Entry, ring: &Entries, tail: Mark) {
        if entry.end.bytes <= self.relied_from {
            return;
        }
        let mut relied_from = u64::MAX;
        let mut shared = None;
        for cursor in self.attached.values_mut() {
            let pin = || shared.get_or_insert_with(|| self.pinned.pin(entry)).clone();
            cursor.keep(entry, pin, ring, tail);
            relied_from = relied_from.min(cursor.relies_from(ring, tail));
        }
        self.relied_from = relied_from;
    }

    pub(crate) fn open_gap(&self, id: CursorId, ring: &Entries, tail: Mark) -> Option<Gap> {
        self.attached.get(&id)?.open_gap(ring, tail)
    }

    /// Records dropped so far, those not yet told included.
    pub(crate) fn dropped(&self, ring: &Entries, tail: Mark) -> Dropped {
        let mut dropped = self.settled;
        for cursor in self.attached.values() {
            if let Some(loss) = cursor.open_loss(ring, tail) {
                dropped.add(cursor.policy, loss.records());
            }
        }
        dropped
    }

    /// The sum that pins are counted in.
    pub(crate) const fn pinned(&self) -> &PinnedBytes {
        &self.pinned
    }

    /// Whether this cursor is one that publishers may have to wait for, and lags by half its window when the log ends at
    /// `end`.
    pub(crate) fn is_half_full(&self, id: CursorId, end: Mark) -> bool {
        self.blocking(id)
            .is_some_and(|cursor| end.bytes >= cursor.half_allowed())
    }

    /// Whether this cursor is one that publishers may have to wait for, and holds something beside the ring.
    pub(crate) fn pins_for_publishers(&self, id: CursorId) -> bool {
        self.blocking(id).is_some_and(|cursor| cursor.pinned_bytes() > 0)
    }

    fn blocking(&self, id: CursorId) -> Option<&Cursor> {
        let cursor = self.attached.get(&id)?;
        (cursor.policy == SlowPolicy::Block).then_some(cursor)
    }

    /// Halves what cursors hold beside the ring until it is `bytes` less, or nothing can be given up any more.
    pub(crate) fn give_way(&mut self, bytes: u64, ring: &Entries, tail: Mark) {
        let aim = self.pinned.get().saturating_sub(bytes);
        let mut keep = self
            .attached
            .values()
            .map(Cursor::pinned_bytes)
            .max()
            .unwrap_or(0);
        while self.pinned.get() > aim && keep > 0 {
            keep /= 2;
            for cursor in self.attached.values_mut() {
                cursor.shrink(keep, ring, tail);
            }
        }
    }
}
