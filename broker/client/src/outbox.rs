//! What a publisher holds for one shard: the open batch, and the sealed ones until they are answered. Pure: no IO, no
//! clock, no waiting; time comes in. The rule for when a batch leaves is here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use felix_wire::{
    AckEntry, BatchBuilder, ErrorCode, ErrorKind, Incarnation, MAX_UNACKED_BATCHES, Origin, ProducerEpoch,
    ProducerId, PushError, Refusal, SealedBatch, Sequence, ShardId,
};

use crate::ack::BatchAck;
use crate::error::PublishError;
use crate::record::Record;

/// Bounds of one shard's outbox.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest batch that forms by itself, in bytes, header included.
    pub(crate) batch_bytes: usize,
    /// Largest batch that the stream takes, in bytes, header included.
    pub(crate) sealed_bytes: usize,
    /// Most records in a batch that forms by itself.
    pub(crate) batch_records: u32,
    /// The open batch leaves at once while fewer bytes than this are unacknowledged.
    pub(crate) eager_bytes: usize,
    /// Most bytes held, sealed and open together: above it, senders wait.
    pub(crate) buffer_bytes: usize,
    /// Largest record that the broker takes, in bytes of key, headers and value.
    pub(crate) record_bytes: usize,
}

/// Room for a batch's buffer at first, in bytes, and beside a large record.
const BUFFER_FIRST: usize = 512;

/// The place of a record: the acknowledgement of its batch, and its index there.
pub(crate) type Place = (Arc<BatchAck>, u32);

/// Why a record or batch was not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// There is no room now.
    Full,
    /// It will never be taken.
    Never(PublishError),
}

/// What an answer leads to.
#[derive(Debug)]
pub(crate) enum Next {
    /// Go on.
    Continue,
    /// The stream must be opened anew, under the present epoch.
    Reopen,
    /// The publisher is finished.
    Stop(PublishError),
}

struct Open {
    builder: BatchBuilder,
    ack: Arc<BatchAck>,
    since: Instant,
}

struct Sealed {
    batch: SealedBatch,
    ack: Arc<BatchAck>,
    since: Instant,
    /// QUIC has once taken the whole frame, so the broker may have it.
    sent: bool,
}

/// See the module.
pub(crate) struct Outbox {
    shard: ShardId,
    producer: ProducerId,
    epoch: ProducerEpoch,
    next_sequence: Sequence,
    incarnation: Option<Incarnation>,
    limits: Limits,
    open: Option<Open>,
    /// In order; at most [`MAX_UNACKED_BATCHES`].
    sealed: VecDeque<Sealed>,
    /// Frames of the last of `sealed`, as far as QUIC has not taken them; the first may be a rest.
    unwritten: VecDeque<Bytes>,
    sealed_bytes: usize,
    /// After a refusal: the sequence that the shard expects, taken up once all that was sent is answered.
    rewind: Option<Sequence>,
    /// Room that the next batch's buffer is made with, in bytes, so that it does not grow while it is filled.
    usual_bytes: usize,
}

impl Outbox {
    pub(crate) fn new(shard: ShardId, producer: ProducerId, limits: Limits) -> Self {
        Self {
            shard,
            producer,
            epoch: ProducerEpoch(0),
            next_sequence: Sequence(0),
            incarnation: None,
            limits,
            open: None,
            sealed: VecDeque::new(),
            unwritten: VecDeque::new(),
            sealed_bytes: 0,
            rewind: None,
            usual_bytes: BUFFER_FIRST,
        }
    }

    /// The broker has said what it takes.
    pub(crate) fn adopt_limits(&mut self, batch_bytes: u32, record_bytes: u32) {
        self.limits.sealed_bytes = batch_bytes as usize;
        self.limits.batch_bytes = self.limits.batch_bytes.min(self.limits.sealed_bytes);
        self.limits.record_bytes = record_bytes as usize;
    }

    /// The epoch that batches are sealed under.
    pub(crate) fn epoch(&self) -> ProducerEpoch {
        self.epoch
    }

