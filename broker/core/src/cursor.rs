//! Where one subscription stands, and what its policy for being slow makes of its lag.
//!
//! A cursor is a place; the ring holds the batches. Nothing happens to a cursor when a batch is stored. What it has lost is
//! a function of its place and the tail, worked out when somebody asks: the reader, a scrape of the metrics, or the ring
//! before it lets a batch go, which then passes into the cursor's own hands if it lies within the cursor's window.
//!
//! **Lag.** A cursor may lag by its window, plus, when it began in the past, by the distance that it has not made up yet.
//! So a subscription that starts at the earliest record is not punished for what lay before it.

use felix_wire::{Batch, Gap, GapReason, Lost, Offset, SlowPolicy};

use crate::attach::Attach;
use crate::pins::{Pin, PinnedBytes, Pins};
use crate::ring::{Entries, Entry, Mark};

/// Names a cursor of one shard. Never used again after the cursor is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub(crate) u64);

/// What a subscription is to be told next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The records of a batch from `from` on; `from` lies inside the batch when the subscription began there.
    Batch {
        /// The first offset that is meant.
        from: Offset,
        /// The offset behind the batch.
        to: Offset,
        /// The batch as it lies in the ring.
        batch: Batch,
    },
    /// Records that it is not given.
    Gap(Gap),
}

/// What lies between two marks and will not be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) from: Mark,
    pub(crate) to: Mark,
}

impl Loss {
    pub(crate) const fn records(&self) -> u64 {
        self.to.records - self.from.records
    }
}

/// One subscription's place.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) policy: SlowPolicy,
    window: u64,
    /// What it has to be given next. Inside a batch, `bytes` is that batch's start.
    next: Mark,
    /// Bytes that it began behind the tail and has not made up yet.
    head_start: u64,
    /// Batches that the ring has let go and the window still covers, from `next` on.
    pinned: Pins,
    /// `drop_old` only: memory was short, and the window is so small until the next gap is told.
    shrunk_to: Option<u64>,
    /// `drop_new` only: the window was full here, and what came later is lost until all before is delivered.
    full_at: Option<Mark>,
    /// A gap from before the beginning that is yet to be told.
    opening_gap: Option<Gap>,
}

impl Cursor {
    pub(crate) fn new(
        attach: &Attach,
        next: Mark,
        tail: Mark,
        opening_gap: Option<Gap>,
        sum: &PinnedBytes,
    ) -> Self {
        Self {
            policy: attach.policy,
            window: attach.window,
            next,
            head_start: tail.bytes - next.bytes,
            pinned: Pins::new(sum.clone()),
            shrunk_to: None,
            full_at: None,
            opening_gap,
        }
    }

    /// The bytes behind which this cursor lags too much.
    pub(crate) fn allowed_until(&self) -> u64 {
        self.next.bytes + self.window_now() + self.head_start
    }

    /// The bytes behind which it lags by half of what it may.
    pub(crate) fn half_allowed(&self) -> u64 {
        self.next.bytes + (self.window + self.head_start) / 2
    }

    fn window_now(&self) -> u64 {
        self.shrunk_to.unwrap_or(self.window)
    }

