//! What a shard knows of its producers: enough to store each record once and in order.

use alloc::collections::{BTreeMap, VecDeque};

use felix_wire::{
    ErrorCode, MAX_UNACKED_BATCHES, Offset, Origin, ProducerEpoch, ProducerId, Refusal, Sequence,
};

/// What to do with a batch, judged by its origin alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the next one.
    Next,
    /// It is stored already, from this offset on.
    Duplicate(Offset),
    /// It has no place here.
    Refuse(Refusal),
}

/// The producers of a shard, at most a bounded number of them.
#[derive(Debug)]
pub(crate) struct Producers {
    known: BTreeMap<ProducerId, Producer>,
    limit: usize,
}

#[derive(Debug)]
struct Producer {
    epoch: ProducerEpoch,
    next: Sequence,
    /// Where its latest records lie, oldest first; at most [`MAX_UNACKED_BATCHES`].
    runs: VecDeque<Run>,
}

/// Records of one producer that lie side by side, so that one number places them all.
#[derive(Clone, Copy, Debug)]
struct Run {
    sequence: Sequence,
    offset: Offset,
    records: u64,
}

impl Producers {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            limit: limit.max(1),
        }
    }

    /// Judges a batch of `records` records.
    pub(crate) fn judge(&self, origin: Origin, records: u64) -> Verdict {
        let refuse = |code, detail| Verdict::Refuse(Refusal { code, detail });
        let begins = origin.sequence == Sequence(0);
        let Some(producer) = self.known.get(&origin.producer) else {
            return if begins {
                Verdict::Next
            } else {
                refuse(ErrorCode::UnknownProducer, 0)
            };
        };
        if origin.epoch < producer.epoch {
            return refuse(ErrorCode::Fenced, u64::from(producer.epoch.0));
        }
        let next = if origin.epoch > producer.epoch {
            Sequence(0)
        } else {
            producer.next
        };
        if origin.sequence == next {
            Verdict::Next
        } else if origin.sequence > next {
            refuse(ErrorCode::SequenceGap, next.0)
        } else {
            producer.find(origin.sequence, records)
        }
    }

    /// Notes a batch that was judged to be the next one and now lies at `offset`.
    pub(crate) fn note(&mut self, origin: Origin, records: u64, offset: Offset) {
        if !self.known.contains_key(&origin.producer) && self.known.len() >= self.limit {
            self.forget_most_silent();
        }
        let producer = self
            .known
            .entry(origin.producer)
            .or_insert_with(|| Producer::new(origin.epoch));
        if producer.epoch != origin.epoch {
            *producer = Producer::new(origin.epoch);
        }
        assert_eq!(producer.next, origin.sequence, "only the next batch is noted");
        producer.note(records, offset);
    }

    /// Notes that a batch was refused which would have been judged to be the next one. If it was the first of a producer that
    /// nobody knows, the producer is known from now on and has stored nothing, so that what follows is told which one is
    /// missing. Nobody is forgotten for that, and no epoch begins.
    pub(crate) fn refuse(&mut self, origin: Origin) {
        if origin.sequence == Sequence(0) && self.known.len() < self.limit {
            self.known
                .entry(origin.producer)
                .or_insert_with(|| Producer::new(ProducerEpoch(0)));
        }
    }

    /// Takes back all that lies at `cut` or behind. Epochs stay: who was fenced stays fenced.
    pub(crate) fn truncate(&mut self, cut: Offset) {
        for producer in self.known.values_mut() {
            producer.truncate(cut);
        }
    }

    /// Forgets the producer whose last record lies furthest back.
    fn forget_most_silent(&mut self) {
        let silent = self
            .known
            .iter()
            .min_by_key(|(_, producer)| producer.last_offset());
        if let Some(id) = silent.map(|(id, _)| *id) {
            self.known.remove(&id);
        }
    }
}

impl Producer {
    fn new(epoch: ProducerEpoch) -> Self {
        Self {
            epoch,
            next: Sequence(0),
            runs: VecDeque::new(),
        }
    }

    /// Where `records` records from `sequence` on lie, which is below the next one.
    fn find(&self, sequence: Sequence, records: u64) -> Verdict {
        let end = sequence.plus(records);
        let holds = |run: &&Run| run.sequence <= sequence && sequence < run.sequence.plus(run.records);
        match self.runs.iter().rev().find(holds) {
            Some(run) if end <= run.sequence.plus(run.records) => {
                Verdict::Duplicate(run.offset.plus(sequence.0 - run.sequence.0))
            }
            Some(_) => Verdict::Refuse(ErrorCode::SequenceOverlap.into()),
            None => Verdict::Refuse(ErrorCode::DuplicateForgotten.into()),
        }
    }

    fn note(&mut self, records: u64, offset: Offset) {
        let sequence = self.next;
        self.next = sequence.plus(records);
        match self.runs.back_mut() {
            Some(run) if run.offset.plus(run.records) == offset => run.records += records,
            Some(_) | None => self.runs.push_back(Run {
                sequence,
                offset,
                records,
            }),
        }
        if self.runs.len() > MAX_UNACKED_BATCHES {
            self.runs.pop_front();
        }
    }

    fn truncate(&mut self, cut: Offset) {
        while let Some(run) = self
            .runs
            .back_mut()
            .filter(|run| run.offset.plus(run.records) > cut)
        {
            run.records = run.offset.distance_to(cut);
            self.next = run.sequence.plus(run.records);
            if run.records > 0 {
                break;
            }
            self.runs.pop_back();
        }
    }

    fn last_offset(&self) -> Offset {
        self.runs
            .back()
            .map_or(Offset::ZERO, |run| run.offset.plus(run.records))
    }
}
