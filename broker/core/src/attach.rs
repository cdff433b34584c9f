//! Where a subscription begins: what it asks for, and what the ring still has of it.

use felix_wire::{ErrorCode, Gap, GapReason, Incarnation, Lost, Offset, Refusal, SlowPolicy, Start};

use crate::ring::{Entries, Mark};

/// What a subscription asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Where to begin.
    pub start: Start,
    /// The life of the stream that the start belongs to, 0 for any.
    pub incarnation: Incarnation,
    /// What to do when it is slow.
    pub policy: SlowPolicy,
    /// The window in bytes, each batch counted with [`BATCH_OVERHEAD`](crate::BATCH_OVERHEAD). At least one batch is
    /// always kept, and no window is larger than the ring.
    pub window: u64,
}

/// Why a subscription cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// It wants to begin behind the last record.
    #[error("the shard ends at offset {end}, before the wanted start")]
    StartBeyondEnd {
        /// Where the shard ends.
        end: Offset,
    },
    /// The shard has as many cursors as it may.
    #[error("the shard has {limit} subscriptions, as many as it may")]
    TooMany {
        /// How many it may have.
        limit: usize,
    },
}

impl From<AttachError> for Refusal {
    fn from(error: AttachError) -> Self {
        match error {
            AttachError::StartBeyondEnd { end } => Self {
                code: ErrorCode::StartBeyondEnd,
                detail: end.0,
            },
            AttachError::TooMany { .. } => ErrorCode::TooManySubscriptions.into(),
        }
    }
}

/// Where a new cursor stands, and the gap that it is told first.
pub(crate) fn begin(
    attach: &Attach,
    life: Incarnation,
    ring: &Entries,
    tail: Mark,
) -> Result<(Mark, Option<Gap>), AttachError> {
    let earliest = ring.first().map_or(tail, |entry| entry.start).min_offset(tail);
    if attach.incarnation != Incarnation::default() && attach.incarnation != life {
        let from = if let Start::Offset(offset) = attach.start {
            offset
        } else {
            Offset::ZERO
        };
        let gap = Gap {
            from,
            to: None,
            reason: GapReason::FormerIncarnation,
            lost: Lost::Unknown,
        };
        return Ok((earliest, Some(gap)));
    }
    let wanted = match attach.start {
        Start::Latest => return Ok((tail, None)),
        Start::Earliest => return Ok((earliest, None)),
        Start::Time(time) => {
            let entry = ring.first_where(|entry| entry.batch.append_time() >= time);
            return Ok((entry.map_or(tail, |entry| entry.start).min_offset(tail), None));
        }
        Start::Offset(wanted) => wanted,
    };
    if wanted > tail.offset {
        return Err(AttachError::StartBeyondEnd { end: tail.offset });
    }
    if wanted < earliest.offset {
        let gap = Gap {
            from: wanted,
            to: Some(earliest.offset),
            reason: GapReason::NotKept,
            lost: Lost::AtMost(wanted.distance_to(earliest.offset)),
        };
        return Ok((earliest, Some(gap)));
    }
    let holder = ring.first_where(|entry| entry.end.offset > wanted);
    let holder = holder.map_or(tail, |entry| entry.start).min_offset(tail);
    let inside = holder.offset.distance_to(wanted);
    Ok((
        Mark {
            offset: wanted,
            records: holder.records + inside,
            ..holder
        },
        None,
    ))
}
