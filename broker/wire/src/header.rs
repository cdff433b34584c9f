//! The header of a batch: where its fields lie, and its two checksums. Everything here works on bytes that begin with a
//! batch; only [`read_header`] takes bytes that may not.

use crate::batch::BatchError;
use crate::ids::{Incarnation, Nanos, Offset, ProducerEpoch, ProducerId, Sequence, ShardId, Term};
use crate::limits::{MAX_BATCH_BYTES, MAX_BATCH_RECORDS};

/// Length of a batch's header in bytes; the records follow.
pub const HEADER_LEN: usize = at::RECORDS;

const MAGIC: [u8; 4] = *b"FLXB";
/// The version of the format, which is frozen.
pub(crate) const BATCH_VERSION: u8 = 1;
/// Start values of the checksums, so that zeros never verify.
const PAYLOAD_SEED: u32 = u32::from_be_bytes(*b"flxp");
const HEADER_SEED: u32 = u32::from_be_bytes(*b"flxh");

/// Where each field begins. All numbers are little-endian.
mod at {
    // Written by the producer, never changed.
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 4;
    pub(super) const ZERO: usize = 5;
    pub(super) const ATTRIBUTES: usize = 6;
    pub(super) const RECORD_COUNT: usize = 8;
    pub(super) const LAST_OFFSET_DELTA: usize = 12;
    pub(super) const STORED_LEN: usize = 16;
    pub(super) const UNCOMPRESSED_LEN: usize = 20;
    pub(super) const FIRST_TIMESTAMP: usize = 24;
    pub(super) const MAX_TIMESTAMP: usize = 32;
    pub(super) const PRODUCER_ID: usize = 40;
    pub(super) const SEQUENCE: usize = 56;
    pub(super) const PRODUCER_EPOCH: usize = 64;
    pub(super) const PAYLOAD_CHECKSUM: usize = 68;
    // Stamped by the leader.
    pub(super) const INCARNATION: usize = 72;
    pub(super) const TERM: usize = 88;
    pub(super) const PREVIOUS_TERM: usize = 96;
    pub(super) const BASE_OFFSET: usize = 104;
    pub(super) const APPEND_TIME: usize = 112;
    pub(super) const SYNCED: usize = 120;
    pub(super) const SHARD: usize = 128;
    pub(super) const HEADER_LEN: usize = 132;
    pub(super) const ZERO_STAMP: usize = 134;
    pub(super) const HEADER_CHECKSUM: usize = 136;
    pub(super) const RECORDS: usize = 140;
}

/// Bits of the attributes. 0 to 2 are the codec; 8 to 15 must be understood, the others may be ignored.
mod attribute {
    pub(super) const CODEC: u16 = 0b111;
    pub(super) const CONTROL: u16 = 1 << 3;
    pub(super) const DENSE: u16 = 1 << 4;
    pub(super) const MUST_UNDERSTAND: u16 = 0xff00;
}

/// How the records are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// As they are.
    #[default]
    None,
}

/// Who made a batch, and where it stands in that producer's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The producer.
    pub producer: ProducerId,
    /// Its generation.
    pub epoch: ProducerEpoch,
    /// The sequence of the batch's first record.
    pub sequence: Sequence,
}

impl Origin {
    /// The origin in bytes that begin with a batch's header, for an answer to a batch that is not taken. `None` where they
    /// begin no batch of this version; nothing else is checked.
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_LEN)?;
        let begins = header[at::MAGIC..at::VERSION] == MAGIC && header[at::VERSION] == BATCH_VERSION;
        begins.then(|| decode_header(header).origin)
    }
}

/// The producer's part of a header, lengths and checksum apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchHeader {
    /// How the records are stored.
    pub codec: Codec,
    /// The records are the broker's own, not for subscribers.
    pub control: bool,
    /// Every offset from the first to the last has its record, so records carry no offset delta.
    pub dense: bool,
    /// How many records there are.
    pub record_count: u32,
    /// The last offset that the batch takes, less its base offset.
    pub last_offset_delta: u32,
    /// Length of the records in bytes when not compressed.
    pub uncompressed_len: u32,
    /// Timestamp of the first record; those of the records are relative to it.
    pub first_timestamp: Nanos,
    /// The highest timestamp in the batch.
    pub max_timestamp: Nanos,
    /// Who made the batch.
    pub origin: Origin,
}

impl BatchHeader {
    /// How many offsets, and how many sequences, the batch takes.
    pub const fn offsets(&self) -> u64 {
        self.last_offset_delta as u64 + 1
    }
}

