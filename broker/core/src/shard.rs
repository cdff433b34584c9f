//! One shard: the ordered log of a stream, as its leader sees it.
//!
//! ```text
//!            earliest            tail (safe)            end
//!               |  readable         |  not safe yet      |
//!   let go  ----+-------------------+--------------------+----> next batch
//! ```
//! Batches between tail and end are in the ring, unreadable, and not let go.

use alloc::vec::Vec;

use felix_wire::{
    Ack, AckEntry, ErrorCode, Gap, Incarnation, IncomingBatch, Nanos, Offset, Origin, Reached, Refusal,
    ShardId, Stamp, Term,
};

use crate::acks::Acks;
use crate::attach::{Attach, AttachError, begin};
use crate::cursor::{Cursor, CursorId, Delivery};
use crate::cursors::{Cursors, Dropped};
use crate::effect::{Effect, PublisherId};
use crate::limits::Limits;
use crate::producers::{Producers, Verdict};
use crate::ring::{Entries, Entry, Mark, cost};

/// What a shard is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// The life of the stream.
    pub incarnation: Incarnation,
    /// Which shard of it.
    pub shard: ShardId,
    /// The leader's term.
    pub term: Term,
    /// What an answer says once the log has said that a batch is safe.
    pub reached: Reached,
    /// The ring's budget in bytes, each batch counted with [`BATCH_OVERHEAD`](crate::BATCH_OVERHEAD).
    pub ring_bytes: u64,
    /// The other bounds.
    pub limits: Limits,
}

/// What became of a publish.
#[derive(Debug)]
#[must_use]
pub enum Publish {
    /// The batch was taken or refused; an [`Effect::Answer`] says which, now or later.
    Taken,
    /// The ring is full of what is not safe yet. Try again after [`Effect::WakePublishers`].
    Wait(IncomingBatch),
}

/// Whether a publisher may read its next batch. What has been read is in memory already and is taken, so publishers that
/// read at the same time may together exceed by a batch each what a blocking subscription allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Open,
    /// It waits for [`Effect::WakePublishers`], holding neither bytes nor a permit for them.
    Wait,
}

/// The state of one shard.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    ring: Entries,
    /// What readers see ends here.
    tail: Mark,
    /// The log ends here.
    end: Mark,
    /// Term and append time of the last batch.
    last_term: Term,
    last_append_time: Nanos,
    producers: Producers,
    acks: Acks,
    cursors: Cursors,
    publishers_wait: bool,
    /// How often a publisher was told to wait.
    waits: u64,
    log_failed: bool,
}

impl Shard {
    /// An empty shard.
    pub fn new(config: ShardConfig) -> Self {
        Self {
            config,
            ring: Entries::default(),
            tail: Mark::default(),
            end: Mark::default(),
            last_term: config.term,
            last_append_time: Nanos(0),
            producers: Producers::new(config.limits.max_producers),
            acks: Acks::default(),
            cursors: Cursors::new(),
            publishers_wait: false,
            waits: 0,
            log_failed: false,
        }
    }

    /// Whether a publisher may read its next batch. Asked before it takes memory for it.
    pub fn room(&mut self) -> Room {
        let waits = !self.log_failed
            && (self.cursors.block(self.end)
                || self.unsafe_bytes() > self.config.ring_bytes / 2
                || self.acks.len() >= self.config.limits.max_waiting_answers);
        self.publishers_wait |= waits;
        self.waits += u64::from(waits);
        if waits { Room::Wait } else { Room::Open }
    }

    /// Takes a batch of `publisher` at the time `now`: refuses it, knows it already, or gives it a place and asks for
    /// it to be written.
    pub fn publish(
        &mut self,
        publisher: PublisherId,
        batch: IncomingBatch,
        now: Nanos,
        effects: &mut Vec<Effect>,
    ) -> Publish {
        let origin = batch.header().origin;
        let records = batch.header().offsets();
        let verdict = match self.refusal(&batch) {
            Some(refusal) => {
                self.producers.refuse(origin);
                Verdict::Refuse(refusal)
            }
            None => self.producers.judge(origin, records),
        };
        match verdict {
            Verdict::Refuse(refusal) => self.answer(publisher, self.tail.offset, Err(refusal), effects),
            Verdict::Duplicate(base) => {
                self.answer(publisher, base.plus(records), self.stored(base), effects);
            }
            Verdict::Next if !self.has_room_for(batch.len()) => {
                self.publishers_wait = true;
                return Publish::Wait(batch);
            }
            Verdict::Next => {
                let base = self.append(batch, now, effects);
                self.producers.note(origin, records, base);
                self.answer(publisher, self.end.offset, self.stored(base), effects);
            }
        }
        Publish::Taken
    }

