//! One record, and the walk over the records of a batch. Records borrow from the batch; nothing is allocated.
//!
//! A record is: its offset delta (left out in a dense batch), its timestamp's difference from the batch's first one
//! (folded so that small negative ones are short), a head that holds the value's length and three bits, then key,
//! headers and value. Without key and headers nothing but the value follows the head.

use crate::batch::Batch;
use crate::codec::{read_varint, unzigzag};
use crate::header::BatchHeader;
use crate::ids::{Nanos, Offset};
use crate::limits::{MAX_HEADER_NAME_BYTES, MAX_KEY_BYTES, MAX_RECORD_HEADERS};

/// Bit of a record's head: a key follows.
pub(crate) const HAS_KEY: u64 = 1;
/// Bit of a record's head: headers follow.
pub(crate) const HAS_HEADERS: u64 = 2;
/// Bit of a record's head: there is no value, the record deletes its key.
pub(crate) const DELETES: u64 = 4;
/// The value's length stands above the bits.
pub(crate) const LENGTH_SHIFT: u32 = 3;

/// A record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its offset less the batch's base offset.
    pub offset_delta: u32,
    /// When it was made, by the producer's clock.
    pub timestamp: Nanos,
    /// What places it in a shard and names it for compaction.
    pub key: Option<&'a [u8]>,
    /// Names and values beside the payload.
    pub headers: Headers<'a>,
    /// The payload.
    pub value: &'a [u8],
    /// There is no value, which is not the same as an empty one: the record deletes its key.
    pub deletes: bool,
    /// Bytes of the names and values of all headers.
    headers_size: usize,
}

impl Record<'_> {
    /// Bytes of key, names and values of headers, and value: what record limits are about.
    pub fn size(&self) -> usize {
        self.key.map_or(0, <[u8]>::len) + self.headers_size + self.value.len()
    }
}

/// A name and a value beside the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Its name, 1 to 255 bytes.
    pub name: &'a str,
    /// Its value.
    pub value: &'a [u8],
}

/// The headers of a record, in the order they were written. Names may repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// `count` headers as they stand in a batch. Ends early where the bytes are not so many.
    pub const fn from_encoded(count: usize, bytes: &'a [u8]) -> Self {
        Self { left: count, bytes }
    }

    /// What [`from_encoded`](Self::from_encoded) takes, for a reader that keeps the batch itself.
    pub const fn encoded(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    /// Headers are checked when their record is read, so the walk ends only at their end.
    fn next(&mut self) -> Option<Header<'a>> {
        if self.left == 0 {
            return None;
        }
        let mut at = 0;
        let header = read_header(self.bytes, &mut at).ok()?;
        self.bytes = &self.bytes[at..];
        self.left -= 1;
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end inside it, or a number in it has more than 64 bits.
    #[error("the bytes end inside the record, or a number in it is too long")]
    Truncated,
    /// Its offset does not follow its predecessor's or lies beyond the batch.
    #[error("its offset is not above its predecessor's, or beyond the batch")]
    Offset,
    /// Its timestamp does not fit 64 bits.
    #[error("its timestamp does not fit 64 bits")]
    Timestamp,
    /// Its key is too long.
    #[error("its key has more than {MAX_KEY_BYTES} bytes")]
    Key,
    /// It deletes a key and names none, or has a value all the same.
    #[error("it deletes a key but names none, or has a value")]
    Deletion,
    /// It has too many headers, or none where it says it has.
    #[error("its headers are none although announced, or more than {MAX_RECORD_HEADERS}")]
    HeaderCount,
    /// A header's name is empty, too long or not UTF-8.
    #[error("a header's name is empty, longer than {MAX_HEADER_NAME_BYTES} bytes or not UTF-8")]
    HeaderName,
    /// It is larger than the receiver takes.
    #[error("it is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
}

/// The records of a batch. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    cursor: RecordCursor,
    payload: &'a [u8],
}

impl<'a> Records<'a> {
    pub(crate) fn new(batch: &'a Batch) -> Self {
        Self {
            cursor: RecordCursor::new(&batch.header()),
            payload: batch.payload(),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.read(self.payload)
    }
}

/// A place in a batch's records that borrows nothing, for readers that own the batch beside it.
#[derive(Clone, Debug)]
pub struct RecordCursor {
    at: usize,
    index: u32,
    count: u32,
    dense: bool,
    first_timestamp: Nanos,
    last_offset_delta: u32,
    /// The lowest offset delta that the next record may have.
    next_delta: u32,
}

impl RecordCursor {
    /// A cursor before the first record of a batch with this header.
    pub const fn new(header: &BatchHeader) -> Self {
        Self {
            at: 0,
            index: 0,
            count: header.record_count,
            dense: header.dense,
            first_timestamp: header.first_timestamp,
            last_offset_delta: header.last_offset_delta,
            next_delta: 0,
        }
    }

