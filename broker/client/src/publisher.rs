//! Publishing: which shard a record goes to, and waiting for room. What a shard's batches do is the lane's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use felix_wire::{
    BatchBuilder, HEADER_LEN, MAX_BATCH_BYTES, MAX_BATCH_RECORDS, ProducerId, PushError, ShardId, StreamName,
    shard_of_key,
};
use tokio::sync::oneshot;

use crate::ack::Ack;
use crate::client::Client;
use crate::error::{MetadataError, PublishError};
use crate::lane::{Destination, Lane};
use crate::outbox::{Limits, NotTaken};
use crate::record::Record;

/// The open batch leaves at once while fewer bytes of its shard are unacknowledged. On loopback all from 64 to 256 KiB are
/// as good; at 16 KiB 64 senders of single records wait for answers, at 1 MiB batches of one busy sender shrink.
const EAGER_BYTES: usize = 128 << 10;

/// Largest batch that forms by itself, in bytes.
const BATCH_BYTES: usize = 256 << 10;

/// Bytes that one shard of a publisher holds before senders wait.
const BUFFER_BYTES: usize = 8 << 20;

/// Prepares a [`Publisher`].
#[derive(Clone, Debug)]
pub struct PublisherBuilder {
    client: Client,
    stream: String,
    limits: Limits,
}

impl PublisherBuilder {
    pub(crate) fn new(client: Client, stream: &str) -> Self {
        Self {
            client,
            stream: stream.to_owned(),
            limits: Limits {
                batch_bytes: BATCH_BYTES,
                sealed_bytes: MAX_BATCH_BYTES,
                batch_records: MAX_BATCH_RECORDS,
                eager_bytes: EAGER_BYTES,
                buffer_bytes: BUFFER_BYTES,
                // The broker says what it takes when the publisher is opened.
                record_bytes: MAX_BATCH_BYTES - HEADER_LEN,
            },
        }
    }

    /// Most records in a batch that forms by itself (65,536 unless set).
    #[must_use]
    pub fn batch_records(mut self, records: u32) -> Self {
        self.limits.batch_records = records.clamp(1, MAX_BATCH_RECORDS);
        self
    }

    /// Largest batch that forms by itself, in bytes (256 KiB unless set). A larger record travels in a batch of its own.
    #[must_use]
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.limits.batch_bytes = bytes.clamp(HEADER_LEN + 1, MAX_BATCH_BYTES);
        self
    }

    /// Bytes held for each shard before `send` waits (8 MiB unless set).
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.limits.buffer_bytes = bytes.max(1);
        self
    }

    /// Opens the publisher on every shard and waits until the broker has it.
    pub async fn open(self) -> Result<Publisher, PublishError> {
        let stream = StreamName::new(&self.stream)?;
        let metadata = self
            .client
            .metadata(stream.as_str())
            .await
            .map_err(from_metadata)?;
        let producer = ProducerId(rand::random());
        let patience = self.client.delivery_timeout();
        let mut lanes = Vec::with_capacity(metadata.shards as usize);
        for shard in 0..metadata.shards {
            let destination = Destination {
                stream: stream.clone(),
                shard: ShardId(shard),
                producer,
            };
            lanes.push(Arc::new(Lane::new(
                destination,
                self.client.links().clone(),
                self.limits,
                patience,
            )));
        }
        // From here on, dropping the publisher ends the tasks.
        let publisher = Publisher {
            inner: Arc::new(Inner {
                lanes,
                turn: AtomicUsize::new(0),
            }),
        };
        let mut openings = Vec::with_capacity(publisher.inner.lanes.len());
        for lane in &publisher.inner.lanes {
            let (tell, told) = oneshot::channel();
            // Whoever opened may have stopped waiting.
            let task = lane.clone().run(move |opened| drop(tell.send(opened)));
            tokio::spawn(task);
            openings.push(told);
        }
        for opened in openings {
            opened.await.map_err(|_| PublishError::Closed)??;
        }
        Ok(publisher)
    }
}

/// Publishes to one stream. Clones share it. Once all are dropped, what was sent is still delivered.
#[derive(Clone, Debug)]
pub struct Publisher {
    inner: Arc<Inner>,
}