    /// A batch was refused before it came here. What its producer sends behind it is refused with
    /// [`SequenceGap`](ErrorCode::SequenceGap) until it comes again.
    pub fn refuse(&mut self, origin: Origin) {
        self.producers.refuse(origin);
    }

    /// The log is safe up to `offset`: answers are released, readers see more.
    pub fn synced_to(&mut self, offset: Offset, effects: &mut Vec<Effect>) {
        assert!(offset <= self.end.offset, "the log cannot be safe beyond its end");
        let safe = self
            .ring
            .last_where(|entry| entry.end.offset <= offset)
            .map(|entry| entry.end);
        let Some(safe) = safe.filter(|safe| safe.offset > self.tail.offset) else {
            return;
        };
        self.tail = safe;
        self.let_go_beyond(self.config.ring_bytes);
        self.acks.release(safe.offset, effects);
        effects.push(Effect::WakeReaders);
        self.wake_publishers(effects);
    }

    /// The log failed and takes no more. What was not safe is unknown, for good.
    pub fn sync_failed(&mut self, effects: &mut Vec<Effect>) {
        self.log_failed = true;
        self.cut(self.tail.offset, ErrorCode::LogFailed, effects);
    }

    /// The log was cut at `offset`, which is not below the tail: another leader never saw what lay behind.
    pub fn truncate_to(&mut self, offset: Offset, effects: &mut Vec<Effect>) {
        assert!(offset >= self.tail.offset, "what is safe is never cut");
        self.cut(offset, ErrorCode::OutcomeUnknown, effects);
    }

    /// A new term begins; batches from here on carry it.
    pub fn begin_term(&mut self, term: Term) {
        assert!(term >= self.config.term, "terms never go back");
        self.config.term = term;
    }

    /// Attaches a subscription and says from which offset on it answers.
    pub fn attach(&mut self, attach: Attach) -> Result<(CursorId, Offset), AttachError> {
        let limit = self.config.limits.max_cursors;
        if self.cursors.len() >= limit {
            return Err(AttachError::TooMany { limit });
        }
        let attach = Attach {
            window: attach.window.min(self.config.ring_bytes).max(1),
            ..attach
        };
        let (next, opening_gap) = begin(&attach, self.config.incarnation, &self.ring, self.tail)?;
        let cursor = Cursor::new(&attach, next, self.tail, opening_gap, self.cursors.pinned());
        Ok((self.cursors.attach(cursor, &self.ring, self.tail), next.offset))
    }

    /// Hands out what the subscription is to be told next: batches of at most `credit` bytes (but one at least, if
    /// there is any credit) and gaps. Nothing means: wait for [`Effect::WakeReaders`].
    pub fn poll(
        &mut self,
        cursor: CursorId,
        credit: u64,
        out: &mut Vec<Delivery>,
        effects: &mut Vec<Effect>,
    ) {
        self.cursors.poll(cursor, credit, (&self.ring, self.tail), out);
        self.wake_publishers(effects);
    }

    /// Ends a subscription.
    pub fn detach(&mut self, cursor: CursorId, effects: &mut Vec<Effect>) {
        self.cursors.detach(cursor, &self.ring, self.tail);
        self.wake_publishers(effects);
    }

    /// What a subscription has lost and has not been told yet.
    pub fn open_gap(&self, cursor: CursorId) -> Option<Gap> {
        self.cursors.open_gap(cursor, &self.ring, self.tail)
    }

    /// Records dropped under each policy since the shard began, told or not.
    pub fn dropped(&self) -> Dropped {
        self.cursors.dropped(&self.ring, self.tail)
    }

    /// Changes the ring's budget. What lies beyond it is let go, now or as soon as it is safe.
    pub fn set_ring_bytes(&mut self, ring_bytes: u64) {
        self.config.ring_bytes = ring_bytes;
        self.let_go_beyond(ring_bytes);
    }

    /// The offset behind the last readable record.
    pub const fn tail(&self) -> Offset {
        self.tail.offset
    }

    /// The offset behind the last record.
    pub const fn end(&self) -> Offset {
        self.end.offset
    }

    /// The life of the stream.
    pub const fn incarnation(&self) -> Incarnation {
        self.config.incarnation
    }

    /// Bytes in the ring, within its budget.
    pub fn ring_bytes(&self) -> u64 {
        self.ring.bytes()
    }

    /// Bytes that the ring has let go and slow subscriptions still hold. A batch that several hold counts once, what each
    /// needs to hold it for each.
    pub fn pinned_bytes(&self) -> u64 {
        self.cursors.pinned().get()
    }