/// The leader's part of a header: the batch's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The life of the stream that the batch belongs to.
    pub incarnation: Incarnation,
    /// The shard.
    pub shard: ShardId,
    /// The leader's term.
    pub term: Term,
    /// The term of the batch before this one.
    pub previous_term: Term,
    /// The offset of the first record.
    pub base_offset: Offset,
    /// When the leader took the batch. Never goes back within a shard.
    pub append_time: Nanos,
    /// Everything below this offset was known to be synced when the batch was stamped.
    pub synced: Offset,
}

/// Writes a header without a stamp in front of the records and computes the payload checksum. `bytes` begins with
/// [`HEADER_LEN`] bytes of room and holds at most [`MAX_BATCH_BYTES`].
pub(crate) fn write_header(bytes: &mut [u8], header: &BatchHeader) {
    debug_assert!((HEADER_LEN..=MAX_BATCH_BYTES).contains(&bytes.len()));
    let mut attributes = match header.codec {
        Codec::None => 0,
    };
    attributes |= if header.control { attribute::CONTROL } else { 0 };
    attributes |= if header.dense { attribute::DENSE } else { 0 };
    let stored_len = (bytes.len() - HEADER_LEN) as u32;
    bytes[..HEADER_LEN].fill(0);
    put(bytes, at::MAGIC, MAGIC);
    put(bytes, at::VERSION, [BATCH_VERSION]);
    put(bytes, at::ATTRIBUTES, attributes.to_le_bytes());
    put(bytes, at::RECORD_COUNT, header.record_count.to_le_bytes());
    put(
        bytes,
        at::LAST_OFFSET_DELTA,
        header.last_offset_delta.to_le_bytes(),
    );
    put(bytes, at::STORED_LEN, stored_len.to_le_bytes());
    put(bytes, at::UNCOMPRESSED_LEN, header.uncompressed_len.to_le_bytes());
    put(bytes, at::FIRST_TIMESTAMP, header.first_timestamp.0.to_le_bytes());
    put(bytes, at::MAX_TIMESTAMP, header.max_timestamp.0.to_le_bytes());
    put(bytes, at::PRODUCER_ID, header.origin.producer.0.to_le_bytes());
    put(bytes, at::SEQUENCE, header.origin.sequence.0.to_le_bytes());
    put(bytes, at::PRODUCER_EPOCH, header.origin.epoch.0.to_le_bytes());
    let checksum = payload_checksum(bytes);
    put(bytes, at::PAYLOAD_CHECKSUM, checksum.to_le_bytes());
}

/// Writes the leader's part and computes the header checksum.
pub(crate) fn write_stamp(bytes: &mut [u8], stamp: &Stamp) {
    put(bytes, at::INCARNATION, stamp.incarnation.0.to_le_bytes());
    put(bytes, at::TERM, stamp.term.0.to_le_bytes());
    put(bytes, at::PREVIOUS_TERM, stamp.previous_term.0.to_le_bytes());
    put(bytes, at::BASE_OFFSET, stamp.base_offset.0.to_le_bytes());
    put(bytes, at::APPEND_TIME, stamp.append_time.0.to_le_bytes());
    put(bytes, at::SYNCED, stamp.synced.0.to_le_bytes());
    put(bytes, at::SHARD, stamp.shard.0.to_le_bytes());
    put(bytes, at::HEADER_LEN, (HEADER_LEN as u16).to_le_bytes());
    put(bytes, at::ZERO_STAMP, [0; 2]);
    let checksum = header_checksum(bytes);
    put(bytes, at::HEADER_CHECKSUM, checksum.to_le_bytes());
}

/// Decodes the producer's part and checks all that needs no look at the records.
pub(crate) fn read_header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    if bytes.len() < HEADER_LEN || bytes.len() > MAX_BATCH_BYTES {
        return Err(BatchError::Length);
    }
    if bytes[at::MAGIC..at::VERSION] != MAGIC {
        return Err(BatchError::Magic);
    }
    if bytes[at::VERSION] != BATCH_VERSION {
        return Err(BatchError::Version(bytes[at::VERSION]));
    }
    let attributes = read_u16(bytes, at::ATTRIBUTES);
    if attributes & attribute::MUST_UNDERSTAND != 0 || bytes[at::ZERO] != 0 {
        return Err(BatchError::Attributes(attributes));
    }
    if attributes & attribute::CODEC != 0 {
        return Err(BatchError::Codec((attributes & attribute::CODEC) as u8));
    }
    let stored_len = read_u32(bytes, at::STORED_LEN);
    let header = decode_header(bytes);
    if stored_len as usize != bytes.len() - HEADER_LEN || header.uncompressed_len != stored_len {
        return Err(BatchError::Length);
    }
    check_counts(&header)?;
    Ok(header)
}

