//! Rows of the matrix: what one run publishes, to how many, in batches of what size, and how much of it.

use clap::ValueEnum;
use thiserror::Error;

use crate::payload::HEADER_BYTES;

/// Bytes that QUIC may buffer on one connection before back-pressure shows: a run that fits inside measures buffers.
pub(crate) const SEND_WINDOW_BYTES: u64 = 64 << 20;

/// Volume below which a batched row is warned about: twice the send window.
pub(crate) const GUARD_BYTES: u64 = 2 * SEND_WINDOW_BYTES;

/// Volume that a batched row aims at when no total is given: three send windows.
const AIM_BYTES: u64 = 3 * SEND_WINDOW_BYTES;

/// Volume that a batched row of the quick preset aims at: just past the guard.
const QUICK_AIM_BYTES: u64 = GUARD_BYTES + (8 << 20);

/// Largest number of records in a row that was sized by this program.
const SIZED_RECORDS_MAX: u64 = 5_000_000;

/// Largest number of records that may be asked for in one row.
const RECORDS_MAX: u64 = 1_000_000_000;

/// Largest payload, in bytes: the broker's default record limit less room for the record's own framing.
const PAYLOAD_MAX: u32 = (1 << 20) - 1024;

const FANOUT_MAX: u32 = 10_000;
const BATCH_MAX: u32 = 65_536;

/// One row: a workload to measure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// Bytes of a value as asked for; a value is never shorter than its verification header.
    pub payload: u32,
    /// Subscribers.
    pub fanout: u32,
    /// Records in a batch.
    pub batch: u32,
    /// Records measured.
    pub total: u64,
    /// Records published before the measurement.
    pub warmup: u64,
}

/// Why a row was refused.
#[derive(Debug, Error, Eq, PartialEq)]
pub enum RowError {
    /// A part of `--row` is not `key=value`.
    #[error("row {row:?}: {part:?} is not key=value; write for example payload=1024,fanout=10,batch=64")]
    NotKeyValue {
        /// The whole row.
        row: String,
        /// The part in it.
        part: String,
    },
    /// The key is not known.
    #[error("row {row:?}: unknown key {key:?}; known are payload, fanout, batch, total, warmup")]
    UnknownKey {
        /// The whole row.
        row: String,
        /// The key.
        key: String,
    },
    /// A key stands twice.
    #[error("row {row:?}: {key} is given twice; leave one out")]
    Repeated {
        /// The whole row.
        row: String,
        /// The key.
        key: String,
    },
    /// The value is not a whole number.
    #[error("row {row:?}: {key} must be a whole number, not {value:?}")]
    NotANumber {
        /// The whole row.
        row: String,
        /// The key.
        key: String,
        /// What stands there.
        value: String,
    },
    /// A number is outside its bounds.
    #[error("{key} must be between {min} and {max}, not {value}")]
    OutOfBounds {
        /// The key.
        key: &'static str,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
        /// The value given.
        value: u64,
    },
}

/// Named sets of rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Preset {
    /// Payload 0 and 1024 by fan-out 1 and 10 by batch 1 and 64, short.
    Quick,
    /// Payload 0, 256, 1024 and 4096 by fan-out 1 and 10 by batch 1 and 64.
    Full,
}

impl Row {
    /// A checked row. A missing total is 10,000 at batch 1, and past the send window otherwise.
    pub(crate) fn sized(
        payload: u32,
        fanout: u32,
        batch: u32,
        total: Option<u64>,
        warmup: Option<u64>,
    ) -> Result<Self, RowError> {
        let row = Self {
            payload,
            fanout,
            batch,
            total: total.unwrap_or_else(|| sized_total(payload, batch, AIM_BYTES)),
            warmup: warmup.unwrap_or_else(|| default_warmup(batch)),
        };
        row.check()?;
        Ok(row)
    }

    /// Bytes of a value on the wire: the payload, or the header where that is larger.
    pub(crate) fn value_bytes(&self) -> usize {
        (self.payload as usize).max(HEADER_BYTES)
    }

    /// Bytes that the publisher sends while measured.
    pub(crate) fn volume(&self) -> u64 {
        self.total.saturating_mul(self.value_bytes() as u64)
    }

    /// Whether the row measures latency (one record in flight) rather than sustained rate.
    pub(crate) fn is_latency(&self) -> bool {
        self.batch == 1
    }

    /// A warning where a batched row is so small that it may measure buffers instead of throughput.
    pub(crate) fn guard_warning(&self) -> Option<String> {
        (!self.is_latency() && self.volume() < GUARD_BYTES).then(|| {
            format!(
                "{} MiB published is within twice the 64 MiB send window: the rate may be that of filling buffers; \
                 use --total {} or more",
                self.volume() >> 20,
                GUARD_BYTES.div_ceil(self.value_bytes() as u64)
            )
        })
    }

    fn check(&self) -> Result<(), RowError> {
        within("payload", self.payload.into(), 0, PAYLOAD_MAX.into())?;
        within("fanout", self.fanout.into(), 1, FANOUT_MAX.into())?;
        within("batch", self.batch.into(), 1, BATCH_MAX.into())?;
        within("total", self.total, 1, RECORDS_MAX)?;
        within("warmup", self.warmup, 0, RECORDS_MAX)
    }
}

