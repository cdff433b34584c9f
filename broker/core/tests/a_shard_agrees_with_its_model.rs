//! A shard against a model that is too simple to be wrong: it keeps the whole history, works out every policy at each step,
//! and knows no bounds to be clever about. Publishers retry, skip and fence each other; the log answers at once, late, in
//! pieces, fails and is cut; subscriptions come, read a little, and leave.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use felix_core::{Attach, CursorId, Delivery, Effect, Publish, PublisherId, Room, Shard, answer_at_once};
use felix_wire::{
    Ack, AckEntry, Batch, ErrorCode, Gap, GapReason, Incarnation, IncomingBatch, Lost, Nanos, Offset, Origin,
    Reached, Refusal, SlowPolicy, Start,
};
use proptest::prelude::*;
use proptest::sample::Index;
use support::{LIFE, batch, cost, origin, shard};

/// The ring's budget at first, and the smallest and largest one that it is changed to.
const RING: u64 = 5_000;
const RINGS: Range<u64> = 2_500..7_500;
/// Three records of 300 bytes, their heads, the batch's header and its cost beside.
const LARGEST_BATCH: u64 = 1_400;

/// One thing that happens to a shard.
#[derive(Clone, Debug)]
enum Step {
    Publish {
        producer: u128,
        kind: Sent,
        records: u32,
        value_len: usize,
    },
    Sync(Index),
    Fail,
    Truncate(Index),
    Attach {
        start: Wanted,
        policy: SlowPolicy,
        window: u64,
    },
    Poll {
        cursor: Index,
        credit: u64,
    },
    Detach(Index),
    Resize(u64),
}

#[derive(Clone, Debug)]
enum Sent {
    Next,
    Again(Index),
    TooFar,
    OldEpoch,
    NewEpoch,
}

#[derive(Clone, Debug)]
enum Wanted {
    Latest,
    Earliest,
    Offset(Index),
    FormerLife,
}

fn step() -> impl Strategy<Value = Step> {
    let sent = prop_oneof![
        12 => Just(Sent::Next),
        2 => any::<Index>().prop_map(Sent::Again),
        1 => Just(Sent::TooFar),
        1 => Just(Sent::OldEpoch),
        1 => Just(Sent::NewEpoch),
    ];
    let wanted = prop_oneof![
        3 => Just(Wanted::Latest),
        2 => Just(Wanted::Earliest),
        2 => any::<Index>().prop_map(Wanted::Offset),
        1 => Just(Wanted::FormerLife),
    ];
    let policy = prop_oneof![
        1 => Just(SlowPolicy::Block),
        4 => Just(SlowPolicy::DropNew),
        4 => Just(SlowPolicy::DropOld),
    ];
    prop_oneof![
        60 => (0..3_u128, sent, 1..4_u32, 0..300_usize).prop_map(|(producer, kind, records, value_len)| {
            Step::Publish { producer, kind, records, value_len }
        }),
        20 => any::<Index>().prop_map(Step::Sync),
        1 => any::<Index>().prop_map(Step::Truncate),
        4 => (wanted, policy, 1..4_000_u64).prop_map(|(start, policy, window)| {
            Step::Attach { start, policy, window }
        }),
        20 => (any::<Index>(), 0..3_000_u64).prop_map(|(cursor, credit)| Step::Poll { cursor, credit }),
        2 => any::<Index>().prop_map(Step::Detach),
        2 => RINGS.prop_map(Step::Resize),
    ]
}

/// A batch in the model's history.
#[derive(Clone)]
struct Kept {
    base: u64,
    next: u64,
    start_bytes: u64,
    end_bytes: u64,
    origin: Origin,
    /// As the shard asked to write it.
    batch: Batch,
}

