//! The frames of a subscription's stream: opening it, records, gaps, and room for more.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Fields, MAX_VARINT_BYTES, put_optional_u64, put_text, read_varint, write_varint};
use crate::frame::{DecodeError, FrameHead, FrameKind};
use crate::ids::{Incarnation, Nanos, Offset, ShardId};
use crate::limits::MAX_BATCH_RECORDS;
use crate::name::StreamName;

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the next record that is stored.
    Latest,
    /// With the oldest record that is kept.
    Earliest,
    /// With this offset, or the oldest one that is kept after a gap.
    Offset(Offset),
    /// With the first batch that the leader took at this time or later.
    Time(Nanos),
}

/// What happens when a subscription falls further behind than its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlowPolicy {
    /// Publishers wait.
    Block,
    /// The oldest bytes up to the window are kept, later records are lost until these are read.
    DropNew,
    /// The newest bytes up to the window are kept, earlier records are lost.
    DropOld,
}

impl SlowPolicy {
    /// The policy's name in settings and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::DropNew => "drop_new",
            Self::DropOld => "drop_old",
        }
    }

    const fn to_wire(self) -> u8 {
        match self {
            Self::Block => 1,
            Self::DropNew => 2,
            Self::DropOld => 3,
        }
    }

    const fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Block),
            2 => Some(Self::DropNew),
            3 => Some(Self::DropOld),
            _ => None,
        }
    }
}

/// Opens a subscription of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// The stream.
    pub stream: StreamName,
    /// The shard.
    pub shard: ShardId,
    /// Where to begin.
    pub start: Start,
    /// The life of the stream that the start belongs to, 0 for any. When it is over, a gap of reason
    /// [`GapReason::FormerIncarnation`] comes first and the present life from its earliest record on.
    pub incarnation: Incarnation,
    /// What to do when the subscriber is slow; `None` for the stream's default.
    pub policy: Option<SlowPolicy>,
    /// The window in bytes, 0 for the stream's default.
    pub window: u64,
    /// How many bytes of deliver frames the broker may send before it is given more by [`Credit`]; 0 for no limit but
    /// QUIC's own.
    pub credit: u64,
}

impl Subscribe {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        let stream = fields.stream_name()?;
        let shard = ShardId(fields.u32("shard")?);
        let kind = fields.u8("start")?;
        let number = fields.u64("start")?;
        let start = match kind {
            0 => Start::Latest,
            1 => Start::Earliest,
            2 => Start::Offset(Offset(number)),
            3 => Start::Time(Nanos(number)),
            _ => return Err(DecodeError::Value { field: "start" }),
        };
        let incarnation = Incarnation(fields.u128("incarnation")?);
        let policy = match fields.u8("policy")? {
            0 => None,
            number => Some(SlowPolicy::from_wire(number).ok_or(DecodeError::Value { field: "policy" })?),
        };
        let window = fields.u64("window")?;
        let credit = fields.u64("credit")?;
        Ok(Self {
            stream,
            shard,
            start,
            incarnation,
            policy,
            window,
            credit,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        put_text(out, self.stream.as_str());
        out.put_u32_le(self.shard.0);
        let (kind, number) = match self.start {
            Start::Latest => (0, 0),
            Start::Earliest => (1, 0),
            Start::Offset(offset) => (2, offset.0),
            Start::Time(time) => (3, time.0),
        };
        out.put_u8(kind);
        out.put_u64_le(number);
        out.put_u128_le(self.incarnation.0);
        out.put_u8(self.policy.map_or(0, SlowPolicy::to_wire));
        out.put_u64_le(self.window);
        out.put_u64_le(self.credit);
    }
}

/// The subscription is registered: every record from here on is delivered or accounted for by a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// The stream's present life.
    pub incarnation: Incarnation,
    /// The first offset that the subscription answers for.
    pub from: Offset,
    /// The policy in force; `None` where it is one that this version does not know.
    pub policy: Option<SlowPolicy>,
    /// The window in force, in bytes.
    pub window: u64,
}