    /// Bytes in the cursor's own hands.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned.entries().bytes()
    }

    /// Memory is short: keeps at most `bytes` in its own hands, at the cost of records as under its policy. A cursor that
    /// makes publishers wait keeps all.
    pub(crate) fn shrink(&mut self, bytes: u64, ring: &Entries, tail: Mark) {
        let held = self.pinned.entries();
        let (Some(first), Some(last)) = (held.first(), held.last()) else {
            return;
        };
        let (from, to) = (first.start, last.end);
        if held.bytes() <= bytes {
            return;
        }
        match self.policy {
            SlowPolicy::Block => {}
            SlowPolicy::DropNew => {
                let kept = held.last_where(|entry| entry.end.bytes <= from.bytes + bytes);
                let end = kept.map_or(self.next, |entry| entry.end);
                self.pinned.cut_behind(end.offset);
                self.full_at = Some(end);
            }
            SlowPolicy::DropOld => {
                self.head_start = 0;
                self.shrunk_to = Some(tail.bytes - (to.bytes - bytes));
                if let Some(loss) = self.open_loss(ring, tail) {
                    self.pinned.cut_before(loss.to.offset);
                }
            }
        }
    }

    /// What has been lost and not been told yet.
    pub(crate) fn open_loss(&self, ring: &Entries, tail: Mark) -> Option<Loss> {
        if let Some(from) = self.full_at {
            return Some(Loss { from, to: tail });
        }
        if tail.bytes <= self.allowed_until() {
            return None;
        }
        let loss = match self.policy {
            SlowPolicy::Block => return None,
            SlowPolicy::DropNew => Loss {
                from: self.oldest_window_end(ring),
                to: tail,
            },
            SlowPolicy::DropOld => Loss {
                from: self.next,
                to: self.newest_window_start(ring, tail),
            },
        };
        (loss.from.offset < loss.to.offset).then_some(loss)
    }

    /// What the reader is told of [`Self::open_loss`].
    pub(crate) fn open_gap(&self, ring: &Entries, tail: Mark) -> Option<Gap> {
        self.open_loss(ring, tail).map(|loss| self.gap(&loss))
    }

    fn gap(&self, loss: &Loss) -> Gap {
        let reason = match self.policy {
            SlowPolicy::DropOld => GapReason::DropOld,
            SlowPolicy::DropNew | SlowPolicy::Block => GapReason::DropNew,
        };
        Gap {
            from: loss.from.offset,
            to: Some(loss.to.offset),
            reason,
            lost: Lost::Exactly(loss.records()),
        }
    }

    /// Settles what a policy decides now: where a full window ends.
    fn settle(&mut self, ring: &Entries, tail: Mark) {
        if self.policy == SlowPolicy::DropNew && self.full_at.is_none() {
            self.full_at = self.open_loss(ring, tail).map(|loss| loss.from);
            if let Some(end) = self.full_at {
                self.pinned.cut_behind(end.offset);
            }
        }
    }

    /// Takes a batch that the ring lets go, if it is still to be delivered.
    pub(crate) fn keep(&mut self, entry: &Entry, pin: impl FnOnce() -> Pin, ring: &Entries, tail: Mark) {
        self.settle(ring, tail);
        if self.policy == SlowPolicy::DropOld
            && let Some(loss) = self.open_loss(ring, tail)
        {
            self.pinned.cut_before(loss.to.offset);
        }
        if self
            .needs_from(ring, tail)
            .is_some_and(|from| entry.end.offset > from.offset)
        {
            self.pinned.push(entry.clone(), pin());
        }
    }

    /// The bytes from which on this cursor relies on the ring.
    pub(crate) fn relies_from(&self, ring: &Entries, tail: Mark) -> u64 {
        self.needs_from(ring, tail).map_or(u64::MAX, |from| from.bytes)
    }

    /// From where on this cursor relies on the ring; `None` when it has all that it will be given before its next gap.
    fn needs_from(&self, ring: &Entries, tail: Mark) -> Option<Mark> {
        let held = self.pinned.entries().last().map_or(self.next, |entry| entry.end);
        match (self.full_at, self.open_loss(ring, tail)) {
            (Some(end), _) => (held.offset < end.offset).then_some(held),
            (None, Some(loss)) if self.policy == SlowPolicy::DropOld && loss.to.offset > held.offset => {
                Some(loss.to)
            }
            (None, _) => Some(held),
        }
    }

    /// The next thing to tell, and the records that were lost with it. Moves the cursor behind it. A batch of more than
    /// `room` bytes is not handed out.
    pub(crate) fn advance(&mut self, ring: &Entries, tail: Mark, room: u64) -> Option<(Delivery, u64)> {
        if let Some(gap) = self.opening_gap.take() {
            return Some((Delivery::Gap(gap), 0));
        }
        self.settle(ring, tail);
        if let Some(loss) = self.open_loss(ring, tail)
            && loss.from.offset == self.next.offset
        {
            self.next = loss.to;
            self.full_at = None;
            self.shrunk_to = None;
            self.head_start = 0;
            self.pinned.cut_before(loss.to.offset);
            return Some((Delivery::Gap(self.gap(&loss)), loss.records()));
        }
        let entry = self.next_entry(ring)?;
        if entry.end.offset > tail.offset || entry.batch.len() as u64 > room {
            return None;
        }
        let (from, end, batch) = (self.next.offset, entry.end, entry.batch.clone());
        self.next = end;
        self.pinned.cut_before(end.offset);
        self.head_start = self.head_start.min(tail.bytes - end.bytes);
        Some((
            Delivery::Batch {
                from,
                to: end.offset,
                batch,
            },
            0,
        ))
    }

    /// The batch that holds the next offset, safe or not.
    fn next_entry<'a>(&'a self, ring: &'a Entries) -> Option<&'a Entry> {
        self.pinned.entries().first().or_else(|| ring.at(self.next))
    }

    /// Where the oldest undelivered batches that fit the window end; behind one batch at least.
    fn oldest_window_end(&self, ring: &Entries) -> Mark {
        let limit = self.next.bytes + self.window;
        let held = self.pinned.entries();
        let fits = |entry: &Entry| entry.end.bytes <= limit;
        let first = self.next_entry(ring).map_or(self.next, |entry| entry.end);
        let last = ring.last_where(fits).or_else(|| held.last_where(fits));
        last.map_or(first, |entry| entry.end).max_offset(first)
    }

    /// Where the newest safe batches that fit the window begin; before one batch at least.
    fn newest_window_start(&self, ring: &Entries, tail: Mark) -> Mark {
        let limit = tail.bytes.saturating_sub(self.window_now());
        let held = self.pinned.entries();
        let fits = |entry: &Entry| entry.start.bytes >= limit;
        let safe = |entry: &Entry| entry.end.offset <= tail.offset;
        let newest = ring.last_where(safe).or_else(|| held.last());
        let newest = newest.map_or(self.next, |entry| entry.start);
        let first = held.first_where(fits).or_else(|| ring.first_where(fits));
        first
            .map_or(newest, |entry| entry.start)
            .min_offset(newest)
            .max_offset(self.next)
    }
}