    /// The largest record that the broker takes, in bytes of key, headers and value.
    pub(crate) fn record_bytes(&self) -> usize {
        self.limits.record_bytes
    }

    /// Puts a record into the open batch.
    pub(crate) fn push(&mut self, record: &Record<'_>, now: Instant) -> Result<Place, NotTaken> {
        let size = record.size();
        if size > self.limits.record_bytes {
            let limit = self.limits.record_bytes;
            return Err(NotTaken::Never(PublishError::RecordTooLarge {
                bytes: size,
                limit,
            }));
        }
        if self.held_bytes() + size > self.limits.buffer_bytes && !self.is_idle() {
            return Err(NotTaken::Full);
        }
        if self.open.as_ref().is_some_and(|open| self.is_full(open, size)) {
            self.seal()?;
        }
        match self.push_open(record, now) {
            Err(PushError::Full) => {
                self.seal()?;
                self.push_open(record, now).map_err(never)
            }
            other => other.map_err(never),
        }
    }

    /// Whether a batch takes no further record of `size` bytes. A record larger than a batch gets one of its own.
    fn is_full(&self, open: &Open, size: usize) -> bool {
        open.builder.records() >= self.limits.batch_records
            || open.builder.len() + size > self.limits.batch_bytes
    }

    fn push_open(&mut self, record: &Record<'_>, now: Instant) -> Result<Place, PushError> {
        if self.open.is_none() {
            let usual = self.usual_bytes.min(self.limits.batch_bytes);
            let builder = self.builder_of(usual.max(record.size() + BUFFER_FIRST));
            self.open = Some(Open {
                builder,
                ack: BatchAck::new(self.shard.0),
                since: now,
            });
        }
        let Some(open) = self.open.as_mut() else {
            return Err(PushError::Full);
        };
        match record.push_to(&mut open.builder) {
            Ok(index) => Ok((open.ack.clone(), index)),
            Err(error) => {
                // A batch that the refused record opened would otherwise leave empty.
                self.open.take_if(|open| open.builder.is_empty());
                Err(error)
            }
        }
    }

    /// A builder for a batch that is filled by hand.
    pub(crate) fn builder(&self) -> BatchBuilder {
        self.builder_of(self.usual_bytes)
    }

    fn builder_of(&self, bytes: usize) -> BatchBuilder {
        BatchBuilder::new(BytesMut::with_capacity(bytes), self.limits.sealed_bytes)
    }

    /// Takes a whole batch behind all that was pushed before. Where there is no room it stays in `batch`.
    pub(crate) fn push_batch(
        &mut self,
        batch: &mut Option<BatchBuilder>,
        now: Instant,
    ) -> Result<Place, NotTaken> {
        let size = batch.as_ref().map_or(0, BatchBuilder::len);
        let places = 1 + usize::from(self.open.is_some());
        let over_budget = self.held_bytes() + size > self.limits.buffer_bytes && !self.is_idle();
        if over_budget || self.rewind.is_some() || self.sealed.len() + places > MAX_UNACKED_BATCHES {
            return Err(NotTaken::Full);
        }
        self.seal()?;
        let Some(builder) = batch.take().filter(|builder| !builder.is_empty()) else {
            let reason = "an empty batch".into();
            return Err(NotTaken::Never(PublishError::Record { reason }));
        };
        let ack = BatchAck::new(self.shard.0);
        self.open = Some(Open {
            builder,
            ack: ack.clone(),
            since: now,
        });
        self.seal()?;
        Ok((ack, 0))
    }

    /// Whether there is an open batch that is to leave.
    pub(crate) fn is_due(&self) -> bool {
        let little = self.sealed_bytes < self.limits.eager_bytes;
        self.open
            .as_ref()
            .is_some_and(|open| little || self.is_full(open, 0))
    }

    /// Seals the open batch if it is due: little is unacknowledged, or it is full. Whether anything was sealed.
    pub(crate) fn seal_due(&mut self) -> bool {
        self.is_due() && self.seal().is_ok()
    }