impl Subscribed {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        Ok(Self {
            incarnation: Incarnation(fields.u128("incarnation")?),
            from: Offset(fields.u64("from")?),
            policy: SlowPolicy::from_wire(fields.u8("policy")?),
            window: fields.u64("window")?,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u128_le(self.incarnation.0);
        out.put_u64_le(self.from.0);
        out.put_u8(self.policy.map_or(0, SlowPolicy::to_wire));
        out.put_u64_le(self.window);
    }
}

/// The subscriber has room: from the beginning on, the broker may send this many bytes of deliver frames, heads included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Bytes since the subscription began; a lower number than before has no effect.
    pub limit: u64,
}

impl Credit {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        Ok(Self {
            limit: Fields::new(body).u64("limit")?,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.limit);
    }
}

/// Which records of a batch a delivery is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// All whose offsets lie in the delivery's range.
    #[default]
    All,
    /// Those of these indices, as checked varints: the first index, then the distance less one to each next one.
    Some(Bytes),
}

impl Selection {
    /// The records of these indices, which rise.
    pub fn of(indices: impl Iterator<Item = u32>) -> Self {
        let mut bytes = BytesMut::new();
        let mut next = 0;
        for index in indices {
            debug_assert!(u64::from(index) >= next, "indices rise");
            let mut varint = [0; MAX_VARINT_BYTES];
            let length = write_varint(&mut varint, u64::from(index).saturating_sub(next));
            bytes.put_slice(&varint[..length]);
            next = u64::from(index) + 1;
        }
        Self::Some(bytes.freeze())
    }

    /// The selected indices in rising order; `None` stands for all.
    pub fn indices(&self) -> Option<impl Iterator<Item = u32> + '_> {
        let Self::Some(bytes) = self else { return None };
        let mut at = 0;
        let mut next = 0_u64;
        Some(core::iter::from_fn(move || {
            let index = next.saturating_add(read_varint(bytes, &mut at)?);
            next = index.saturating_add(1);
            u32::try_from(index).ok()
        }))
    }

    fn check(bytes: &Bytes) -> Result<(), DecodeError> {
        let mut at = 0;
        let mut next = 0_u64;
        while at < bytes.len() {
            let step = read_varint(bytes, &mut at).ok_or(DecodeError::Value { field: "selection" })?;
            next = next.saturating_add(step).saturating_add(1);
            if next > u64::from(MAX_BATCH_RECORDS) {
                return Err(DecodeError::Value { field: "selection" });
            }
        }
        Ok(())
    }
}

/// Records: one batch, the range of offsets that the delivery answers for, and which of the records are meant.
/// Offsets of the range without a record (control, compacted, filtered) are no gap; records outside it are not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// The first offset of the range.
    pub from: Offset,
    /// The offset behind the range.
    pub to: Offset,
    /// Which of the records in the range.
    pub selection: Selection,
    /// The stamped batch, not yet checked; see [`Batch::check`](crate::Batch::check). Empty if the range has none.
    pub batch: Bytes,
}