    /// The next record of `batch`, which must be the one the cursor was made for. Nothing follows an error.
    pub fn next<'a>(&mut self, batch: &'a Batch) -> Option<Result<Record<'a>, RecordError>> {
        self.read(batch.payload())
    }

    /// How many records have been read.
    pub const fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn read<'a>(&mut self, payload: &'a [u8]) -> Option<Result<Record<'a>, RecordError>> {
        if self.index == self.count {
            return None;
        }
        let record = self.read_record(payload);
        match record {
            Ok(_) => self.index += 1,
            Err(_) => self.count = self.index,
        }
        Some(record)
    }

    pub(crate) fn is_at_end_of(&self, payload: &[u8]) -> bool {
        self.at == payload.len()
    }

    fn read_record<'a>(&mut self, payload: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let mut at = self.at;
        let offset_delta = self.read_offset_delta(payload, &mut at)?;
        let difference = unzigzag(read_varint(payload, &mut at).ok_or(RecordError::Truncated)?);
        let timestamp = self
            .first_timestamp
            .0
            .checked_add_signed(difference)
            .ok_or(RecordError::Timestamp)?;
        let head = read_varint(payload, &mut at).ok_or(RecordError::Truncated)?;
        let deletes = head & DELETES != 0;
        if deletes && (head & HAS_KEY == 0 || head >> LENGTH_SHIFT != 0) {
            return Err(RecordError::Deletion);
        }
        let key = if head & HAS_KEY == 0 {
            None
        } else {
            Some(read_key(payload, &mut at)?)
        };
        let (headers, headers_size) = if head & HAS_HEADERS == 0 {
            (Headers::default(), 0)
        } else {
            read_headers(payload, &mut at)?
        };
        let value = take(payload, &mut at, head >> LENGTH_SHIFT)?;
        self.at = at;
        self.next_delta = offset_delta.saturating_add(1);
        Ok(Record {
            offset_delta,
            timestamp: Nanos(timestamp),
            key,
            headers,
            value,
            deletes,
            headers_size,
        })
    }

    fn read_offset_delta(&self, payload: &[u8], at: &mut usize) -> Result<u32, RecordError> {
        if self.dense {
            return Ok(self.next_delta);
        }
        let delta = read_varint(payload, at).ok_or(RecordError::Truncated)?;
        match u32::try_from(delta) {
            Ok(delta) if delta >= self.next_delta && delta <= self.last_offset_delta => Ok(delta),
            Ok(_) | Err(_) => Err(RecordError::Offset),
        }
    }
}

impl Record<'_> {
    /// The record's offset in a batch with this base offset.
    pub const fn offset(&self, base: Offset) -> Offset {
        base.plus(self.offset_delta as u64)
    }
}

fn read_key<'a>(payload: &'a [u8], at: &mut usize) -> Result<&'a [u8], RecordError> {
    let length = read_varint(payload, at).ok_or(RecordError::Truncated)?;
    if length > MAX_KEY_BYTES as u64 {
        return Err(RecordError::Key);
    }
    take(payload, at, length)
}

/// Walks over the headers once, so that later walks cannot fail. Also returns the bytes of all names and values.
fn read_headers<'a>(payload: &'a [u8], at: &mut usize) -> Result<(Headers<'a>, usize), RecordError> {
    let count = read_varint(payload, at).ok_or(RecordError::Truncated)?;
    if count == 0 || count > MAX_RECORD_HEADERS as u64 {
        return Err(RecordError::HeaderCount);
    }
    let begin = *at;
    let mut size = 0;
    for _ in 0..count {
        let header = read_header(payload, at)?;
        size += header.name.len() + header.value.len();
    }
    let headers = Headers::from_encoded(count as usize, &payload[begin..*at]);
    Ok((headers, size))
}

fn read_header<'a>(payload: &'a [u8], at: &mut usize) -> Result<Header<'a>, RecordError> {
    let length = read_varint(payload, at).ok_or(RecordError::Truncated)?;
    if length == 0 || length > MAX_HEADER_NAME_BYTES as u64 {
        return Err(RecordError::HeaderName);
    }
    let name = core::str::from_utf8(take(payload, at, length)?).map_err(|_| RecordError::HeaderName)?;
    let length = read_varint(payload, at).ok_or(RecordError::Truncated)?;
    Ok(Header {
        name,
        value: take(payload, at, length)?,
    })
}

fn take<'a>(payload: &'a [u8], at: &mut usize, length: u64) -> Result<&'a [u8], RecordError> {
    let rest = payload.get(*at..).ok_or(RecordError::Truncated)?;
    let length = usize::try_from(length).map_err(|_| RecordError::Truncated)?;
    let taken = rest.get(..length).ok_or(RecordError::Truncated)?;
    *at += length;
    Ok(taken)
}
