//! One publisher's stream: a permit for each batch, one copy, the shard, and the answers in order. No queue lies between
//! reading a batch and the ring.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::BytesMut;
use felix_core::{BATCH_OVERHEAD, Publish, PublisherId, Room};
use felix_wire::{
    AckEntry, Acks, BatchError, ErrorCode, Frame, FrameKind, HEADER_LEN, IncomingBatch, MAX_ACKS_PER_FRAME,
    MAX_BATCH_BYTES, OpenPublish, Origin, ProducerEpoch, ProducerId, PublishOpened, RecordError, Refusal,
};
use quinn::SendStream;
use tokio::time;

use crate::{
    broker::{Broker, Phase},
    connection::{Refused, encode, refuse, unknown_stream},
    connections::{Entered, Use},
    frames::{FrameError, FrameReader},
    memory::InFlightPermit,
    metrics::Limit,
    shard::{Answers, ShardHandle},
    streams::Stream,
};

/// Largest batch that a publisher is told of, where records may not be larger: bulk gains nothing beyond.
const USUAL_BATCH_BYTES: usize = 4 << 20;
/// Longest time from the head of a batch to its last byte.
const BATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// While others wait for memory, a batch has to come at this rate, in bytes per second, after a time of grace: who has
/// begun many batches and sends none of them does not hold up the others.
const BATCH_FLOOR: u64 = 128 << 10;
const BATCH_GRACE: Duration = Duration::from_secs(1);
/// How often it is looked at how far a batch has come.
const BATCH_CHECK: Duration = Duration::from_millis(250);
/// A publisher that has not been read for so long is parked: its connection is given room for what it has sent.
const PARKED_AFTER: Duration = Duration::from_millis(50);
/// How long, from the moment that clients are asked to leave, batches are taken that were under way.
const LEAVE_TIME: Duration = Duration::from_millis(100);
/// Answers that are gathered while batches keep coming, half of what a publisher may have open.
const ACKS_GATHERED: usize = MAX_ACKS_PER_FRAME / 2;

/// Serves a publisher until its stream ends.
pub(crate) async fn serve(
    broker: Arc<Broker>,
    connection: Arc<Entered>,
    open: OpenPublish,
    (mut send, mut reader): (SendStream, FrameReader),
) {
    let _in_use = connection.begin(Use::Publish);
    let publisher = match Publisher::open(&broker, connection, &open) {
        Ok(publisher) => publisher,
        Err(refused) => {
            broker.metrics.observe_refused(refused.refusal.code);
            return refuse(send, reader.stream(), refused).await;
        }
    };
    let Some(_counted) = broker.publishers.enter() else {
        broker.metrics.observe_limit(Limit::Publishers);
        let refused = Refused::new(
            ErrorCode::TooManyPublishers,
            "the broker has as many publishers as it may",
        );
        return refuse(send, reader.stream(), refused).await;
    };
    let opened = Frame::PublishOpened(PublishOpened {
        incarnation: publisher.stream.incarnation(),
        max_batch_bytes: u32::try_from(publisher.max_batch_bytes).unwrap_or(u32::MAX),
        max_record_bytes: u32::try_from(publisher.max_record_bytes).unwrap_or(u32::MAX),
    });
    if send.write_chunk(encode(&opened)).await.is_err() {
        return;
    }
    match publisher.serve(&mut send, &mut reader).await {
        Ok(()) => {
            send.finish().ok();
        }
        Err(refused) => refuse(send, reader.stream(), refused).await,
    }
}

/// A publisher on one shard.
struct Publisher {
    broker: Arc<Broker>,
    connection: Arc<Entered>,
    stream: Arc<Stream>,
    shard: Arc<ShardHandle>,
    id: PublisherId,
    answers: Arc<Answers>,
    producer: ProducerId,
    epoch: ProducerEpoch,
    max_batch_bytes: usize,
    max_record_bytes: usize,
}

/// A batch as it was read.
enum Incoming {
    Batch {
        bytes: BytesMut,
        permit: InFlightPermit,
        read_at: u64,
    },
    /// It was read over; this is the answer.
    Refused(Refusal),
}

