//! What a shard asks its surroundings to do.

use alloc::vec::Vec;

use felix_wire::{AckEntry, Batch};

use crate::shard::Shard;

/// A publisher's stream, named by the caller. Answers for it come in the order of its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherId(pub u64);

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append the batch to the log, then say how far the log is safe.
    Write(Batch),
    /// Tell a publisher what became of its oldest unanswered batch.
    Answer {
        /// The publisher.
        publisher: PublisherId,
        /// What became of it.
        entry: AckEntry,
    },
    /// Wake all who wait for records: the tail has moved.
    WakeReaders,
    /// Wake all who were told to wait before publishing.
    WakePublishers,
}

/// Plays the log of a memory stream: whatever was to be written is safe as soon as it is in the ring.
pub fn answer_at_once(shard: &mut Shard, effects: &mut Vec<Effect>) {
    let mut written = None;
    effects.retain(|effect| match effect {
        Effect::Write(batch) => {
            written = Some(batch.next_offset());
            false
        }
        Effect::Answer { .. } | Effect::WakeReaders | Effect::WakePublishers => true,
    });
    if let Some(end) = written {
        shard.synced_to(end, effects);
    }
}