    /// Seals the open batch, if any.
    fn seal(&mut self) -> Result<(), NotTaken> {
        if self.open.is_none() {
            return Ok(());
        }
        if self.rewind.is_some() || self.sealed.len() >= MAX_UNACKED_BATCHES {
            return Err(NotTaken::Full);
        }
        let origin = Origin {
            producer: self.producer,
            epoch: self.epoch,
            sequence: self.next_sequence,
        };
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let Some(batch) = open.builder.seal(origin) else {
            return Ok(());
        };
        self.next_sequence = self.next_sequence.plus(batch.records().into());
        self.sealed_bytes += batch.frame().len();
        // A quarter more than the last one: grows with the load, and shrinks with it.
        self.usual_bytes = (batch.frame().len() * 5 / 4).clamp(BUFFER_FIRST, self.limits.sealed_bytes);
        self.unwritten.push_back(batch.frame().clone());
        self.sealed.push_back(Sealed {
            batch,
            ack: open.ack,
            since: open.since,
            sent: false,
        });
        Ok(())
    }

    /// Frames, or the rest of one, that QUIC has not taken yet.
    pub(crate) fn unwritten(&mut self) -> &mut [Bytes] {
        self.unwritten.make_contiguous()
    }

    /// QUIC has taken this many whole frames from the front; of the next it may have taken a part.
    pub(crate) fn written(&mut self, frames: usize) {
        let first = self.sealed.len() - self.unwritten.len();
        self.sealed
            .iter_mut()
            .skip(first)
            .take(frames)
            .for_each(|sealed| sealed.sent = true);
        self.unwritten.drain(..frames.min(self.unwritten.len()));
    }