impl Publisher {
    fn open(broker: &Arc<Broker>, connection: Arc<Entered>, open: &OpenPublish) -> Result<Self, Refused> {
        if broker.stopping.has_reached(Phase::Leaving) {
            return Err(stopping());
        }
        let stream = broker
            .catalogue
            .streams()
            .get(&open.stream)
            .ok_or_else(|| unknown_stream(&open.stream))?;
        let unknown_shard = || {
            let message = format!("stream {} has {} shards", open.stream, stream.shards().len());
            Refused::new(ErrorCode::UnknownShard, message)
        };
        let shard = Arc::clone(stream.shard(open.shard).ok_or_else(unknown_shard)?);
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = PublisherId(NEXT_ID.fetch_add(1, Relaxed));
        let max_batch_bytes = max_batch_bytes(broker, &stream);
        Ok(Self {
            answers: shard.enter_publisher(id),
            broker: Arc::clone(broker),
            connection,
            shard,
            id,
            producer: open.producer,
            epoch: open.epoch,
            max_batch_bytes,
            max_record_bytes: broker.max_record_bytes.min(max_batch_bytes - HEADER_LEN),
            stream,
        })
    }

    /// Reads batches and answers them. What is read next and what is answered do not wait for each other.
    async fn serve(&self, send: &mut SendStream, reader: &mut FrameReader) -> Result<(), Refused> {
        let leaving = async {
            self.broker.stopping.reached(Phase::Leaving).await;
            time::sleep(LEAVE_TIME).await;
        };
        let given = self.answers.given.notified();
        // Made once: what is pinned across batches costs them little.
        tokio::pin!(leaving, given);
        let mut acks = Vec::with_capacity(ACKS_GATHERED);
        let mut oldest_read_at = None;
        loop {
            let next = self.next(reader);
            tokio::pin!(next);
            let incoming = loop {
                tokio::select! {
                    biased;
                    () = &mut leaving, if acks.is_empty() => return Err(stopping()),
                    incoming = &mut next, if acks.len() < ACKS_GATHERED => break incoming?,
                    () = &mut given => {
                        given.set(self.answers.given.notified());
                        self.answers.take(&mut acks);
                    }
                    // Nothing more to read at once: what was gathered goes out in one frame, once the subscriptions that
                    // were woken have had their turn. A delivery is waited for by more people than an ack.
                    () = tokio::task::yield_now(), if !acks.is_empty() => {
                        self.answer(send, &mut acks, oldest_read_at.take()).await?;
                    }
                }
            };
            match incoming {
                Some(Incoming::Batch {
                    bytes,
                    permit,
                    read_at,
                }) => {
                    oldest_read_at.get_or_insert(read_at);
                    self.take(bytes, &mut acks).await;
                    drop(permit);
                }
                Some(Incoming::Refused(refusal)) => acks.push(self.refused(refusal)),
                None => return self.finish(send, acks).await,
            }
            if let Some(Err(Refusal {
                code: ErrorCode::StreamEnded,
                ..
            })) = acks.last()
            {
                self.finish(send, acks).await?;
                return Err(Refused::new(ErrorCode::StreamEnded, "the stream was deleted"));
            }
            tokio::task::consume_budget().await;
        }
    }

    /// The next batch; `None` when the client has ended the stream.
    async fn next(&self, reader: &mut FrameReader) -> Result<Option<Incoming>, Refused> {
        let head = match reader.head().await {
            Ok(head) if head.kind == FrameKind::Publish => head,
            Ok(head) => {
                let message = format!("a {:?} frame has no place on a publisher's stream", head.kind);
                return Err(Refused::new(ErrorCode::ProtocolViolation, message));
            }
            Err(FrameError::End) => return Ok(None),
            Err(error @ (FrameError::Cut | FrameError::Read(_) | FrameError::Decode(_))) => {
                return Err(error.into());
            }
        };
        let length = head.length as usize;
        if length > self.max_batch_bytes {
            let detail = self.max_batch_bytes as u64;
            let code = ErrorCode::BatchTooLarge;
            return self.read_over(reader, length, Refusal { code, detail }).await;
        }
        let Some(permit) = self.room_for(head.length).await else {
            return self.read_over(reader, length, ErrorCode::Overloaded.into()).await;
        };
        let bytes = self.read(reader, length).await?;
        Ok(Some(Incoming::Batch {
            bytes,
            permit,
            read_at: self.broker.clock.now().0,
        }))
    }