    /// Memory is short: lets the ring go, then shortens the windows of slow subscriptions, largest first, until the shard
    /// holds `bytes` less. What they lose is a gap and counted, as under their policies; those that make publishers wait
    /// lose nothing.
    pub fn give_way(&mut self, bytes: u64) {
        let aim = (self.ring_bytes() + self.pinned_bytes()).saturating_sub(bytes);
        self.let_go_beyond(0);
        let excess = (self.ring_bytes() + self.pinned_bytes()).saturating_sub(aim);
        if excess > 0 {
            self.cursors.give_way(excess, &self.ring, self.tail);
        }
    }

    /// Whether publishers wait because of this subscription, which makes publishers wait: it lags by half its window at least
    /// and publishers have waited since `seen`, or, where `memory_is_short`, it holds something beside the ring. `seen`
    /// becomes what it is now; it begins as 0.
    pub fn holds_back(&self, cursor: CursorId, seen: &mut u64, memory_is_short: bool) -> bool {
        let waited = self.publishers_wait || self.waits != *seen;
        *seen = self.waits;
        (waited && self.cursors.is_half_full(cursor, self.end))
            || (memory_is_short && self.cursors.pins_for_publishers(cursor))
    }

    /// Why a batch cannot be taken whoever sends it.
    fn refusal(&self, batch: &IncomingBatch) -> Option<Refusal> {
        if self.log_failed {
            return Some(ErrorCode::LogFailed.into());
        }
        let budget = self.config.ring_bytes;
        (cost(batch.len()) > budget).then_some(Refusal {
            code: ErrorCode::BatchTooLarge,
            detail: budget,
        })
    }

    /// Whether the ring can take the batch by letting go of what is safe.
    const fn has_room_for(&self, batch_len: usize) -> bool {
        self.unsafe_bytes() + cost(batch_len) <= self.config.ring_bytes
    }

    /// Bytes that cannot be let go yet. When they are half of the ring, publishers wait: readers need the other half.
    const fn unsafe_bytes(&self) -> u64 {
        self.end.bytes - self.tail.bytes
    }

    /// Gives the batch its place at the end, for which older ones may have to go.
    fn append(&mut self, batch: IncomingBatch, now: Nanos, effects: &mut Vec<Effect>) -> Offset {
        self.let_go_beyond(self.config.ring_bytes - cost(batch.len()));
        self.last_append_time = self.last_append_time.max(now);
        let start = self.end;
        let batch = batch.stamp(&Stamp {
            incarnation: self.config.incarnation,
            shard: self.config.shard,
            term: self.config.term,
            previous_term: self.last_term,
            base_offset: start.offset,
            append_time: self.last_append_time,
            synced: self.tail.offset,
        });
        self.last_term = self.config.term;
        self.end = start.after(&batch);
        self.ring.push(Entry {
            batch: batch.clone(),
            start,
            end: self.end,
        });
        effects.push(Effect::Write(batch));
        start.offset
    }

    /// Lets the oldest safe batches go until the ring holds at most `bytes`.
    fn let_go_beyond(&mut self, bytes: u64) {
        while self.ring.bytes() > bytes
            && let Some(oldest) = self.ring.first()
            && oldest.end.offset <= self.tail.offset
        {
            self.cursors.keep(oldest, &self.ring, self.tail);
            self.ring.pop_first();
        }
    }

    const fn stored(&self, base_offset: Offset) -> AckEntry {
        Ok(Ack {
            base_offset,
            reached: self.config.reached,
        })
    }

    /// Gives an answer when the log is safe up to `until`, in the order of the batches.
    fn answer(&mut self, publisher: PublisherId, until: Offset, entry: AckEntry, effects: &mut Vec<Effect>) {
        self.acks.push(publisher, until, entry);
        self.acks.release(self.tail.offset, effects);
    }

    /// Forgets all from `offset` on.
    fn cut(&mut self, offset: Offset, code: ErrorCode, effects: &mut Vec<Effect>) {
        self.ring.cut_behind(offset);
        self.end = self.ring.last().map_or(self.tail, |entry| entry.end);
        self.producers.truncate(self.end.offset);
        self.acks.fail_behind(self.end.offset, code);
        self.acks.release(self.tail.offset, effects);
        self.wake_publishers(effects);
    }

    fn wake_publishers(&mut self, effects: &mut Vec<Effect>) {
        if self.publishers_wait {
            self.publishers_wait = false;
            if self.room() == Room::Open {
                effects.push(Effect::WakePublishers);
            }
        }
    }
}