/// Reads `payload=0,fanout=1,batch=1,total=10000,warmup=500`; keys left out take the defaults of [`Row::sized`].
pub(crate) fn parse(text: &str) -> Result<Row, RowError> {
    const KEYS: [&str; 5] = ["payload", "fanout", "batch", "total", "warmup"];
    let mut values: [Option<u64>; 5] = [None; 5];
    for part in text.split(',') {
        let Some((key, value)) = part.split_once('=') else {
            return Err(RowError::NotKeyValue {
                row: text.into(),
                part: part.into(),
            });
        };
        let (key, value) = (key.trim(), value.trim());
        let Some(place) = KEYS.iter().position(|known| *known == key) else {
            return Err(RowError::UnknownKey {
                row: text.into(),
                key: key.into(),
            });
        };
        let number = value.parse().map_err(|_| RowError::NotANumber {
            row: text.into(),
            key: key.into(),
            value: value.into(),
        })?;
        if values[place].replace(number).is_some() {
            return Err(RowError::Repeated {
                row: text.into(),
                key: key.into(),
            });
        }
    }
    let [payload, fanout, batch, total, warmup] = values;
    Row::sized(
        narrow("payload", payload.unwrap_or(0), PAYLOAD_MAX)?,
        narrow("fanout", fanout.unwrap_or(1), FANOUT_MAX)?,
        narrow("batch", batch.unwrap_or(1), BATCH_MAX)?,
        total,
        warmup,
    )
}

/// The rows of a preset, latency rows first.
pub(crate) fn preset(preset: Preset) -> Vec<Row> {
    let (payloads, aim, latency_total): (&[u32], _, _) = match preset {
        Preset::Quick => (&[0, 1024], QUICK_AIM_BYTES, 3_000),
        Preset::Full => (&[0, 256, 1024, 4096], AIM_BYTES, 10_000),
    };
    let mut rows = Vec::with_capacity(payloads.len() * 4);
    for batch in [1, 64] {
        for &payload in payloads {
            for fanout in [1, 10] {
                let total = if batch == 1 {
                    latency_total
                } else {
                    sized_total(payload, batch, aim)
                };
                rows.push(Row {
                    payload,
                    fanout,
                    batch,
                    total,
                    warmup: default_warmup(batch),
                });
            }
        }
    }
    rows
}

/// Records that make `aim` bytes in whole batches, within the bound for sizes chosen by this program.
fn sized_total(payload: u32, batch: u32, aim: u64) -> u64 {
    if batch == 1 {
        return 10_000;
    }
    let value = u64::from(payload).max(HEADER_BYTES as u64);
    let records = aim.div_ceil(value).clamp(10_000, SIZED_RECORDS_MAX);
    records.next_multiple_of(batch.into())
}

/// Warm-up absorbs the handshake, MTU discovery and the congestion ramp: 1,000 records, or 200 batches.
fn default_warmup(batch: u32) -> u64 {
    u64::from(batch).saturating_mul(200).max(1_000)
}

fn narrow(key: &'static str, value: u64, max: u32) -> Result<u32, RowError> {
    u32::try_from(value).map_err(|_| RowError::OutOfBounds {
        key,
        min: 0,
        max: max.into(),
        value,
    })
}

fn within(key: &'static str, value: u64, min: u64, max: u64) -> Result<(), RowError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(RowError::OutOfBounds { key, min, max, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batched_row_of_both_presets_clears_the_guard() {
        for row in preset(Preset::Quick).into_iter().chain(preset(Preset::Full)) {
            assert_eq!(row.guard_warning(), None, "{row:?}");
            row.check().unwrap();
        }
    }

    #[test]
    fn a_small_batched_row_is_warned_about_and_a_latency_row_is_not() {
        let small = parse("payload=1024,batch=64,total=1000").unwrap();
        assert!(small.guard_warning().unwrap().contains("--total 131072"));
        assert_eq!(parse("payload=1024,total=1000").unwrap().guard_warning(), None);
    }

    #[test]
    fn a_row_reads_all_keys_in_any_order() {
        let row = parse("warmup=5,total=7,batch=3, fanout=2,payload=100").unwrap();
        assert_eq!(
            row,
            Row {
                payload: 100,
                fanout: 2,
                batch: 3,
                total: 7,
                warmup: 5
            }
        );
    }

    #[test]
    fn bad_rows_name_the_fault() {
        let message = |text: &str| parse(text).unwrap_err().to_string();
        assert!(message("payload").contains("key=value"));
        assert!(message("size=3").contains("unknown key \"size\""));
        assert!(message("payload=1,payload=2").contains("twice"));
        assert!(message("payload=-1").contains("whole number"));
        assert!(message("fanout=0").contains("fanout must be between 1 and 10000"));
        assert!(message("payload=99999999").contains("payload must be between"));
        assert!(message("total=0").contains("total must be between"));
    }

    #[test]
    fn a_value_is_never_shorter_than_its_header() {
        assert_eq!(parse("payload=0").unwrap().value_bytes(), HEADER_BYTES);
        assert_eq!(parse("payload=256").unwrap().value_bytes(), 256);
    }
}