impl Deliver {
    /// Appends everything that stands before the batch: head of the frame, range, selection. The batch's
    /// `batch_len` bytes follow on the stream as they lie in the ring.
    pub fn encode_head(
        from: Offset,
        to: Offset,
        selection: &Selection,
        batch_len: usize,
        out: &mut BytesMut,
    ) {
        let selected = match selection {
            Selection::All => None,
            Selection::Some(bytes) => Some(bytes),
        };
        let selected_len = selected.map_or(0, Bytes::len);
        let length = FIXED_LEN + selected_len + batch_len;
        out.put_slice(
            &FrameHead {
                kind: FrameKind::Deliver,
                length: length as u32,
            }
            .to_bytes(),
        );
        put_range(from, to, selected.map(Bytes::len), out);
        out.put_slice(selected.map_or(&[][..], |bytes| bytes));
    }

    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        let from = Offset(fields.u64("from")?);
        let to = Offset(fields.u64("to")?);
        if from >= to {
            return Err(DecodeError::Value { field: "range" });
        }
        let selection = match fields.u32("selection")? {
            ALL => Selection::All,
            length => {
                let bytes = fields.raw("selection", length as usize)?;
                Selection::check(&bytes)?;
                Selection::Some(bytes)
            }
        };
        Ok(Self {
            from,
            to,
            selection,
            batch: fields.rest(),
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        match &self.selection {
            Selection::All => put_range(self.from, self.to, None, out),
            Selection::Some(bytes) => {
                put_range(self.from, self.to, Some(bytes.len()), out);
                out.put_slice(bytes);
            }
        }
        out.put_slice(&self.batch);
    }
}

/// Length in bytes of range and selection length.
const FIXED_LEN: usize = 8 + 8 + 4;
/// In place of the selection's length: there is none, all records are meant.
const ALL: u32 = u32::MAX;

fn put_range(from: Offset, to: Offset, selected_len: Option<usize>, out: &mut BytesMut) {
    out.put_u64_le(from.0);
    out.put_u64_le(to.0);
    out.put_u32_le(selected_len.map_or(ALL, |length| length as u32));
}

/// Why a subscription was not given records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// It was slow, and the policy is [`SlowPolicy::DropNew`].
    DropNew,
    /// It was slow, and the policy is [`SlowPolicy::DropOld`].
    DropOld,
    /// They were no longer kept when it asked for them.
    NotKept,
    /// They belonged to a former life of the stream.
    FormerIncarnation,
    /// They were damaged.
    Damaged,
    /// A reason that this version does not know.
    Unlisted(u8),
}

impl GapReason {
    const fn to_wire(self) -> u8 {
        match self {
            Self::DropNew => 1,
            Self::DropOld => 2,
            Self::NotKept => 3,
            Self::FormerIncarnation => 4,
            Self::Damaged => 5,
            Self::Unlisted(number) => number,
        }
    }

    const fn from_wire(number: u8) -> Self {
        match number {
            1 => Self::DropNew,
            2 => Self::DropOld,
            3 => Self::NotKept,
            4 => Self::FormerIncarnation,
            5 => Self::Damaged,
            other => Self::Unlisted(other),
        }
    }
}

/// How many records a gap stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// This many.
    Exactly(u64),
    /// This many or fewer.
    AtMost(u64),
    /// Nobody knows.
    Unknown,
}

/// Records that the subscription was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first offset of the gap.
    pub from: Offset,
    /// The offset behind it; `None` when it ends with a former life of the stream, in which case the next delivery's
    /// offsets belong to the present one.
    pub to: Option<Offset>,
    /// Why.
    pub reason: GapReason,
    /// How many.
    pub lost: Lost,
}

impl Gap {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        let from = Offset(fields.u64("from")?);
        let to = fields.optional_u64("to")?.map(Offset);
        if to.is_some_and(|to| to <= from) {
            return Err(DecodeError::Value { field: "to" });
        }
        let reason = GapReason::from_wire(fields.u8("reason")?);
        let exact = fields.u8("lost")?;
        let records = fields.u64("lost")?;
        let lost = match exact {
            0 => Lost::Exactly(records),
            1 => Lost::AtMost(records),
            2.. => Lost::Unknown,
        };
        Ok(Self {
            from,
            to,
            reason,
            lost,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.from.0);
        put_optional_u64(out, self.to.map(|to| to.0));
        out.put_u8(self.reason.to_wire());
        let (exact, records) = match self.lost {
            Lost::Exactly(records) => (0, records),
            Lost::AtMost(records) => (1, records),
            Lost::Unknown => (2, 0),
        };
        out.put_u8(exact);
        out.put_u64_le(records);
    }
}