/// What a subscription ought to be given.
struct Reader {
    id: CursorId,
    policy: SlowPolicy,
    window: u64,
    /// The next offset, and where its batch begins in bytes.
    next: u64,
    next_bytes: u64,
    head_start: u64,
    /// `drop_new`: nothing from here on until all before is read.
    full_at: Option<u64>,
    opening_gap: Option<Gap>,
}

struct World {
    shard: Shard,
    memory: bool,
    ring: u64,
    history: Vec<Kept>,
    /// Batches of the history that are safe.
    safe: usize,
    /// Batches of the history that the ring has let go, so that the newest fit.
    let_go: usize,
    failed: bool,
    readers: Vec<Reader>,
    /// Per publisher, in order: from which offset on the answer may come, and what it is.
    expected: BTreeMap<u64, VecDeque<(u64, AckEntry)>>,
    /// Batches as they were sent, per producer, in its present epoch.
    sent: BTreeMap<u128, Vec<(Origin, u32, usize)>>,
    epochs: BTreeMap<u128, u32>,
    told: [u64; 2],
    waiting: bool,
}

impl World {
    fn new(memory: bool) -> Self {
        Self {
            shard: shard(RING),
            memory,
            ring: RING,
            history: Vec::new(),
            safe: 0,
            let_go: 0,
            failed: false,
            readers: Vec::new(),
            expected: BTreeMap::new(),
            sent: BTreeMap::new(),
            epochs: BTreeMap::new(),
            told: [0; 2],
            waiting: false,
        }
    }

    fn end(&self) -> (u64, u64) {
        self.history
            .last()
            .map_or((0, 0), |kept| (kept.next, kept.end_bytes))
    }

