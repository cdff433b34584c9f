//! From records to the bytes that are sent: one buffer, filled once, sealed once.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{MAX_VARINT_BYTES, varint_len, write_varint, zigzag};
use crate::frame::{FRAME_HEAD_LEN, FrameHead, FrameKind};
use crate::header::{BatchHeader, Codec, HEADER_LEN, Origin, write_header};
use crate::ids::Nanos;
use crate::limits::{
    MAX_BATCH_BYTES, MAX_BATCH_RECORDS, MAX_HEADER_NAME_BYTES, MAX_KEY_BYTES, MAX_RECORD_HEADERS,
};
use crate::record::{DELETES, HAS_HEADERS, HAS_KEY, Header, LENGTH_SHIFT};

/// What stands before the records in the buffer: the publish frame's head and the batch's header.
const PREFIX_LEN: usize = FRAME_HEAD_LEN + HEADER_LEN;

/// An open batch. Records are encoded straight into the buffer that is sent, behind room for the frame's head and the
/// batch's header. A record that is refused leaves no trace.
#[derive(Debug)]
pub struct BatchBuilder {
    buffer: BytesMut,
    /// Longest batch in bytes, header included.
    limit: usize,
    records: u32,
    first_timestamp: Nanos,
    max_timestamp: Nanos,
}

/// Why a record was not taken into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// There is no room left in this batch; the next one may take it.
    #[error("the batch is full")]
    Full,
    /// It fits no batch: it alone is larger than the batch limit.
    #[error("the record needs {bytes} bytes, a batch takes {limit}")]
    TooLarge {
        /// What the record needs in bytes.
        bytes: usize,
        /// What a batch takes in bytes of records.
        limit: usize,
    },
    /// Its key is too long.
    #[error("a key has at most {MAX_KEY_BYTES} bytes")]
    Key,
    /// It has too many headers.
    #[error("a record has at most {MAX_RECORD_HEADERS} headers")]
    HeaderCount,
    /// A header's name is empty or too long.
    #[error("a header's name has 1 to {MAX_HEADER_NAME_BYTES} bytes")]
    HeaderName,
}

impl BatchBuilder {
    /// An open batch of at most `limit` bytes, header included (never more than [`MAX_BATCH_BYTES`]), in a buffer of
    /// the caller's, whose contents are dropped.
    pub fn new(mut buffer: BytesMut, limit: usize) -> Self {
        buffer.clear();
        buffer.put_bytes(0, PREFIX_LEN);
        let limit = limit.clamp(HEADER_LEN, MAX_BATCH_BYTES);
        Self {
            buffer,
            limit,
            records: 0,
            first_timestamp: Nanos(0),
            max_timestamp: Nanos(0),
        }
    }

