//! The record batch: its header in two parts, its checksums, and the two states in which a program meets one.
//! [`IncomingBatch`] is checked and waits for the leader's stamp; [`Batch`] is stamped, immutable and shared.

use bytes::{Bytes, BytesMut};

use crate::error::ErrorCode;
use crate::ids::{Incarnation, Nanos, Offset, ProducerEpoch, ProducerId, Sequence, ShardId, Term};
use crate::limits::{MAX_BATCH_BYTES, MAX_BATCH_RECORDS};
use crate::record::{RecordCursor, RecordError, Records};

/// Length of a batch's header in bytes; the records follow.
pub const HEADER_LEN: usize = at::RECORDS;

const MAGIC: [u8; 4] = *b"FLXB";
/// 0 until the format is frozen.
const BATCH_VERSION: u8 = 0;
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

/// Why bytes are not a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes do not begin as a batch does.
    #[error("not a batch: the first four bytes are not its mark")]
    Magic,
    /// The version is another.
    #[error("batch version {0} is not spoken here, only {BATCH_VERSION}")]
    Version(u8),
    /// The attributes hold bits that must be understood and are not.
    #[error("batch attributes {0:#06x} hold bits that must be understood and are not")]
    Attributes(u16),
    /// The codec is unknown.
    #[error("codec {0} is not known")]
    Codec(u8),
    /// The length is not what the header says, or beyond the limits.
    #[error("the batch's length does not agree with its header, or is beyond the limit")]
    Length,
    /// The counts contradict each other or the limits.
    #[error("the batch's counts contradict each other or the limits")]
    Count,
    /// The payload checksum does not match: the bytes were damaged.
    #[error("the batch's payload checksum does not match")]
    PayloadChecksum,
    /// The header checksum does not match, or the batch has no stamp.
    #[error("the batch's header checksum does not match")]
    HeaderChecksum,
    /// A record is malformed.
    #[error("record {index} of the batch: {error}")]
    Record {
        /// Which record, from 0.
        index: u32,
        /// What is wrong with it.
        error: RecordError,
    },
}

impl BatchError {
    /// What a publisher is told.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Codec(_) => ErrorCode::UnsupportedCodec,
            Self::Record {
                error: RecordError::TooLarge { .. },
                ..
            } => ErrorCode::RecordTooLarge,
            Self::Magic
            | Self::Version(_)
            | Self::Attributes(_)
            | Self::Length
            | Self::Count
            | Self::PayloadChecksum
            | Self::HeaderChecksum
            | Self::Record { .. } => ErrorCode::InvalidBatch,
        }
    }
}

/// A batch from a producer: checked, not yet stamped.
#[derive(Debug)]
pub struct IncomingBatch {
    bytes: BytesMut,
    header: BatchHeader,
}

impl IncomingBatch {
    /// Checks everything that a broker answers for: header, lengths, payload checksum, and that each record can be
    /// read and has at most `max_record_bytes` (see [`Record::size`](crate::Record::size)). A producer's batch is dense.
    pub fn check(bytes: BytesMut, max_record_bytes: usize) -> Result<Self, BatchError> {
        let header = read_header(&bytes)?;
        if header.control || !header.dense {
            return Err(BatchError::Attributes(read_u16(&bytes, at::ATTRIBUTES)));
        }
        check_payload(&bytes)?;
        check_records(&bytes, &header, max_record_bytes)?;
        Ok(Self { bytes, header })
    }

    /// The producer's part of the header.
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Length in bytes, header included.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a batch has its header, so it is never empty"
    )]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Gives the batch its place. Nothing of the producer's part or the records changes.
    pub fn stamp(mut self, stamp: &Stamp) -> Batch {
        write_stamp(&mut self.bytes, stamp);
        Batch {
            bytes: self.bytes.freeze(),
        }
    }
}

/// A stamped batch. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    bytes: Bytes,
}

