//! The frames of a publisher's stream: opening it, and the answers to its batches. The batches themselves travel in
//! publish frames, whose body is the batch and nothing else.

use alloc::vec::Vec;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::codec::{Fields, put_text};
use crate::error::ErrorCode;
use crate::frame::DecodeError;
use crate::ids::{Incarnation, Offset, ProducerEpoch, ProducerId, ShardId};
use crate::limits::MAX_ACKS_PER_FRAME;
use crate::name::StreamName;

/// Opens a publisher on one shard. Batches may follow without waiting for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPublish {
    /// The stream.
    pub stream: StreamName,
    /// The shard.
    pub shard: ShardId,
    /// Who publishes; every batch on this stream carries the same.
    pub producer: ProducerId,
    /// Its generation; every batch on this stream carries the same.
    pub epoch: ProducerEpoch,
}

impl OpenPublish {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        Ok(Self {
            stream: fields.stream_name()?,
            shard: ShardId(fields.u32("shard")?),
            producer: ProducerId(fields.u128("producer id")?),
            epoch: ProducerEpoch(fields.u32("producer epoch")?),
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        put_text(out, self.stream.as_str());
        out.put_u32_le(self.shard.0);
        out.put_u128_le(self.producer.0);
        out.put_u32_le(self.epoch.0);
    }
}

/// The publisher is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishOpened {
    /// The stream's present life. When it is another than before, what was not acknowledged in the former one is gone
    /// or unknown, and the producer starts again from sequence 0 with a higher epoch.
    pub incarnation: Incarnation,
    /// Largest batch in bytes that the stream takes, header included.
    pub max_batch_bytes: u32,
    /// Largest record in bytes (key, headers and value) that the broker takes.
    pub max_record_bytes: u32,
}

impl PublishOpened {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        Ok(Self {
            incarnation: Incarnation(fields.u128("incarnation")?),
            max_batch_bytes: fields.u32("max batch bytes")?,
            max_record_bytes: fields.u32("max record bytes")?,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u128_le(self.incarnation.0);
        out.put_u32_le(self.max_batch_bytes);
        out.put_u32_le(self.max_record_bytes);
    }
}

/// How safe a stored batch is. A safer kind that this version does not know is read as the safest that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reached {
    /// In the leader's memory.
    Stored,
    /// Synced to the leader's disk.
    Synced,
    /// Synced by the leader and a follower.
    Quorum,
}

/// A batch is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The offset of its first record; the others follow one by one.
    pub base_offset: Offset,
    /// How safe it is.
    pub reached: Reached,
}

/// A batch is not stored, or that is unknown; the code's kind says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker refused the batch: {code} (detail {detail})")]
pub struct Refusal {
    /// Why.
    pub code: ErrorCode,
    /// A number that the code's meaning names, else 0.
    pub detail: u64,
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self { code, detail: 0 }
    }
}

/// The answer to one batch.
pub type AckEntry = Result<Ack, Refusal>;

/// Answers to batches, at most [`MAX_ACKS_PER_FRAME`]: the n-th entry on a stream answers the n-th publish frame on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acks(Vec<AckEntry>);

/// Length of an entry in bytes: code `u16` (0 for an ack), reached `u8`, a zero byte, offset or detail `u64`.
const ENTRY_LEN: usize = 12;

impl Acks {
    /// The first entries, as many as a frame holds; the others stay in `entries`.
    pub fn take_from(entries: &mut Vec<AckEntry>) -> Self {
        let left = if entries.len() > MAX_ACKS_PER_FRAME {
            entries.split_off(MAX_ACKS_PER_FRAME)
        } else {
            Vec::new()
        };
        Self(core::mem::replace(entries, left))
    }

    /// The entries, in the order of the batches that they answer.
    pub fn into_entries(self) -> Vec<AckEntry> {
        self.0
    }

    pub(crate) fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let limit = MAX_ACKS_PER_FRAME * ENTRY_LEN;
        if body.len() > limit {
            return Err(DecodeError::TooLong {
                field: "acks",
                bytes: body.len(),
                limit,
            });
        }
        if !body.len().is_multiple_of(ENTRY_LEN) {
            return Err(DecodeError::Truncated { field: "acks" });
        }
        let mut entries = Vec::with_capacity(body.len() / ENTRY_LEN);
        while body.len() >= ENTRY_LEN {
            entries.push(decode_entry(&mut body)?);
        }
        Ok(Self(entries))
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        for entry in &self.0 {
            let (code, reached, number) = match entry {
                Ok(ack) => (0, reached_to_wire(ack.reached), ack.base_offset.0),
                Err(refusal) => (refusal.code.to_wire(), 0, refusal.detail),
            };
            out.put_u16_le(code);
            out.put_u8(reached);
            out.put_u8(0);
            out.put_u64_le(number);
        }
    }
}

fn decode_entry(body: &mut Bytes) -> Result<AckEntry, DecodeError> {
    let code = body.get_u16_le();
    let reached = body.get_u8();
    body.advance(1);
    let number = body.get_u64_le();
    if code != 0 {
        return Ok(Err(Refusal {
            code: ErrorCode::from_wire(code),
            detail: number,
        }));
    }
    let reached = match reached {
        1 => Reached::Stored,
        2 => Reached::Synced,
        3.. => Reached::Quorum,
        0 => return Err(DecodeError::Value { field: "reached" }),
    };
    Ok(Ok(Ack {
        base_offset: Offset(number),
        reached,
    }))
}

const fn reached_to_wire(reached: Reached) -> u8 {
    match reached {
        Reached::Stored => 1,
        Reached::Synced => 2,
        Reached::Quorum => 3,
    }
}