    /// Appends a record and returns its index in the batch. `headers` is walked twice: once to check and measure.
    pub fn push<'a>(
        &mut self,
        timestamp: Nanos,
        key: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = Header<'a>> + Clone,
        value: &[u8],
    ) -> Result<u32, PushError> {
        self.put_record(timestamp, key, headers, Some(value))
    }

    /// Appends a record without a value, which deletes its key, and returns its index in the batch.
    pub fn push_deletion<'a>(
        &mut self,
        timestamp: Nanos,
        key: &[u8],
        headers: impl ExactSizeIterator<Item = Header<'a>> + Clone,
    ) -> Result<u32, PushError> {
        self.put_record(timestamp, Some(key), headers, None)
    }

    fn put_record<'a>(
        &mut self,
        timestamp: Nanos,
        key: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = Header<'a>> + Clone,
        value: Option<&[u8]>,
    ) -> Result<u32, PushError> {
        let deletes = if value.is_none() { DELETES } else { 0 };
        let value = value.unwrap_or_default();
        let first = if self.records == 0 {
            timestamp
        } else {
            self.first_timestamp
        };
        let mut head = Head::new();
        #[expect(
            clippy::cast_possible_wrap,
            reason = "differences wrap and are added back wrapping"
        )]
        head.put(zigzag(timestamp.0.wrapping_sub(first.0) as i64));
        let bits = if key.is_some() { HAS_KEY } else { 0 } | if headers.len() > 0 { HAS_HEADERS } else { 0 };
        head.put((value.len() as u64) << LENGTH_SHIFT | bits | deletes);

        let extras = if bits == 0 {
            0
        } else {
            measure_extras(key, headers.clone())?
        };
        self.check_room(head.len + extras + value.len())?;

        // At most one growth for a record, and none where the caller's buffer is large enough.
        self.buffer.reserve(head.len + extras + value.len());
        self.buffer.put_slice(head.bytes());
        if bits != 0 {
            self.put_extras(key, headers);
        }
        self.buffer.put_slice(value);
        self.first_timestamp = first;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.records += 1;
        Ok(self.records - 1)
    }

    /// How many records there are.
    pub const fn records(&self) -> u32 {
        self.records
    }

    /// Whether there is no record yet.
    pub const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Length of the batch in bytes so far, header included.
    pub fn len(&self) -> usize {
        self.buffer.len() - FRAME_HEAD_LEN
    }

    /// Closes the batch: header and checksum are written, the bytes never change again. An empty batch yields `None`.
    pub fn seal(mut self, origin: Origin) -> Option<SealedBatch> {
        if self.records == 0 {
            return None;
        }
        let header = BatchHeader {
            codec: Codec::None,
            control: false,
            dense: true,
            record_count: self.records,
            last_offset_delta: self.records - 1,
            uncompressed_len: (self.buffer.len() - PREFIX_LEN) as u32,
            first_timestamp: self.first_timestamp,
            max_timestamp: self.max_timestamp,
            origin,
        };
        let head = FrameHead {
            kind: FrameKind::Publish,
            length: self.len() as u32,
        };
        self.buffer[..FRAME_HEAD_LEN].copy_from_slice(&head.to_bytes());
        write_header(&mut self.buffer[FRAME_HEAD_LEN..], &header);
        Some(SealedBatch {
            frame: self.buffer.freeze(),
            origin,
            records: self.records,
        })
    }

    fn check_room(&self, bytes: usize) -> Result<(), PushError> {
        let limit = self.limit - HEADER_LEN;
        if bytes > limit {
            return Err(PushError::TooLarge { bytes, limit });
        }
        if self.records == MAX_BATCH_RECORDS || self.len() + bytes > self.limit {
            return Err(PushError::Full);
        }
        Ok(())
    }

    fn put_extras<'a>(&mut self, key: Option<&[u8]>, headers: impl ExactSizeIterator<Item = Header<'a>>) {
        if let Some(key) = key {
            self.put_varint(key.len());
            self.buffer.put_slice(key);
        }
        if headers.len() > 0 {
            self.put_varint(headers.len());
        }
        for header in headers {
            self.put_varint(header.name.len());
            self.buffer.put_slice(header.name.as_bytes());
            self.put_varint(header.value.len());
            self.buffer.put_slice(header.value);
        }
    }

    fn put_varint(&mut self, number: usize) {
        let mut bytes = [0; MAX_VARINT_BYTES];
        let length = write_varint(&mut bytes, number as u64);
        self.buffer.put_slice(&bytes[..length]);
    }
}

/// The numbers in front of a record, put together on the stack so that they are copied at once.
struct Head {
    bytes: [u8; 2 * MAX_VARINT_BYTES],
    len: usize,
}

impl Head {
    const fn new() -> Self {
        Self {
            bytes: [0; 2 * MAX_VARINT_BYTES],
            len: 0,
        }
    }

    fn put(&mut self, number: u64) {
        self.len += write_varint(&mut self.bytes[self.len..], number);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What key and headers take in bytes, or why they are refused.
fn measure_extras<'a>(
    key: Option<&[u8]>,
    headers: impl ExactSizeIterator<Item = Header<'a>>,
) -> Result<usize, PushError> {
    let prefixed = |bytes: &[u8]| varint_len(bytes.len() as u64) + bytes.len();
    if key.is_some_and(|key| key.len() > MAX_KEY_BYTES) {
        return Err(PushError::Key);
    }
    if headers.len() > MAX_RECORD_HEADERS {
        return Err(PushError::HeaderCount);
    }
    let mut bytes = key.map_or(0, prefixed) + usize::from(headers.len() > 0);
    for header in headers {
        if header.name.is_empty() || header.name.len() > MAX_HEADER_NAME_BYTES {
            return Err(PushError::HeaderName);
        }
        bytes += prefixed(header.name.as_bytes()) + prefixed(header.value);
    }
    Ok(bytes)
}

/// A closed batch inside its publish frame. Sending it again is sending the same bytes. Cloning shares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedBatch {
    frame: Bytes,
    origin: Origin,
    records: u32,
}

impl SealedBatch {
    /// The whole publish frame, head and batch, as it is sent.
    pub const fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// The batch alone.
    pub fn batch(&self) -> Bytes {
        self.frame.slice(FRAME_HEAD_LEN..)
    }

    /// Who made it, and where it stands in that producer's order.
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// How many records it holds.
    pub const fn records(&self) -> u32 {
        self.records
    }
}