fn check_counts(header: &BatchHeader) -> Result<(), BatchError> {
    let taken = header.offsets();
    let fits = header.record_count >= 1
        && header.record_count <= MAX_BATCH_RECORDS
        && u64::from(header.record_count) <= taken
        && (!header.dense || u64::from(header.record_count) == taken)
        && header.first_timestamp <= header.max_timestamp;
    if fits { Ok(()) } else { Err(BatchError::Count) }
}

/// Decodes the producer's part of bytes that hold a header.
pub(crate) fn decode_header(bytes: &[u8]) -> BatchHeader {
    let attributes = read_u16(bytes, at::ATTRIBUTES);
    BatchHeader {
        codec: Codec::None,
        control: attributes & attribute::CONTROL != 0,
        dense: attributes & attribute::DENSE != 0,
        record_count: read_u32(bytes, at::RECORD_COUNT),
        last_offset_delta: read_u32(bytes, at::LAST_OFFSET_DELTA),
        uncompressed_len: read_u32(bytes, at::UNCOMPRESSED_LEN),
        first_timestamp: Nanos(read_u64(bytes, at::FIRST_TIMESTAMP)),
        max_timestamp: Nanos(read_u64(bytes, at::MAX_TIMESTAMP)),
        origin: Origin {
            producer: ProducerId(read_u128(bytes, at::PRODUCER_ID)),
            epoch: ProducerEpoch(read_u32(bytes, at::PRODUCER_EPOCH)),
            sequence: Sequence(read_u64(bytes, at::SEQUENCE)),
        },
    }
}

/// Checks the payload checksum.
pub(crate) fn check_payload(bytes: &[u8]) -> Result<(), BatchError> {
    if read_u32(bytes, at::PAYLOAD_CHECKSUM) == payload_checksum(bytes) {
        Ok(())
    } else {
        Err(BatchError::PayloadChecksum)
    }
}

/// Checks that there is a stamp, its checksum, and that the batch ends at an offset.
pub(crate) fn check_stamp(bytes: &[u8]) -> Result<(), BatchError> {
    if usize::from(read_u16(bytes, at::HEADER_LEN)) != HEADER_LEN
        || read_u32(bytes, at::HEADER_CHECKSUM) != header_checksum(bytes)
    {
        return Err(BatchError::HeaderChecksum);
    }
    let offsets = u64::from(last_offset_delta(bytes)) + 1;
    base_offset(bytes)
        .0
        .checked_add(offsets)
        .map(|_| ())
        .ok_or(BatchError::Count)
}

/// Decodes the leader's part.
pub(crate) fn decode_stamp(bytes: &[u8]) -> Stamp {
    Stamp {
        incarnation: Incarnation(read_u128(bytes, at::INCARNATION)),
        shard: ShardId(read_u32(bytes, at::SHARD)),
        term: Term(read_u64(bytes, at::TERM)),
        previous_term: Term(read_u64(bytes, at::PREVIOUS_TERM)),
        base_offset: base_offset(bytes),
        append_time: append_time(bytes),
        synced: Offset(read_u64(bytes, at::SYNCED)),
    }
}

pub(crate) fn base_offset(bytes: &[u8]) -> Offset {
    Offset(read_u64(bytes, at::BASE_OFFSET))
}

pub(crate) fn last_offset_delta(bytes: &[u8]) -> u32 {
    read_u32(bytes, at::LAST_OFFSET_DELTA)
}

pub(crate) fn append_time(bytes: &[u8]) -> Nanos {
    Nanos(read_u64(bytes, at::APPEND_TIME))
}

pub(crate) fn record_count(bytes: &[u8]) -> u32 {
    read_u32(bytes, at::RECORD_COUNT)
}

pub(crate) fn attributes(bytes: &[u8]) -> u16 {
    read_u16(bytes, at::ATTRIBUTES)
}

pub(crate) fn is_control(bytes: &[u8]) -> bool {
    attributes(bytes) & attribute::CONTROL != 0
}

/// Covers the producer's part up to the checksum, and the records.
fn payload_checksum(bytes: &[u8]) -> u32 {
    let head = crc32c::crc32c_append(PAYLOAD_SEED, &bytes[..at::PAYLOAD_CHECKSUM]);
    crc32c::crc32c_append(head, &bytes[at::RECORDS..])
}

/// Covers all of the header before it, so that a header can be believed without a look at the records: a reader of a log
/// learns from it where the next batch begins.
fn header_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(HEADER_SEED, &bytes[..at::HEADER_CHECKSUM])
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

macro_rules! read_number {
    ($($name:ident -> $type:ty),+) => {
        $(fn $name(bytes: &[u8], at: usize) -> $type {
            let mut number = [0; size_of::<$type>()];
            number.copy_from_slice(&bytes[at..at + size_of::<$type>()]);
            <$type>::from_le_bytes(number)
        })+
    };
}

read_number!(read_u16 -> u16, read_u32 -> u32, read_u64 -> u64, read_u128 -> u128);