    /// Waits until subscriptions, the log and the memory budget let a batch in, holding nothing meanwhile. `None` where
    /// memory is used up and the stream is one that refuses then.
    async fn room_for(&self, length: u32) -> Option<InFlightPermit> {
        if !self.broker.rings.are_full()
            && self.shard.room() == Room::Open
            && let Some(permit) = self.connection.in_flight().try_take(length)
        {
            return Some(permit);
        }
        let waiting = self.wait_for_room(length);
        tokio::pin!(waiting);
        if let Ok(permit) = time::timeout(PARKED_AFTER, &mut waiting).await {
            return permit;
        }
        let _parked = self.connection.park();
        waiting.await
    }

    async fn wait_for_room(&self, length: u32) -> Option<InFlightPermit> {
        let sheds = self.stream.sheds();
        loop {
            // They wake for all that comes from here on, so nothing falls between looking and waiting.
            let woken = self.shard.publishers.notified();
            let room = self.broker.rings.room();
            let full = self.rings_are_full();
            if full && sheds {
                return None;
            }
            if !full && self.shard.room() == Room::Open {
                break;
            }
            tokio::select! {
                () = woken => {}
                () = room => {}
            }
        }
        let in_flight = self.connection.in_flight();
        if sheds {
            return in_flight.try_take(length);
        }
        in_flight.take(length).await
    }

    /// Whether the rings' share of memory is used up, although everything has given way that can.
    fn rings_are_full(&self) -> bool {
        let rings = &self.broker.rings;
        if rings.are_full() {
            rings.relieve();
        }
        rings.are_full()
    }

    /// Reads a batch over and answers it with a refusal.
    async fn read_over(
        &self,
        reader: &mut FrameReader,
        length: usize,
        refusal: Refusal,
    ) -> Result<Option<Incoming>, Refused> {
        let reading = async {
            let mut head = BytesMut::with_capacity(HEADER_LEN);
            reader.fill(&mut head, length.min(HEADER_LEN)).await?;
            reader.skip(length - head.len()).await?;
            Ok::<_, FrameError>(Origin::peek(&head))
        };
        let origin = time::timeout(BATCH_TIMEOUT, reading)
            .await
            .map_err(|_| late())??;
        self.note_refused(origin);
        Ok(Some(Incoming::Refused(refusal)))
    }

    /// Reads a batch, if it comes in time.
    async fn read(&self, reader: &mut FrameReader, length: usize) -> Result<BytesMut, Refused> {
        let begun = time::Instant::now();
        let mut body = BytesMut::with_capacity(length);
        loop {
            match time::timeout(BATCH_CHECK, reader.fill(&mut body, length)).await {
                Ok(filled) => {
                    filled?;
                    return Ok(body);
                }
                Err(_) if begun.elapsed() >= BATCH_TIMEOUT => return Err(late()),
                Err(_) => {
                    let others_wait = self.connection.in_flight().is_short();
                    if others_wait && is_below_the_floor(begun.elapsed(), body.len()) {
                        return Err(too_slow());
                    }
                }
            }
        }
    }

    /// Checks a batch and offers it to the shard until it is taken.
    async fn take(&self, bytes: BytesMut, acks: &mut Vec<AckEntry>) {
        let length = bytes.len();
        let origin = Origin::peek(&bytes);
        let mut batch = match self.check(bytes) {
            Ok(batch) => batch,
            Err(refusal) => {
                self.note_refused(origin);
                return acks.push(self.refused(refusal));
            }
        };
        let records = batch.header().record_count;
        let answered = acks.len();
        loop {
            let woken = self.shard.publishers.notified();
            match self.shard.publish(self.id, batch, self.broker.clock.now(), acks) {
                Publish::Taken => break,
                Publish::Wait(waiting) => batch = waiting,
            }
            woken.await;
        }
        match acks.get(answered..) {
            Some([.., Err(refusal)]) => self.broker.metrics.observe_refused(refusal.code),
            Some([.., Ok(_)]) => self.broker.metrics.observe_stored(records, length),
            Some([]) | None => {}
        }
    }