struct Inner {
    lanes: Vec<Arc<Lane>>,
    /// Which shard is next for records without a key.
    turn: AtomicUsize,
}

/// A batch that is filled by hand: it is sent as it is, all or nothing, in one piece. Made by [`Publisher::batch`].
#[derive(Debug)]
pub struct Batch {
    builder: Option<BatchBuilder>,
    shard: ShardId,
    shards: u32,
    /// Largest record that the broker takes, in bytes of key, headers and value.
    record_bytes: usize,
}

/// Why a record was not sent without waiting.
#[derive(Debug, thiserror::Error)]
pub enum TrySendError {
    /// There is no room now; [`Publisher::send`] waits for it.
    #[error("there is no room at the moment")]
    Full,
    /// It cannot be sent.
    #[error(transparent)]
    Failed(#[from] PublishError),
}

impl Publisher {
    /// Sends a record. Waits for room where too much is unacknowledged; the returned future waits for the
    /// acknowledgement. Dropping either future loses nothing that was sent before.
    ///
    /// Records sent one after the other to one shard are stored in that order, unless one of them is refused.
    pub async fn send(&self, record: Record<'_>) -> Result<Ack, PublishError> {
        let lane = self.lane(record.key_bytes())?;
        match lane.try_send(&record) {
            Ok(ack) => Ok(ack),
            Err(NotTaken::Never(error)) => Err(error),
            Err(NotTaken::Full) => lane.when_room(|| lane.try_send(&record)).await,
        }
    }

    /// Sends a record if there is room at once.
    pub fn try_send(&self, record: &Record<'_>) -> Result<Ack, TrySendError> {
        self.lane(record.key_bytes())?
            .try_send(record)
            .map_err(|error| match error {
                NotTaken::Full => TrySendError::Full,
                NotTaken::Never(error) => TrySendError::Failed(error),
            })
    }

    /// An empty batch for the next shard in turn. Records with keys of other shards are refused.
    pub fn batch(&self) -> Batch {
        let lane = self.next_lane();
        let shards = u32::try_from(self.inner.lanes.len()).unwrap_or(u32::MAX);
        let (builder, record_bytes) = lane.map(|lane| lane.builder()).unzip();
        Batch {
            builder,
            shard: lane.map_or(ShardId(0), |lane| lane.shard()),
            shards,
            record_bytes: record_bytes.unwrap_or_default(),
        }
    }