    fn tail(&self) -> (u64, u64) {
        self.history[..self.safe]
            .last()
            .map_or((0, 0), |kept| (kept.next, kept.end_bytes))
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Publish {
                producer,
                kind,
                records,
                value_len,
            } => {
                self.publish(*producer, kind, *records, *value_len);
            }
            Step::Sync(index) => self.sync(index),
            Step::Fail => self.fail(),
            Step::Truncate(index) => self.truncate(index),
            Step::Attach {
                start,
                policy,
                window,
            } => self.attach(start, *policy, *window),
            Step::Poll { cursor, credit } => self.poll(cursor, *credit),
            Step::Detach(index) => self.detach(index),
            Step::Resize(ring) => self.resize(*ring),
        }
        self.check();
    }

    fn publish(&mut self, producer: u128, kind: &Sent, records: u32, value_len: usize) {
        if self.shard.room() == Room::Wait {
            return;
        }
        let epoch = self.epochs.get(&producer).copied().unwrap_or(1);
        let sent = self.sent.entry(producer).or_default();
        let next = sent
            .last()
            .map_or(0, |(origin, records, _)| origin.sequence.0 + u64::from(*records));
        let (origin, records, value_len) = match kind {
            Sent::Next => (origin(producer, epoch, next), records, value_len),
            Sent::Again(index) if !sent.is_empty() => sent[index.index(sent.len())],
            Sent::Again(_) | Sent::TooFar => (origin(producer, epoch, next + 1), records, value_len),
            Sent::OldEpoch => (
                origin(producer, epoch.saturating_sub(1), next),
                records,
                value_len,
            ),
            Sent::NewEpoch => (origin(producer, epoch + 1, 0), records, value_len),
        };
        let batch = batch(origin, records, value_len);
        let mut effects = Vec::new();
        let judged = self.judge(origin, records, next, epoch);
        let may_wait = judged == Ok(None);
        let must_wait = may_wait && self.must_wait(&batch);
        let publish = self
            .shard
            .publish(PublisherId(producer as u64), batch, Nanos(7), &mut effects);
        assert_eq!(matches!(publish, Publish::Wait(_)), must_wait);
        self.waiting |= must_wait;
        if must_wait {
            assert_eq!(effects, []);
            return;
        }
        let (tail, end) = (self.tail().0, self.end().0);
        let (until, entry) = match judged {
            Err(refusal) => (tail, Err(refusal)),
            Ok(Some(base)) => (base + u64::from(records), stored(base)),
            Ok(None) => {
                self.note_sent(producer, origin, records, value_len);
                self.note_stored(origin, &mut effects);
                (end + u64::from(records), stored(end))
            }
        };
        self.expected
            .entry(producer as u64)
            .or_default()
            .push_back((until, entry));
        if self.memory {
            answer_at_once(&mut self.shard, &mut effects);
            self.see_safe(self.history.len());
        }
        self.check_effects(effects);
    }

    /// What the rules say about a batch: refused, known, or next.
    fn judge(&self, origin: Origin, records: u32, next: u64, epoch: u32) -> Result<Option<u64>, Refusal> {
        let refuse = |code, detail| Err(Refusal { code, detail });
        if self.failed {
            return refuse(ErrorCode::LogFailed, 0);
        }
        let sequence = origin.sequence.0;
        if !self.epochs.contains_key(&origin.producer.0) {
            return if sequence == 0 {
                Ok(None)
            } else {
                refuse(ErrorCode::UnknownProducer, 0)
            };
        }
        if origin.epoch.0 < epoch {
            return refuse(ErrorCode::Fenced, u64::from(epoch));
        }
        let next = if origin.epoch.0 > epoch { 0 } else { next };
        if sequence == next {
            return Ok(None);
        }
        if sequence > next {
            return refuse(ErrorCode::SequenceGap, next);
        }
        let known = self.history.iter().rev().find(|kept| kept.origin == origin);
        assert!(known.is_none_or(|kept| kept.next - kept.base == u64::from(records)));
        known.map_or_else(
            || refuse(ErrorCode::DuplicateForgotten, 0),
            |kept| Ok(Some(kept.base)),
        )
    }

    fn note_sent(&mut self, producer: u128, origin: Origin, records: u32, value_len: usize) {
        self.epochs.insert(producer, origin.epoch.0);
        let sent = self.sent.entry(producer).or_default();
        if origin.sequence.0 == 0 {
            sent.clear();
        }
        sent.push((origin, records, value_len));
    }

    fn note_stored(&mut self, origin: Origin, effects: &mut [Effect]) {
        let Some(Effect::Write(batch)) = effects.first() else {
            panic!("a batch is to be written")
        };
        let (base, start_bytes) = self.end();
        assert_eq!(batch.base_offset(), Offset(base), "offsets are dense");
        assert_eq!(batch.header().origin, origin);
        let end_bytes = start_bytes + batch.len() as u64 + felix_core::BATCH_OVERHEAD;
        let next = batch.next_offset().0;
        self.history.push(Kept {
            base,
            next,
            start_bytes,
            end_bytes,
            origin,
            batch: batch.clone(),
        });
        self.let_go_beyond();
    }

    /// The ring keeps the newest batches that fit, and those that are not safe.
    fn let_go_beyond(&mut self) {
        let end = self.end().1;
        let kept = self
            .history
            .partition_point(|kept| end - kept.start_bytes > self.ring);
        self.let_go = self.let_go.max(kept.min(self.safe));
    }

    fn resize(&mut self, ring: u64) {
        self.ring = ring;
        self.shard.set_ring_bytes(ring);
        self.let_go_beyond();
        // Who waits for a ring that has become larger is woken by the log, which has yet to answer.
        self.waiting &= self.no_room();
    }

    /// Whether a batch that has been read has to wait, told from the whole history.
    fn must_wait(&self, batch: &IncomingBatch) -> bool {
        self.end().1 - self.tail().1 + cost(batch) > self.ring
    }

    /// Whether publishers have to wait before they read.
    fn no_room(&self) -> bool {
        let (end, tail) = (self.end().1, self.tail().1);
        let blocks = |reader: &Reader| {
            reader.policy == SlowPolicy::Block && end - reader.next_bytes >= reader.window + reader.head_start
        };
        !self.failed && (self.readers.iter().any(blocks) || end - tail > self.ring / 2)
    }

    fn sync(&mut self, index: &Index) {
        let to = self.safe + index.index(self.history.len() - self.safe + 1);
        let offset = self.history[..to].last().map_or(0, |kept| kept.next);
        let mut effects = Vec::new();
        self.shard.synced_to(Offset(offset), &mut effects);
        self.see_safe(to);
        self.check_effects(effects);
    }

    /// The tail moves, and with it what slow readers have lost.
    fn see_safe(&mut self, safe: usize) {
        while self.safe < safe {
            self.safe += 1;
            self.let_go_beyond();
            let tail = self.tail().1;
            let history = &self.history[..self.safe];
            for reader in self
                .readers
                .iter_mut()
                .filter(|reader| reader.policy == SlowPolicy::DropNew)
            {
                if reader.full_at.is_none() && reader.lags(tail) {
                    let unread: Vec<_> = history.iter().filter(|kept| kept.next > reader.next).collect();
                    let fits = |kept: &&&Kept| kept.end_bytes <= reader.next_bytes + reader.window;
                    let last = unread.iter().rev().find(fits).unwrap_or(&unread[0]);
                    // A window that one batch overflows keeps that batch: nothing is lost yet.
                    reader.full_at = (last.end_bytes < tail).then_some(last.next);
                }
            }
        }
    }

    fn fail(&mut self) {
        let mut effects = Vec::new();
        self.shard.sync_failed(&mut effects);
        self.failed = true;
        self.forget_from(self.safe, ErrorCode::LogFailed);
        self.check_effects(effects);
    }

    fn truncate(&mut self, index: &Index) {
        let to = self.safe + index.index(self.history.len() - self.safe + 1);
        let offset = self.history[..to].last().map_or(0, |kept| kept.next);
        let mut effects = Vec::new();
        self.shard.truncate_to(Offset(offset), &mut effects);
        self.forget_from(to, ErrorCode::OutcomeUnknown);
        self.check_effects(effects);
    }

    fn forget_from(&mut self, kept: usize, code: ErrorCode) {
        let lost = self.history.split_off(kept);
        let end = self.end().0;
        for batch in lost.iter().rev() {
            let producer = batch.origin.producer.0;
            let sent = self.sent.get_mut(&producer).unwrap();
            if batch.origin.epoch.0 == self.epochs[&producer] {
                sent.pop();
            }
        }
        for (until, entry) in self
            .expected
            .values_mut()
            .flatten()
            .filter(|(until, _)| *until > end)
        {
            *until = end;
            *entry = entry.and(Err(code.into()));
        }
    }

    fn attach(&mut self, wanted: &Wanted, policy: SlowPolicy, window: u64) {
        let (tail, tail_bytes) = self.tail();
        let oldest = self.history[..self.safe].get(self.let_go);
        let earliest = oldest.map_or((tail, tail_bytes), |kept| (kept.base, kept.start_bytes));
        let (start, incarnation) = match wanted {
            Wanted::Latest => (Start::Latest, Incarnation(0)),
            Wanted::Earliest => (Start::Earliest, Incarnation(0)),
            Wanted::Offset(index) => (Start::Offset(Offset(index.index(tail as usize + 1) as u64)), LIFE),
            Wanted::FormerLife => (Start::Offset(Offset(tail + 5)), Incarnation(6)),
        };
        let mut opening_gap = None;
        let (next, next_bytes) = match start {
            Start::Latest => (tail, tail_bytes),
            Start::Earliest | Start::Time(_) => earliest,
            Start::Offset(from) if incarnation != LIFE => {
                let reason = GapReason::FormerIncarnation;
                opening_gap = Some(Gap {
                    from,
                    to: None,
                    reason,
                    lost: Lost::Unknown,
                });
                earliest
            }
            Start::Offset(from) if from.0 < earliest.0 => {
                let lost = Lost::AtMost(earliest.0 - from.0);
                let to = Some(Offset(earliest.0));
                opening_gap = Some(Gap {
                    from,
                    to,
                    reason: GapReason::NotKept,
                    lost,
                });
                earliest
            }
            Start::Offset(from) => {
                let holder = self.history[..self.safe].iter().find(|kept| kept.next > from.0);
                (from.0, holder.map_or(tail_bytes, |kept| kept.start_bytes))
            }
        };
        let (id, from) = self
            .shard
            .attach(Attach {
                start,
                incarnation,
                policy,
                window,
            })
            .unwrap();
        assert_eq!(from, Offset(next));
        let head_start = tail_bytes - next_bytes;
        let window = window.min(self.ring);
        self.readers.push(Reader {
            id,
            policy,
            window,
            next,
            next_bytes,
            head_start,
            full_at: None,
            opening_gap,
        });
    }

    fn poll(&mut self, index: &Index, credit: u64) {
        if self.readers.is_empty() {
            return;
        }
        let at = index.index(self.readers.len());
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        self.shard
            .poll(self.readers[at].id, credit, &mut out, &mut effects);
        let bytes = out.iter().map(|delivery| match delivery {
            Delivery::Batch { batch, .. } => batch.len() as u64,
            Delivery::Gap(_) => 0,
        });
        let bytes: Vec<_> = bytes.collect();
        let all: u64 = bytes.iter().sum();
        assert!(
            all <= credit || bytes.iter().filter(|bytes| **bytes > 0).count() == 1,
            "credit is respected"
        );
        if credit > 0 && out.is_empty() {
            assert_eq!(self.expect_next(at), None, "a reader is not left waiting");
        }
        for delivery in out {
            assert_eq!(Some(delivery), self.expect_next(at));
        }
        self.check_effects(effects);
    }

    /// What a reader ought to be told next.
    fn expect_next(&mut self, at: usize) -> Option<Delivery> {
        let (tail, tail_bytes) = self.tail();
        let reader = &mut self.readers[at];
        if let Some(gap) = reader.opening_gap.take() {
            return Some(Delivery::Gap(gap));
        }
        let history = &self.history[..self.safe];
        if let Some((from, to)) = reader.open_loss(history)
            && from == reader.next
        {
            let reason = if reader.policy == SlowPolicy::DropNew {
                GapReason::DropNew
            } else {
                GapReason::DropOld
            };
            self.told[usize::from(reader.policy == SlowPolicy::DropOld)] += to - from;
            let holder = history.iter().find(|kept| kept.base == to);
            reader.next = to;
            reader.next_bytes = holder.map_or(tail_bytes, |kept| kept.start_bytes);
            (reader.full_at, reader.head_start) = (None, 0);
            let lost = Lost::Exactly(to - from);
            return Some(Delivery::Gap(Gap {
                from: Offset(from),
                to: Some(Offset(to)),
                reason,
                lost,
            }));
        }
        if reader.next == tail {
            return None;
        }
        let kept = history.iter().find(|kept| kept.next > reader.next)?;
        let from = Offset(reader.next);
        reader.next = kept.next;
        reader.next_bytes = kept.end_bytes;
        reader.head_start = reader.head_start.min(tail_bytes - kept.end_bytes);
        Some(Delivery::Batch {
            from,
            to: Offset(kept.next),
            batch: kept.batch.clone(),
        })
    }

    fn detach(&mut self, index: &Index) {
        if self.readers.is_empty() {
            return;
        }
        let reader = self.readers.swap_remove(index.index(self.readers.len()));
        if let Some((from, to)) = reader.open_loss(&self.history[..self.safe]) {
            self.told[usize::from(reader.policy == SlowPolicy::DropOld)] += to - from;
        }
        let mut effects = Vec::new();
        self.shard.detach(reader.id, &mut effects);
        self.check_effects(effects);
    }

    /// Answers come in order and not before their time; who waits is woken.
    fn check_effects(&mut self, effects: Vec<Effect>) {
        let tail = self.tail().0;
        let mut woken = false;
        for effect in effects {
            match effect {
                Effect::Answer { publisher, entry } => {
                    let (until, expected) = self.expected.get_mut(&publisher.0).unwrap().pop_front().unwrap();
                    assert!(until <= tail, "an answer before its batch is safe");
                    assert_eq!(entry, expected);
                }
                Effect::WakePublishers => woken = true,
                Effect::Write(_) | Effect::WakeReaders => {}
            }
        }
        if self.waiting && !self.no_room() {
            assert!(woken, "a publisher is not left waiting");
            self.waiting = false;
        }
    }

    /// What holds after every step.
    fn check(&mut self) {
        assert_eq!(
            (self.shard.tail(), self.shard.end()),
            (Offset(self.tail().0), Offset(self.end().0))
        );
        let unsafe_bytes = self.end().1 - self.tail().1;
        assert!(self.shard.ring_bytes() <= self.ring.max(unsafe_bytes));
        let room = if self.no_room() { Room::Wait } else { Room::Open };
        assert_eq!(self.shard.room(), room);
        self.waiting |= room == Room::Wait;
        let mut dropped = self.told;
        for reader in &self.readers {
            let loss = reader.open_loss(&self.history[..self.safe]);
            let gap = self.shard.open_gap(reader.id);
            assert_eq!(gap.map(|gap| (gap.from.0, gap.to.unwrap().0)), loss);
            dropped[usize::from(reader.policy == SlowPolicy::DropOld)] +=
                loss.map_or(0, |(from, to)| to - from);
        }
        let counted = self.shard.dropped();
        assert_eq!([counted.drop_new, counted.drop_old], dropped);
        // Beside what it may lag, a cursor may hold the batch that overflows it and the one that the ring let go for that.
        let allowed = self
            .readers
            .iter()
            .map(|reader| reader.window + reader.head_start + 2 * LARGEST_BATCH);
        let windows: u64 = allowed.sum();
        assert!(
            self.shard.pinned_bytes() <= windows,
            "cursors hold their windows and no more"
        );
        if self.safe == self.history.len() {
            assert!(
                self.expected.values().all(VecDeque::is_empty),
                "all answers are given"
            );
        }
    }
}