impl Batch {
    /// Checks header, both checksums and the records' bounds as far as the header tells them.
    pub fn check(bytes: Bytes) -> Result<Self, BatchError> {
        let header = read_header(&bytes)?;
        check_payload(&bytes)?;
        if usize::from(read_u16(&bytes, at::HEADER_LEN)) != HEADER_LEN
            || read_u32(&bytes, at::HEADER_CHECKSUM) != header_checksum(&bytes)
        {
            return Err(BatchError::HeaderChecksum);
        }
        if read_u64(&bytes, at::BASE_OFFSET)
            .checked_add(header.offsets())
            .is_none()
        {
            return Err(BatchError::Count);
        }
        Ok(Self { bytes })
    }

    /// The bytes as they travel and are stored.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes as they travel and are stored.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Length in bytes, header included.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a batch has its header, so it is never empty"
    )]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The producer's part of the header.
    pub fn header(&self) -> BatchHeader {
        decode_header(&self.bytes)
    }

    /// The leader's part of the header.
    pub fn stamp(&self) -> Stamp {
        Stamp {
            incarnation: Incarnation(read_u128(&self.bytes, at::INCARNATION)),
            shard: ShardId(read_u32(&self.bytes, at::SHARD)),
            term: Term(read_u64(&self.bytes, at::TERM)),
            previous_term: Term(read_u64(&self.bytes, at::PREVIOUS_TERM)),
            base_offset: self.base_offset(),
            append_time: self.append_time(),
            synced: Offset(read_u64(&self.bytes, at::SYNCED)),
        }
    }

    /// The offset of the first record.
    pub fn base_offset(&self) -> Offset {
        Offset(read_u64(&self.bytes, at::BASE_OFFSET))
    }

    /// The offset behind the last one that the batch takes.
    pub fn next_offset(&self) -> Offset {
        self.base_offset()
            .plus(u64::from(read_u32(&self.bytes, at::LAST_OFFSET_DELTA)) + 1)
    }

    /// When the leader took the batch.
    pub fn append_time(&self) -> Nanos {
        Nanos(read_u64(&self.bytes, at::APPEND_TIME))
    }

    /// How many records there are.
    pub fn record_count(&self) -> u32 {
        read_u32(&self.bytes, at::RECORD_COUNT)
    }

    /// Whether the records are the broker's own, not for subscribers.
    pub fn is_control(&self) -> bool {
        read_u16(&self.bytes, at::ATTRIBUTES) & attribute::CONTROL != 0
    }

    /// The records, borrowed from the batch. Nothing is allocated.
    pub fn records(&self) -> Records<'_> {
        Records::new(self)
    }

    /// The bytes of the records.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..]
    }
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

fn write_stamp(bytes: &mut [u8], stamp: &Stamp) {
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
fn read_header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
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
fn decode_header(bytes: &[u8]) -> BatchHeader {
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

fn check_payload(bytes: &[u8]) -> Result<(), BatchError> {
    if read_u32(bytes, at::PAYLOAD_CHECKSUM) == payload_checksum(bytes) {
        Ok(())
    } else {
        Err(BatchError::PayloadChecksum)
    }
}

fn check_records(bytes: &[u8], header: &BatchHeader, max_record_bytes: usize) -> Result<(), BatchError> {
    let payload = &bytes[HEADER_LEN..];
    let mut cursor = RecordCursor::new(header);
    loop {
        let index = cursor.index();
        let Some(record) = cursor.read(payload) else { break };
        let record = record.map_err(|error| BatchError::Record { index, error })?;
        if record.size() > max_record_bytes {
            let error = RecordError::TooLarge {
                limit: max_record_bytes,
            };
            return Err(BatchError::Record { index, error });
        }
        if record.timestamp > header.max_timestamp {
            return Err(BatchError::Count);
        }
    }
    if cursor.is_at_end_of(payload) {
        Ok(())
    } else {
        Err(BatchError::Length)
    }
}

/// Covers the producer's part up to the checksum, and the records.
fn payload_checksum(bytes: &[u8]) -> u32 {
    let head = crc32c::crc32c_append(PAYLOAD_SEED, &bytes[..at::PAYLOAD_CHECKSUM]);
    crc32c::crc32c_append(head, &bytes[at::RECORDS..])
}

/// Covers the payload checksum and the leader's part, which lie side by side.
fn header_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(HEADER_SEED, &bytes[at::PAYLOAD_CHECKSUM..at::HEADER_CHECKSUM])
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
