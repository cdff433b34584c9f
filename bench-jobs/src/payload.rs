//! What a benchmark record carries: a header that lets every delivery be verified and timed, then a pattern that both ends
//! know.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | CRC32C of the rest of the header |
//! | 4..8 | run: tells this run's records from those of another publisher on the stream |
//! | 8..12 | publisher number |
//! | 12..16 | how late the record left, in ns after its intended time; 0 in a closed loop, where the two are one |
//! | 16..24 | sequence of the record for its publisher, from 0 |
//! | 24..32 | intended send time, in ns of the clock that the ends share |
//!
//! All fields are little-endian. The header is part of the value: a payload of 256 bytes is 32 bytes of header and
//! 224 of the pattern, and a payload of 0 is the header alone. The pattern is random, made from the run's number, and
//! another one for each of the values that follow one another, so every byte of a value is known before it comes and is
//! compared: that finds what a checksum would find, and costs a fraction of it.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Bytes of the header, and so the least length of a value.
pub(crate) const HEADER_BYTES: usize = 32;

/// Bytes of the patterns of all values together: they stay in a processor's cache beside what is measured.
const PATTERN_BYTES: usize = 128 << 10;

/// Least number of patterns: neighbours differ.
const LEAST_PATTERNS: usize = 2;

/// What a header says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    /// Which run published it.
    pub(crate) run: u32,
    /// Which publisher of the run.
    pub(crate) publisher: u32,
    /// The publisher's own count, from 0.
    pub(crate) sequence: u64,
    /// When the record was meant to leave, in ns of the process's clock.
    pub(crate) intended_ns: u64,
    /// How much later than intended it left, in ns.
    pub(crate) late_ns: u32,
}

/// Why a value is not one of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BadPayload {
    /// It has another length, or its header or pattern were changed on the way.
    Damaged,
    /// It is whole as far as can be told, and of another run.
    Foreign,
}

/// What the values of a run look like but for their headers.
#[derive(Debug)]
pub(crate) struct Pattern {
    run: u32,
    length: usize,
    /// Values one behind the other; what stands in the places of their headers means nothing.
    values: Vec<u8>,
}

/// Writes the values of one publisher, one after the other, each in the place of an earlier one of the same pattern: as with
/// a program that has its values already, none is copied before it is sent.
pub(crate) struct Values {
    run: u32,
    publisher: u32,
    length: usize,
    values: Vec<u8>,
}

impl Pattern {
    /// The pattern of a run's values of `length` bytes (at least [`HEADER_BYTES`]), divided among so many publishers. It
    /// is the same in every process.
    pub(crate) fn new(run: u32, length: usize, publishers: usize) -> Arc<Self> {
        let patterns = (PATTERN_BYTES / (length * publishers)).max(LEAST_PATTERNS);
        let mut values = vec![0; length * patterns];
        StdRng::seed_from_u64(run.into()).fill_bytes(&mut values);
        Arc::new(Self { run, length, values })
    }

    /// A publisher's values.
    pub(crate) fn values(&self, publisher: u32) -> Values {
        Values {
            run: self.run,
            publisher,
            length: self.length,
            values: self.values.clone(),
        }
    }

    /// Reads a value's stamp and checks each of its bytes.
    pub(crate) fn read(&self, value: &[u8]) -> Result<Stamp, BadPayload> {
        let (header, body) = value
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(BadPayload::Damaged)?;
        if crc32c::crc32c(&header[4..]) != u32_at(header, 0) {
            return Err(BadPayload::Damaged);
        }
        let stamp = Stamp {
            run: u32_at(header, 4),
            publisher: u32_at(header, 8),
            late_ns: u32_at(header, 12),
            sequence: u64_at(header, 16),
            intended_ns: u64_at(header, 24),
        };
        if stamp.run != self.run {
            return Err(BadPayload::Foreign);
        }
        let place = place(&self.values, self.length, stamp.sequence);
        if self.values.get(place).map(|known| &known[HEADER_BYTES..]) == Some(body) {
            Ok(stamp)
        } else {
            Err(BadPayload::Damaged)
        }
    }
}

impl Values {
    /// The value of this sequence.
    pub(crate) fn write(&mut self, sequence: u64, intended_ns: u64) -> &[u8] {
        let place = place(&self.values, self.length, sequence);
        let value = &mut self.values[place];
        value[4..8].copy_from_slice(&self.run.to_le_bytes());
        value[8..12].copy_from_slice(&self.publisher.to_le_bytes());
        value[12..16].fill(0);
        value[16..24].copy_from_slice(&sequence.to_le_bytes());
        value[24..32].copy_from_slice(&intended_ns.to_le_bytes());
        let checksum = crc32c::crc32c(&value[4..HEADER_BYTES]);
        value[..4].copy_from_slice(&checksum.to_le_bytes());
        value
    }
}

/// Where the value of a sequence, or its pattern, stands.
fn place(values: &[u8], length: usize, sequence: u64) -> std::ops::Range<usize> {
    let patterns = (values.len() / length) as u64;
    let begin = (sequence % patterns) as usize * length;
    begin..begin + length
}

fn u32_at(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&header[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQUENCE: u64 = 1 << 40;

    const STAMP: Stamp = Stamp {
        run: 7,
        publisher: 3,
        sequence: SEQUENCE,
        intended_ns: 123_456_789,
        late_ns: 0,
    };

    #[test]
    fn a_stamp_survives_at_every_length() {
        for length in [HEADER_BYTES, HEADER_BYTES + 1, 256, 4096, (1 << 20) - 1024] {
            for publishers in [1, 64] {
                let mut values = Pattern::new(7, length, publishers).values(3);
                let value = values.write(SEQUENCE, STAMP.intended_ns);
                assert_eq!(value.len(), length);
                // Another process makes its own.
                assert_eq!(Pattern::new(7, length, publishers).read(value), Ok(STAMP));
            }
        }
    }

    #[test]
    fn any_changed_byte_and_any_other_length_is_found() {
        let pattern = Pattern::new(7, 100, 1);
        let mut value = pattern.values(3).write(SEQUENCE, 5).to_vec();
        for at in 0..value.len() {
            value[at] ^= 1;
            assert_eq!(pattern.read(&value), Err(BadPayload::Damaged), "byte {at}");
            value[at] ^= 1;
        }
        for length in [0, 31, 99] {
            assert_eq!(pattern.read(&value[..length]), Err(BadPayload::Damaged));
        }
        value.push(0);
        assert_eq!(pattern.read(&value), Err(BadPayload::Damaged));
    }

    #[test]
    fn another_run_is_told_apart() {
        let value = Pattern::new(8, 100, 1).values(3).write(0, 5).to_vec();
        assert_eq!(Pattern::new(7, 100, 1).read(&value), Err(BadPayload::Foreign));
    }

    #[test]
    fn neighbours_differ() {
        for length in [256, 1 << 20] {
            let mut values = Pattern::new(7, length, 1).values(0);
            let one = values.write(SEQUENCE, 0).to_vec();
            assert_ne!(one[HEADER_BYTES..], values.write(SEQUENCE + 1, 0)[HEADER_BYTES..]);
        }
    }
}
