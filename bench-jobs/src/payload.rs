//! What a benchmark record carries: a header that lets every delivery be verified and timed, then random bytes.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | CRC32C of everything after it |
//! | 4..8 | run: tells this run's records from those of another publisher on the stream |
//! | 8..12 | publisher number |
//! | 12..16 | how late the record left, in ns after its intended time; 0 in a closed loop, where the two are one |
//! | 16..24 | sequence of the record for its publisher, from 0 |
//! | 24..32 | intended send time, in ns of the process's one monotonic clock |
//!
//! All fields are little-endian. The header is part of the value: a payload of 256 bytes is 32 bytes of header and
//! 224 random ones, and a payload of 0 is the header alone.

/// Bytes of the header, and so the least length of a value.
pub(crate) const HEADER_BYTES: usize = 32;

/// Random bytes that values are cut from, so that no compression on the way could flatter a result.
const POOL_BYTES: usize = 1 << 20;

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
    /// It is shorter than a header.
    Short,
    /// Its checksum does not fit: it was changed on the way.
    Checksum,
}

/// Writes values: stamps in front of random bytes.
pub(crate) struct PayloadWriter {
    pool: Vec<u8>,
}

impl PayloadWriter {
    /// Makes the pool of random bytes that bodies are cut from.
    pub(crate) fn new() -> Self {
        let mut pool = vec![0; POOL_BYTES];
        rand::fill(&mut pool[..]);
        Self { pool }
    }

    /// Fills `value` (at least [`HEADER_BYTES`] long) with the stamp and random bytes.
    pub(crate) fn write(&self, stamp: &Stamp, value: &mut [u8]) {
        let (header, body) = value.split_at_mut(HEADER_BYTES);
        // A different place in the pool for each record, so that neighbours differ.
        let room = self.pool.len().saturating_sub(body.len()).max(1);
        let start = (stamp.sequence as usize).wrapping_mul(61) % room;
        body.copy_from_slice(&self.pool[start..start + body.len()]);
        header[4..8].copy_from_slice(&stamp.run.to_le_bytes());
        header[8..12].copy_from_slice(&stamp.publisher.to_le_bytes());
        header[12..16].copy_from_slice(&stamp.late_ns.to_le_bytes());
        header[16..24].copy_from_slice(&stamp.sequence.to_le_bytes());
        header[24..32].copy_from_slice(&stamp.intended_ns.to_le_bytes());
        let checksum = crc32c::crc32c(&value[4..]);
        value[..4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Checks a value and reads its stamp.
pub(crate) fn read(value: &[u8]) -> Result<Stamp, BadPayload> {
    let header: &[u8; HEADER_BYTES] = value.first_chunk().ok_or(BadPayload::Short)?;
    if crc32c::crc32c(&value[4..]) != u32_at(header, 0) {
        return Err(BadPayload::Checksum);
    }
    Ok(Stamp {
        run: u32_at(header, 4),
        publisher: u32_at(header, 8),
        late_ns: u32_at(header, 12),
        sequence: u64_at(header, 16),
        intended_ns: u64_at(header, 24),
    })
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

    const STAMP: Stamp = Stamp {
        run: 7,
        publisher: 3,
        sequence: 1 << 40,
        intended_ns: 123_456_789,
        late_ns: 42,
    };

    #[test]
    fn a_stamp_survives_at_every_length() {
        let writer = PayloadWriter::new();
        for length in [HEADER_BYTES, HEADER_BYTES + 1, 256, 4096, (1 << 20) - 1024] {
            let mut value = vec![0; length];
            writer.write(&STAMP, &mut value);
            assert_eq!(read(&value), Ok(STAMP));
        }
    }

    #[test]
    fn any_changed_byte_is_found() {
        let mut value = vec![0; 100];
        PayloadWriter::new().write(&STAMP, &mut value);
        for at in 0..value.len() {
            value[at] ^= 1;
            assert_eq!(read(&value), Err(BadPayload::Checksum), "byte {at}");
            value[at] ^= 1;
        }
        assert_eq!(read(&value[..31]), Err(BadPayload::Short));
    }

    #[test]
    fn neighbours_differ() {
        let writer = PayloadWriter::new();
        let (mut a, mut b) = (vec![0; 256], vec![0; 256]);
        writer.write(&STAMP, &mut a);
        writer.write(
            &Stamp {
                sequence: STAMP.sequence + 1,
                ..STAMP
            },
            &mut b,
        );
        assert_ne!(a[HEADER_BYTES..], b[HEADER_BYTES..]);
    }
}