impl Reader {
    fn lags(&self, tail_bytes: u64) -> bool {
        tail_bytes - self.next_bytes > self.window + self.head_start
    }

    fn open_loss(&self, history: &[Kept]) -> Option<(u64, u64)> {
        let last = history.last()?;
        if let Some(from) = self.full_at {
            return Some((from, last.next));
        }
        if self.policy != SlowPolicy::DropOld || !self.lags(last.end_bytes) {
            return None;
        }
        let fits = |kept: &&Kept| last.end_bytes - kept.start_bytes <= self.window;
        let to = history.iter().find(fits).unwrap_or(last).base;
        (to > self.next).then_some((self.next, to))
    }
}

fn stored(base: u64) -> AckEntry {
    Ok(Ack {
        base_offset: Offset(base),
        reached: Reached::Stored,
    })
}

proptest! {
    #[test]
    fn a_log_that_answers_at_once(steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new(true);
        steps.iter().for_each(|step| world.take(step));
    }

    #[test]
    fn a_log_that_answers_late_and_fails(
        steps in prop::collection::vec(step(), 1..150),
        after in prop::collection::vec(step(), 0..20),
        fails in any::<bool>(),
    ) {
        let mut world = World::new(false);
        steps.iter().for_each(|step| world.take(step));
        if fails {
            world.take(&Step::Fail);
        }
        after.iter().for_each(|step| world.take(step));
    }
}