    fn check(&self, bytes: BytesMut) -> Result<IncomingBatch, Refusal> {
        let batch = IncomingBatch::check(bytes, self.max_record_bytes).map_err(refusal)?;
        let Origin { producer, epoch, .. } = batch.header().origin;
        if producer != self.producer || epoch != self.epoch {
            return Err(ErrorCode::InvalidBatch.into());
        }
        Ok(batch)
    }

    /// Lets the shard know of a batch that does not come to it, so that it knows what later ones miss.
    fn note_refused(&self, origin: Option<Origin>) {
        let own = |origin: &Origin| origin.producer == self.producer && origin.epoch == self.epoch;
        if let Some(origin) = origin.filter(own) {
            self.shard.refuse(origin);
        }
    }

    fn refused(&self, refusal: Refusal) -> AckEntry {
        self.broker.metrics.observe_refused(refusal.code);
        Err(refusal)
    }

    /// Hands gathered answers to QUIC, in as many frames as they need.
    async fn answer(
        &self,
        send: &mut SendStream,
        acks: &mut Vec<AckEntry>,
        oldest_read_at: Option<u64>,
    ) -> Result<(), Refused> {
        while !acks.is_empty() {
            let frame = Frame::Acks(Acks::take_from(acks));
            let written = send.write_chunk(encode(&frame)).await;
            written.map_err(|error| Refused::new(ErrorCode::ProtocolViolation, error.to_string()))?;
            if let (Frame::Acks(written), true) = (frame, acks.is_empty()) {
                // The room is used again.
                *acks = written.into_entries();
                acks.clear();
            }
        }
        if let Some(read_at) = oldest_read_at {
            self.broker
                .metrics
                .observe_ack(self.broker.clock.now().0.saturating_sub(read_at));
        }
        Ok(())
    }

    /// The client sends no more: the last answers go out.
    async fn finish(&self, send: &mut SendStream, mut acks: Vec<AckEntry>) -> Result<(), Refused> {
        self.answers.take(&mut acks);
        if acks.is_empty() {
            Ok(())
        } else {
            self.answer(send, &mut acks, None).await
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shard.leave_publisher(self.id);
    }
}

fn late() -> Refused {
    Refused::new(ErrorCode::Overloaded, "a batch was not complete in time")
}

fn too_slow() -> Refused {
    Refused::new(
        ErrorCode::Overloaded,
        "a batch came too slowly while others waited for its memory",
    )
}

/// Whether a batch of which so many bytes came in so much time is given up when others wait.
fn is_below_the_floor(age: Duration, bytes: usize) -> bool {
    let owed = age.saturating_sub(BATCH_GRACE).as_secs_f64() * BATCH_FLOOR as f64;
    (bytes as f64) < owed
}

fn stopping() -> Refused {
    Refused::new(ErrorCode::ShuttingDown, "the broker stops")
}

/// The largest batch for publishers of a stream: a record of the largest size fits, and so does its ring.
fn max_batch_bytes(broker: &Broker, stream: &Stream) -> usize {
    let usual = USUAL_BATCH_BYTES.max(broker.max_record_bytes + HEADER_LEN + (64 << 10));
    let ring = stream.spec().ring_bytes.saturating_sub(BATCH_OVERHEAD);
    let permit = broker.budget.max_batch_bytes();
    usual
        .min(MAX_BATCH_BYTES)
        .min(usize::try_from(ring.min(permit)).unwrap_or(usize::MAX))
}

/// What a publisher is told about a batch that cannot be taken.
fn refusal(error: BatchError) -> Refusal {
    let detail = match error {
        BatchError::Record {
            error: RecordError::TooLarge { limit },
            ..
        } => limit as u64,
        BatchError::Magic
        | BatchError::Version(_)
        | BatchError::Attributes(_)
        | BatchError::Codec(_)
        | BatchError::Length
        | BatchError::Count
        | BatchError::PayloadChecksum
        | BatchError::HeaderChecksum
        | BatchError::Record { .. } => 0,
    };
    Refusal {
        code: error.code(),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_does_not_come_is_given_up_when_others_need_its_memory() {
        let seconds = Duration::from_secs;
        assert!(!is_below_the_floor(seconds(1), 0), "a time of grace");
        assert!(is_below_the_floor(seconds(2), (128 << 10) - 1));
        assert!(!is_below_the_floor(seconds(2), 128 << 10));
    }
}