    /// Appends a record to a batch. Where it does not fit, the batch is sent first, which may wait for room, and `batch`
    /// is the next one, for the same shard; the acknowledgement is that of the batch that was sent. When this future is
    /// dropped while it waits, `batch` is as it was.
    pub async fn fill(&self, batch: &mut Batch, record: &Record<'_>) -> Result<Option<Ack>, PublishError> {
        match batch.push(record) {
            Ok(()) => return Ok(None),
            Err(PushBatchError::Full) if !batch.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
        let lane = self.lane_of(batch)?;
        let ack = match lane.try_send_batch(&mut batch.builder) {
            Err(NotTaken::Full) => lane.when_room(|| lane.try_send_batch(&mut batch.builder)).await?,
            Err(NotTaken::Never(error)) => return Err(error),
            Ok(ack) => ack,
        };
        batch.builder = Some(lane.builder().0);
        batch.push(record)?;
        Ok(Some(ack))
    }

    /// Sends a batch. Waits for room; the returned future resolves to where its first record was stored.
    pub async fn send_batch(&self, mut batch: Batch) -> Result<Ack, PublishError> {
        let lane = self.lane_of(&batch)?;
        match lane.try_send_batch(&mut batch.builder) {
            Ok(ack) => Ok(ack),
            Err(NotTaken::Never(error)) => Err(error),
            Err(NotTaken::Full) => lane.when_room(|| lane.try_send_batch(&mut batch.builder)).await,
        }
    }

    /// Waits until everything sent so far has been answered, one way or the other.
    pub async fn flush(&self) -> Result<(), PublishError> {
        for lane in &self.inner.lanes {
            lane.flushed().await?;
        }
        Ok(())
    }

    /// Takes no more records, and waits until everything sent has been answered.
    pub async fn close(self) -> Result<(), PublishError> {
        for lane in &self.inner.lanes {
            lane.close();
        }
        self.flush().await
    }

    fn lane_of(&self, batch: &Batch) -> Result<&Lane, PublishError> {
        let lane = self.inner.lanes.get(batch.shard.0 as usize);
        lane.map(|lane| &**lane).ok_or(PublishError::Closed)
    }

    fn lane(&self, key: Option<&[u8]>) -> Result<&Lane, PublishError> {
        let lanes = &self.inner.lanes;
        let lane = match key {
            Some(key) if lanes.len() > 1 => {
                lanes.get(shard_of_key(key, u32::try_from(lanes.len()).unwrap_or(u32::MAX)).0 as usize)
            }
            Some(_) | None => self.next_lane(),
        };
        lane.map(|lane| &**lane).ok_or(PublishError::Closed)
    }

    /// The counter orders nothing; that two senders pick the same shard would do no harm either.
    fn next_lane(&self) -> Option<&Arc<Lane>> {
        let lanes = &self.inner.lanes;
        let turn = if lanes.len() > 1 {
            self.inner.turn.fetch_add(1, Ordering::Relaxed) % lanes.len()
        } else {
            0
        };
        lanes.get(turn)
    }
}

impl Batch {
    /// Appends a record. One that is refused leaves no trace.
    pub fn push(&mut self, record: &Record<'_>) -> Result<(), PushBatchError> {
        let (bytes, limit) = (record.size(), self.record_bytes);
        if bytes > limit {
            return Err(PushBatchError::RecordTooLarge { bytes, limit });
        }
        if let Some(key) = record.key_bytes() {
            let key_shard = shard_of_key(key, self.shards);
            if key_shard != self.shard {
                let (key_shard, batch_shard) = (key_shard.0, self.shard.0);
                return Err(PushBatchError::OtherShard {
                    key_shard,
                    batch_shard,
                });
            }
        }
        let Some(builder) = &mut self.builder else {
            return Ok(());
        };
        let pushed = record.push_to(builder);
        pushed.map(|_| ()).map_err(|error| match error {
            PushError::Full => PushBatchError::Full,
            PushError::TooLarge { bytes, limit } => PushBatchError::RecordTooLarge { bytes, limit },
            PushError::Key | PushError::HeaderCount | PushError::HeaderName => PushBatchError::Record(error),
        })
    }

    /// Records in it.
    pub fn records(&self) -> u32 {
        self.builder.as_ref().map_or(0, BatchBuilder::records)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records() == 0
    }
}

/// Why a record was not taken into a [`Batch`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum PushBatchError {
    /// It does not fit into what room is left.
    #[error("the batch is full: send it, and put the record into the next one")]
    Full,
    /// It is larger than the broker takes.
    #[error("the record has {bytes} bytes; the broker takes {limit}")]
    RecordTooLarge {
        /// The record's size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// It cannot be encoded.
    #[error(transparent)]
    Record(PushError),
    /// Its key belongs to another shard than the batch.
    #[error(
        "the key belongs to shard {key_shard}, the batch goes to shard {batch_shard}; send the record by itself"
    )]
    OtherShard {
        /// Where the key belongs.
        key_shard: u32,
        /// Where the batch goes.
        batch_shard: u32,
    },
}

impl From<PushBatchError> for PublishError {
    fn from(error: PushBatchError) -> Self {
        match error {
            PushBatchError::RecordTooLarge { bytes, limit } => Self::RecordTooLarge { bytes, limit },
            PushBatchError::Full | PushBatchError::Record(_) | PushBatchError::OtherShard { .. } => {
                Self::Record {
                    reason: error.to_string(),
                }
            }
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("shards", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.close();
        }
    }
}

fn from_metadata(error: MetadataError) -> PublishError {
    match error {
        MetadataError::Name(error) => error.into(),
        MetadataError::Connect(error) => error.into(),
        MetadataError::Refused { code, .. } => PublishError::Refused { code, detail: 0 },
    }
}
