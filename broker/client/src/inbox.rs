//! From a subscription's frames to deliveries: checks batches, yields their records as slices, keeps the cursor. Pure.

use std::collections::VecDeque;

use bytes::Bytes;
use felix_wire::{
    Batch, Deliver, ErrorCode, Frame, FrameKind, Offset, Record as WireRecord, RecordCursor, Selection,
    ShardId,
};

use crate::cursor::Cursor;
use crate::error::SubscribeError;
use crate::record::{Delivery, Gap, Received, ReceivedHeaders};

/// What a frame was.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Records or a gap; see [`Inbox::next`].
    Delivery,
    /// The end of the subscription.
    Ended {
        /// Why.
        code: ErrorCode,
        /// The broker's explanation.
        message: String,
    },
}

/// Holds the batch that is being read, or one gap.
pub(crate) struct Inbox {
    shard: ShardId,
    reading: Option<Reading>,
    gap: Option<Gap>,
}

struct Reading {
    batch: Batch,
    records: RecordCursor,
    base: Offset,
    from: Offset,
    to: Offset,
    /// Indices of the records that are meant; `None` for all.
    selected: Option<VecDeque<u32>>,
}

impl Inbox {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            reading: None,
            gap: None,
        }
    }

    /// Takes a frame. Everything of the last one must have been read.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other frame is equally out of place"
    )]
    pub(crate) fn take(
        &mut self,
        kind: FrameKind,
        body: Bytes,
        cursor: &mut Cursor,
    ) -> Result<Taken, SubscribeError> {
        let frame = Frame::decode(kind, body).map_err(damaged)?;
        match frame {
            Frame::Deliver(deliver) => self.take_records(deliver, cursor)?,
            Frame::Gap(gap) => {
                cursor.skipped(&gap).map_err(damaged)?;
                self.gap = Some(Gap {
                    shard: self.shard.0,
                    from: gap.from.0,
                    to: gap.to.map(|to| to.0),
                    reason: gap.reason,
                    lost: gap.lost,
                });
            }
            Frame::Error(error) => {
                return Ok(Taken::Ended {
                    code: error.code,
                    message: error.message,
                });
            }
            other => return Err(damaged(format!("{:?} on a subscription", other.kind()))),
        }
        Ok(Taken::Delivery)
    }

    fn take_records(&mut self, deliver: Deliver, cursor: &mut Cursor) -> Result<(), SubscribeError> {
        cursor.delivered(&deliver).map_err(damaged)?;
        if deliver.batch.is_empty() {
            return Ok(());
        }
        let selected = match &deliver.selection {
            Selection::All => None,
            some @ Selection::Some(_) => some.indices().map(Iterator::collect),
        };
        let batch = Batch::check(deliver.batch).map_err(damaged)?;
        let header = batch.header();
        if header.control {
            return Ok(());
        }
        self.reading = Some(Reading {
            base: batch.base_offset(),
            records: RecordCursor::new(&header),
            batch,
            from: deliver.from,
            to: deliver.to,
            selected,
        });
        Ok(())
    }

    /// The next delivery of what was taken.
    pub(crate) fn next(&mut self) -> Result<Option<Delivery>, SubscribeError> {
        if let Some(gap) = self.gap.take() {
            return Ok(Some(Delivery::Gap(gap)));
        }
        let Some(reading) = &mut self.reading else {
            return Ok(None);
        };
        match reading.next(self.shard)? {
            Some(received) => Ok(Some(Delivery::Record(received))),
            None => {
                self.reading = None;
                Ok(None)
            }
        }
    }
}

impl Reading {
    fn next(&mut self, shard: ShardId) -> Result<Option<Received>, SubscribeError> {
        loop {
            let index = self.records.index();
            let Some(record) = self.records.next(&self.batch) else {
                return Ok(None);
            };
            let record = record.map_err(damaged)?;
            let offset = record.offset(self.base);
            if offset >= self.from && offset < self.to && is_selected(&mut self.selected, index) {
                return Ok(Some(received(shard, offset, &record, self.batch.bytes())));
            }
        }
    }
}

/// Whether the record of this index is meant. Indices rise, so each is looked for once.
fn is_selected(selected: &mut Option<VecDeque<u32>>, index: u32) -> bool {
    selected
        .as_mut()
        .is_none_or(|indices| indices.pop_front_if(|next| *next == index).is_some())
}

fn received(shard: ShardId, offset: Offset, record: &WireRecord<'_>, batch: &Bytes) -> Received {
    let headers = ReceivedHeaders::new(record.headers.len(), batch.slice_ref(record.headers.encoded()));
    Received {
        shard: shard.0,
        offset: offset.0,
        timestamp: record.timestamp,
        key: record.key.map(|key| batch.slice_ref(key)),
        value: batch.slice_ref(record.value),
        deletes: record.deletes,
        headers,
    }
}

fn damaged(reason: impl ToString) -> SubscribeError {
    SubscribeError::Damaged {
        reason: reason.to_string(),
    }
}