    /// Whether no sealed batch is unanswered: the next record may leave at once.
    pub(crate) fn nothing_in_flight(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Whether nothing is held.
    pub(crate) fn is_idle(&self) -> bool {
        self.sealed.is_empty() && self.open.is_none()
    }

    /// Takes the answer to the oldest batch.
    pub(crate) fn answer(&mut self, entry: AckEntry) -> Next {
        if self.sealed.len() <= self.unwritten.len() {
            // Nothing that was wholly sent is unanswered.
            let refusal = Refusal::from(ErrorCode::ProtocolViolation);
            return Next::Stop(refused(refusal));
        }
        match entry {
            Ok(ack) => {
                if let Some(sealed) = self.pop() {
                    sealed.ack.resolve(Ok((ack.base_offset, ack.reached)));
                }
                Next::Continue
            }
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Next {
        if refusal.code == ErrorCode::Fenced {
            return Next::Stop(refused(refusal));
        }
        if refusal.code == ErrorCode::UnknownProducer {
            self.fail_sealed(&refused(refusal));
            self.begin_epoch();
            return Next::Reopen;
        }
        if refusal.code.kind() == ErrorKind::Unknown {
            // Safe to send again under the same sequences, until the broker knows or the time is over.
            return Next::Reopen;
        }
        let Some(sealed) = self.pop() else {
            return Next::Continue;
        };
        // What was stored long ago has taken its sequences; all else has not.
        if refusal.code != ErrorCode::DuplicateForgotten {
            self.rewind.get_or_insert_with(|| sealed.batch.origin().sequence);
        }
        sealed.ack.resolve(Err(refused(refusal)));
        if self.sealed.is_empty() {
            self.take_up_rewind();
        }
        Next::Continue
    }

    fn pop(&mut self) -> Option<Sealed> {
        let sealed = self.sealed.pop_front()?;
        self.sealed_bytes -= sealed.batch.frame().len();
        Some(sealed)
    }

    fn take_up_rewind(&mut self) {
        if let Some(sequence) = self.rewind.take() {
            self.next_sequence = sequence;
        }
    }

    /// The publisher is open on a new stream: everything unanswered is to be sent again, byte for byte. If the stream
    /// has begun a new life, what was sent is unknown and the next epoch begins; the stream must then be opened anew.
    pub(crate) fn opened(&mut self, incarnation: Incarnation) -> Next {
        let former = self.incarnation.replace(incarnation);
        if former.is_some_and(|former| former != incarnation) {
            self.fail_sealed(&PublishError::NewIncarnation);
            self.begin_epoch();
            return Next::Reopen;
        }
        self.unwritten.clear();
        self.unwritten
            .extend(self.sealed.iter().map(|sealed| sealed.batch.frame().clone()));
        Next::Continue
    }

    /// When the oldest record gives up waiting.
    pub(crate) fn deadline(&self, patience: Duration) -> Option<Instant> {
        let sealed = self.sealed.front().map(|sealed| sealed.since);
        sealed
            .or_else(|| self.open.as_ref().map(|open| open.since))
            .map(|since| since + patience)
    }

    /// Gives up what has waited too long. Whether the stream must be opened anew.
    pub(crate) fn expire(&mut self, now: Instant, patience: Duration) -> bool {
        if self.deadline(patience).is_none_or(|deadline| deadline > now) {
            return false;
        }
        let sent = !self.sealed.is_empty();
        self.fail_sealed(&PublishError::TimedOut { waited: patience });
        if let Some(open) = self.open.take_if(|open| open.since + patience <= now) {
            open.ack
                .resolve(Err(not_sent("no connection within the delivery time-out")));
        }
        if sent {
            self.begin_epoch();
        }
        sent
    }

    /// Fails everything held.
    pub(crate) fn fail_all(&mut self, error: &PublishError) {
        self.fail_sealed(error);
        if let Some(open) = self.open.take() {
            open.ack.resolve(Err(error.clone()));
        }
    }

    /// Fails all sealed batches: with `error` those that the broker may have, the others as not sent.
    fn fail_sealed(&mut self, error: &PublishError) {
        while let Some(sealed) = self.pop() {
            let error = if sealed.sent {
                error.clone()
            } else {
                not_sent(&error.to_string())
            };
            sealed.ack.resolve(Err(error));
        }
        self.unwritten.clear();
        self.take_up_rewind();
    }

    /// What follows is a new life of this producer.
    fn begin_epoch(&mut self) {
        self.epoch = ProducerEpoch(self.epoch.0 + 1);
        self.next_sequence = Sequence(0);
        self.rewind = None;
    }

    fn held_bytes(&self) -> usize {
        self.sealed_bytes + self.open.as_ref().map_or(0, |open| open.builder.len())
    }
}

fn refused(refusal: Refusal) -> PublishError {
    PublishError::Refused {
        code: refusal.code,
        detail: refusal.detail,
    }
}

fn not_sent(reason: &str) -> PublishError {
    PublishError::NotSent {
        reason: reason.into(),
    }
}

fn never(error: PushError) -> NotTaken {
    match error {
        PushError::Full => NotTaken::Full,
        PushError::TooLarge { bytes, limit } => {
            NotTaken::Never(PublishError::RecordTooLarge { bytes, limit })
        }
        PushError::Key | PushError::HeaderCount | PushError::HeaderName => {
            NotTaken::Never(PublishError::Record {
                reason: error.to_string(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use felix_wire::{Ack as WireAck, Offset, Reached};

    use super::*;
    use crate::ack::Ack;

    const LIFE: Incarnation = Incarnation(1);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn limits() -> Limits {
        Limits {
            batch_bytes: 4096,
            batch_records: 100,
            sealed_bytes: 1 << 20,
            eager_bytes: 1000,
            buffer_bytes: 1 << 20,
            record_bytes: 64 << 10,
        }
    }

    fn outbox(limits: Limits) -> Outbox {
        let mut outbox = Outbox::new(ShardId(3), ProducerId(9), limits);
        assert!(matches!(outbox.opened(LIFE), Next::Continue));
        outbox
    }

    fn push(outbox: &mut Outbox, value: &[u8]) -> Result<Ack, NotTaken> {
        outbox
            .push(&Record::new(value), Instant::now())
            .map(|(batch, index)| Ack::new(batch, index))
    }

    fn stored(offset: u64) -> AckEntry {
        Ok(WireAck {
            base_offset: Offset(offset),
            reached: Reached::Stored,
        })
    }

    fn write_all(outbox: &mut Outbox) -> Vec<Bytes> {
        let frames = outbox.unwritten().to_vec();
        outbox.written(frames.len());
        frames
    }

    /// Sends one record in a batch of its own.
    fn send_one(outbox: &mut Outbox) -> Ack {
        let ack = push(outbox, b"x").unwrap();
        assert!(outbox.seal().is_ok());
        write_all(outbox);
        ack
    }

    fn sequences(outbox: &Outbox) -> Vec<u64> {
        outbox
            .sealed
            .iter()
            .map(|sealed| sealed.batch.origin().sequence.0)
            .collect()
    }

    #[test]
    fn a_batch_leaves_at_once_while_little_is_unacknowledged_and_grows_afterwards() {
        let mut outbox = outbox(limits());
        let value = [0; 600];
        let _first = push(&mut outbox, &value).unwrap();
        assert!(outbox.seal_due(), "nothing is in flight");
        let _second = push(&mut outbox, &value).unwrap();
        assert!(outbox.seal_due(), "one batch of about 750 bytes is below 1000");
        let acks: Vec<_> = (0..3).map(|_| push(&mut outbox, &value).unwrap()).collect();
        assert!(
            !outbox.seal_due(),
            "1500 bytes are unacknowledged: the batch grows"
        );
        write_all(&mut outbox);
        outbox.answer(stored(0));
        assert!(outbox.seal_due(), "an answer made room");
        assert_eq!(outbox.sealed.back().unwrap().batch.records(), 3);
        drop(acks);
    }

    #[test]
    fn a_full_batch_is_sealed_whatever_is_in_flight() {
        let mut outbox = outbox(Limits {
            eager_bytes: 0,
            batch_records: 4,
            ..limits()
        });
        let acks: Vec<_> = (0..9).map(|_| push(&mut outbox, b"x").unwrap()).collect();
        assert_eq!(sequences(&outbox), [0, 4]);
        assert!(!outbox.seal_due(), "the third holds one record and waits");
        drop(acks);
    }

    #[test]
    fn records_learn_their_offsets_from_one_entry() {
        let mut outbox = outbox(limits());
        let acks: Vec<_> = (0..3).map(|_| push(&mut outbox, b"x").unwrap()).collect();
        outbox.seal().unwrap();
        write_all(&mut outbox);
        assert!(matches!(outbox.answer(stored(40)), Next::Continue));
        let offsets: Vec<_> = acks
            .iter()
            .map(|ack| ack.try_take().unwrap().unwrap().offset)
            .collect();
        assert_eq!(offsets, [40, 41, 42]);
        assert!(outbox.is_idle());
    }

    #[test]
    fn a_retry_is_the_same_bytes_in_the_same_order() {
        let mut outbox = outbox(limits());
        let _acks = [push(&mut outbox, b"a").unwrap(), push(&mut outbox, b"b").unwrap()];
        outbox.seal().unwrap();
        let _more = send_one(&mut outbox);
        let sent: Vec<_> = outbox
            .sealed
            .iter()
            .map(|sealed| sealed.batch.frame().clone())
            .collect();
        assert!(matches!(outbox.opened(LIFE), Next::Continue));
        assert_eq!(outbox.unwritten().to_vec(), sent);
    }

    #[test]
    fn a_partly_written_frame_is_sent_whole_after_a_reconnect() {
        let mut outbox = outbox(limits());
        let _ack = push(&mut outbox, b"abc").unwrap();
        outbox.seal().unwrap();
        let whole = outbox.unwritten()[0].clone();
        let _taken = outbox.unwritten()[0].split_to(5);
        outbox.opened(LIFE);
        assert_eq!(outbox.unwritten(), [whole]);
    }

    #[test]
    fn a_new_life_makes_what_was_sent_unknown_and_begins_an_epoch() {
        let mut outbox = outbox(limits());
        let sent = send_one(&mut outbox);
        let unsent = push(&mut outbox, b"y").unwrap();
        outbox.seal().unwrap();
        assert!(matches!(outbox.opened(Incarnation(2)), Next::Reopen));
        assert_eq!(sent.try_take().unwrap().unwrap_err().kind(), ErrorKind::Unknown);
        assert_eq!(unsent.try_take().unwrap().unwrap_err().kind(), ErrorKind::Retry);
        assert_eq!(outbox.epoch(), ProducerEpoch(1));
        let _next = push(&mut outbox, b"z").unwrap();
        outbox.seal().unwrap();
        assert_eq!(sequences(&outbox), [0]);
    }

    #[test]
    fn after_a_refusal_the_next_batch_takes_the_refused_sequence() {
        let mut outbox = outbox(limits());
        let _stored = send_one(&mut outbox);
        let (refused, behind) = (send_one(&mut outbox), send_one(&mut outbox));
        outbox.answer(stored(0));
        outbox.answer(Err(Refusal {
            code: ErrorCode::Overloaded,
            detail: 0,
        }));
        let _waiting = push(&mut outbox, b"later").unwrap();
        assert!(
            !outbox.seal_due(),
            "nothing is sealed until the answers behind the refusal are here"
        );
        outbox.answer(Err(Refusal {
            code: ErrorCode::SequenceGap,
            detail: 1,
        }));
        for ack in [refused, behind] {
            assert_eq!(ack.try_take().unwrap().unwrap_err().kind(), ErrorKind::Retry);
        }
        assert!(outbox.seal_due());
        assert_eq!(sequences(&outbox), [1]);
    }

    #[test]
    fn a_producer_that_the_shard_forgot_begins_anew() {
        let mut outbox = outbox(limits());
        let acks = [send_one(&mut outbox), send_one(&mut outbox)];
        let refusal = Refusal {
            code: ErrorCode::UnknownProducer,
            detail: 0,
        };
        assert!(matches!(outbox.answer(Err(refusal)), Next::Reopen));
        for ack in acks {
            assert_eq!(ack.try_take().unwrap().unwrap_err().kind(), ErrorKind::Unknown);
        }
        assert_eq!(
            (outbox.epoch(), outbox.next_sequence),
            (ProducerEpoch(1), Sequence(0))
        );
    }

    #[test]
    fn an_unknown_outcome_is_sent_again_under_the_same_sequence() {
        let mut outbox = outbox(limits());
        let ack = send_one(&mut outbox);
        let refusal = Refusal {
            code: ErrorCode::OutcomeUnknown,
            detail: 0,
        };
        assert!(matches!(outbox.answer(Err(refusal)), Next::Reopen));
        outbox.opened(LIFE);
        assert_eq!(outbox.unwritten().len(), 1);
        assert!(ack.try_take().is_none());
        assert_eq!(outbox.epoch(), ProducerEpoch(0));
    }

    #[test]
    fn an_answer_to_nothing_stops_the_publisher() {
        let mut outbox = outbox(limits());
        assert!(matches!(outbox.answer(stored(0)), Next::Stop(_)));
        let _unwritten = push(&mut outbox, b"x").unwrap();
        outbox.seal().unwrap();
        assert!(
            matches!(outbox.answer(stored(0)), Next::Stop(_)),
            "it was not sent yet"
        );
    }

    #[test]
    fn time_over_makes_the_sent_unknown_and_the_unsent_retryable() {
        let mut outbox = outbox(limits());
        let sent = send_one(&mut outbox);
        let open = push(&mut outbox, b"open").unwrap();
        let now = Instant::now();
        assert!(!outbox.expire(now, PATIENCE));
        assert!(outbox.expire(now + PATIENCE * 2, PATIENCE));
        assert_eq!(sent.try_take().unwrap().unwrap_err().kind(), ErrorKind::Unknown);
        assert_eq!(open.try_take().unwrap().unwrap_err().kind(), ErrorKind::Retry);
        assert!(outbox.is_idle());
        assert_eq!(outbox.epoch(), ProducerEpoch(1));
    }

    #[test]
    fn a_record_that_does_not_fit_seals_the_batch_and_opens_the_next() {
        const FIXED: usize = felix_wire::HEADER_LEN + 3;
        let exact = 4000 - FIXED - 3;
        for (over, batches) in [(0, 0), (1, 1)] {
            let mut outbox = outbox(Limits {
                eager_bytes: 0,
                batch_bytes: 4000,
                sealed_bytes: 4000,
                ..limits()
            });
            let record = |value| Record::new(value).timestamp(felix_wire::Nanos(1));
            let now = Instant::now();
            let (one, rest) = (vec![1; 2000], vec![2; exact - 2000 + over]);
            let acks = [&one, &rest].map(|value| outbox.push(&record(value), now).unwrap());
            assert_eq!(outbox.sealed.len(), batches, "{over} bytes over");
            assert_eq!(acks[1].1, 1 - batches as u32, "the index in its batch");
        }
    }

    #[test]
    fn many_of_the_largest_records_are_held_within_the_bound() {
        const LARGEST: usize = 64 << 10;
        let mut outbox = outbox(Limits {
            buffer_bytes: 4 * LARGEST,
            ..limits()
        });
        let value = vec![7; LARGEST];
        let (mut sent, mut answered) = (0, 0);
        let mut acks = Vec::new();
        while answered < 64 {
            match push(&mut outbox, &value) {
                Ok(ack) => {
                    acks.push(ack);
                    sent += 1;
                    outbox.seal_due();
                }
                Err(NotTaken::Full) => {
                    outbox.seal_due();
                    write_all(&mut outbox);
                    outbox.answer(stored(answered));
                    answered += 1;
                }
                Err(NotTaken::Never(error)) => panic!("{error}"),
            }
            assert!(outbox.held_bytes() <= 4 * LARGEST + HEADROOM);
            assert!(outbox.sealed.iter().all(|sealed| sealed.batch.records() == 1));
        }
        assert!(sent >= 64);
    }

    #[test]
    fn bytes_and_batches_held_are_bounded() {
        let mut outbox = outbox(Limits {
            buffer_bytes: 10_000,
            eager_bytes: usize::MAX,
            ..limits()
        });
        let mut acks = Vec::new();
        while let Ok(ack) = push(&mut outbox, &[0; 500]) {
            acks.push(ack);
            assert!(outbox.held_bytes() <= 10_000 + HEADROOM);
        }
        assert!(outbox.held_bytes() > 9_000);

        let mut outbox = self::outbox(limits());
        let sent: Vec<_> = (0..MAX_UNACKED_BATCHES).map(|_| send_one(&mut outbox)).collect();
        let _grows = push(&mut outbox, b"x").unwrap();
        assert!(
            !outbox.seal_due(),
            "the broker remembers so many batches and no more"
        );
        drop(sent);
    }

    /// The header of the batch that is open.
    const HEADROOM: usize = 256;

    #[test]
    fn a_batch_made_by_hand_keeps_its_place() {
        let mut outbox = outbox(limits());
        let before = push(&mut outbox, b"before").unwrap();
        let mut builder = outbox.builder();
        for _ in 0..5 {
            builder
                .push(felix_wire::Nanos(1), None, [].into_iter(), b"x")
                .unwrap();
        }
        let mut batch = Some(builder);
        outbox.push_batch(&mut batch, Instant::now()).unwrap();
        assert!(batch.is_none());
        assert_eq!(sequences(&outbox), [0, 1]);
        assert_eq!(outbox.next_sequence, Sequence(6));
        drop(before);
    }

    #[test]
    fn a_record_that_fits_no_batch_leaves_no_trace() {
        let mut outbox = outbox(limits());
        let too_large = push(&mut outbox, &vec![0; 65 << 10]);
        assert!(matches!(
            too_large,
            Err(NotTaken::Never(PublishError::RecordTooLarge { .. }))
        ));
        let mut ack = push(&mut outbox, &vec![0; 60 << 10]).unwrap();
        assert!(outbox.seal_due(), "larger than a usual batch: in one of its own");
        assert_eq!(outbox.sealed[0].batch.records(), 1);
        let waiting = std::pin::Pin::new(&mut ack).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(waiting, Poll::Pending));
    }
}
