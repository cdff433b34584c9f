//! Reading and writing the fields of frames: little-endian numbers, varints, short texts. Nothing here panics on
//! foreign bytes or allocates before it has checked a length.

use alloc::string::String;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::frame::DecodeError;
use crate::limits::MAX_TEXT_BYTES;
use crate::name::StreamName;

/// Takes fields from the front of a frame's body. What is left at the end belongs to newer versions and is ignored.
pub(crate) struct Fields(Bytes);

macro_rules! take_number {
    ($($name:ident -> $type:ty),+) => {
        $(pub(crate) fn $name(&mut self, field: &'static str) -> Result<$type, DecodeError> {
            let (bytes, _) = self.0.split_first_chunk().ok_or(DecodeError::Truncated { field })?;
            let number = <$type>::from_le_bytes(*bytes);
            self.0.advance(size_of::<$type>());
            Ok(number)
        })+
    };
}

impl Fields {
    pub(crate) fn new(body: Bytes) -> Self {
        Self(body)
    }

    take_number!(u8 -> u8, u16 -> u16, u32 -> u32, u64 -> u64, u128 -> u128);

    /// A `u16` length and that many bytes, at most `limit`.
    pub(crate) fn bytes(&mut self, field: &'static str, limit: usize) -> Result<Bytes, DecodeError> {
        let length = usize::from(self.u16(field)?);
        if length > limit {
            return Err(DecodeError::TooLong {
                field,
                bytes: length,
                limit,
            });
        }
        self.raw(field, length)
    }

    /// `length` bytes.
    pub(crate) fn raw(&mut self, field: &'static str, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.0.len() {
            return Err(DecodeError::Truncated { field });
        }
        Ok(self.0.split_to(length))
    }

    /// A text of at most [`MAX_TEXT_BYTES`].
    pub(crate) fn text(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let bytes = self.bytes(field, MAX_TEXT_BYTES)?;
        core::str::from_utf8(&bytes)
            .map(String::from)
            .map_err(|_| DecodeError::NotUtf8 { field })
    }

    pub(crate) fn stream_name(&mut self) -> Result<StreamName, DecodeError> {
        let name = self.text("stream name")?;
        Ok(StreamName::new(&name)?)
    }

    /// A byte that says whether an offset-like number follows in use; the number is always there.
    pub(crate) fn optional_u64(&mut self, field: &'static str) -> Result<Option<u64>, DecodeError> {
        let present = self.u8(field)?;
        let number = self.u64(field)?;
        match present {
            0 => Ok(None),
            1 => Ok(Some(number)),
            _ => Err(DecodeError::Value { field }),
        }
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> Bytes {
        self.0
    }
}

/// Writes a `u16` length and the bytes; what is over `limit` is cut off (a peer would refuse it).
pub(crate) fn put_bytes(out: &mut BytesMut, bytes: &[u8], limit: usize) {
    let kept = &bytes[..bytes.len().min(limit).min(usize::from(u16::MAX))];
    #[expect(
        clippy::cast_possible_truncation,
        reason = "cut to what a u16 holds in the line above"
    )]
    out.put_u16_le(kept.len() as u16);
    out.put_slice(kept);
}

/// Writes a text, cut at a character's edge to [`MAX_TEXT_BYTES`].
pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    put_bytes(
        out,
        &text.as_bytes()[..text.floor_char_boundary(MAX_TEXT_BYTES)],
        MAX_TEXT_BYTES,
    );
}

/// Writes what [`Fields::optional_u64`] reads.
pub(crate) fn put_optional_u64(out: &mut BytesMut, number: Option<u64>) {
    out.put_u8(u8::from(number.is_some()));
    out.put_u64_le(number.unwrap_or(0));
}

/// Longest varint of a `u64` in bytes: 64 bits, 7 in each.
pub(crate) const MAX_VARINT_BYTES: usize = 10;

/// Writes `number` to the front of `out` in groups of 7 bits, lowest first, the top bit set in all but the last byte.
/// Returns how many bytes it took. `out` must hold [`MAX_VARINT_BYTES`].
pub(crate) fn write_varint(out: &mut [u8], mut number: u64) -> usize {
    let mut at = 0;
    while number >= 0x80 {
        out[at] = (number & 0x7f) as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    out[at] = number as u8;
    at + 1
}

/// How many bytes [`write_varint`] takes.
pub(crate) const fn varint_len(number: u64) -> usize {
    (63 - (number | 1).leading_zeros() as usize) / 7 + 1
}

/// Reads a varint at `at` and moves `at` behind it. `None` when the bytes end or the number has more than 64 bits.
pub(crate) fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0_u64;
    for group in 0..MAX_VARINT_BYTES {
        let byte = *bytes.get(*at + group)?;
        let bits = u64::from(byte & 0x7f);
        if group == MAX_VARINT_BYTES - 1 && bits > 1 {
            return None;
        }
        number |= bits << (7 * group);
        if byte < 0x80 {
            *at += group + 1;
            return Some(number);
        }
    }
    None
}

/// Folds a signed number so that small ones of either sign are small: 0, -1, 1, -2 become 0, 1, 2, 3.
pub(crate) const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Undoes [`zigzag`].
pub(crate) const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_come_back(number: u64, shift in 0_u32..64) {
            let number = number >> shift;
            let mut bytes = [0; MAX_VARINT_BYTES];
            let length = write_varint(&mut bytes, number);
            prop_assert_eq!(length, varint_len(number));
            let mut at = 0;
            prop_assert_eq!(read_varint(&bytes[..length], &mut at), Some(number));
            prop_assert_eq!(at, length);
            prop_assert_eq!(read_varint(&bytes[..length - 1], &mut 0), None);
        }

        #[test]
        fn zigzag_comes_back(number: i64) {
            prop_assert_eq!(unzigzag(zigzag(number)), number);
        }
    }

    #[test]
    fn varints_of_more_than_64_bits_are_refused() {
        assert_eq!(read_varint(&[0xff; 11], &mut 0), None);
        assert_eq!(
            read_varint(
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
                &mut 0
            ),
            None
        );
        assert_eq!(
            read_varint(
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                &mut 0
            ),
            Some(u64::MAX)
        );
    }
}
