//! The record batch in the two states in which a program meets one: [`IncomingBatch`] is checked and waits for the leader's
//! stamp; [`Batch`] is stamped, immutable and shared.

use bytes::{Bytes, BytesMut};

use crate::error::ErrorCode;
use crate::header::{
    BATCH_VERSION, BatchHeader, HEADER_LEN, Stamp, append_time, attributes, base_offset, check_payload,
    check_stamp, decode_header, decode_stamp, is_control, last_offset_delta, read_header, record_count,
    write_stamp,
};
use crate::ids::{Nanos, Offset};
use crate::record::{RecordCursor, RecordError, Records};

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
            return Err(BatchError::Attributes(attributes(&bytes)));
        }
        check_payload(&bytes)?;
        check_records(&bytes, &header, max_record_bytes)?;
        Ok(Self { bytes, header })
    }

    /// Takes a batch whose records and payload checksum somebody else answers for: only the header is looked at.
    pub fn trust(bytes: BytesMut) -> Result<Self, BatchError> {
        let header = read_header(&bytes)?;
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
        read_header(&bytes)?;
        check_payload(&bytes)?;
        check_stamp(&bytes)?;
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
        decode_stamp(&self.bytes)
    }

    /// The offset of the first record.
    pub fn base_offset(&self) -> Offset {
        base_offset(&self.bytes)
    }

    /// The offset behind the last one that the batch takes.
    pub fn next_offset(&self) -> Offset {
        self.base_offset()
            .plus(u64::from(last_offset_delta(&self.bytes)) + 1)
    }

    /// When the leader took the batch.
    pub fn append_time(&self) -> Nanos {
        append_time(&self.bytes)
    }

    /// How many records there are.
    pub fn record_count(&self) -> u32 {
        record_count(&self.bytes)
    }

    /// Whether the records are the broker's own, not for subscribers.
    pub fn is_control(&self) -> bool {
        is_control(&self.bytes)
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
