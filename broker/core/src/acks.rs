//! Answers that wait for the log, a ledger released in order by a watermark.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use felix_wire::{AckEntry, ErrorCode, Offset, Refusal};

use crate::effect::{Effect, PublisherId};

/// An answer, and how far the log has to be safe before it may be given.
#[derive(Debug)]
struct Waiting {
    publisher: PublisherId,
    until: Offset,
    entry: AckEntry,
}

/// Answers in the order of the batches. A refusal waits its turn like an ack, so the n-th answer of a publisher is for its
/// n-th batch.
#[derive(Debug, Default)]
pub(crate) struct Acks(VecDeque<Waiting>);

impl Acks {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an answer that holds once the log is safe up to `until`.
    pub(crate) fn push(&mut self, publisher: PublisherId, until: Offset, entry: AckEntry) {
        self.0.push_back(Waiting {
            publisher,
            until,
            entry,
        });
    }

    /// Gives all answers from the front that hold now that the log is safe up to `safe`.
    pub(crate) fn release(&mut self, safe: Offset, effects: &mut Vec<Effect>) {
        while let Some(Waiting { publisher, entry, .. }) = self.0.pop_front_if(|next| next.until <= safe) {
            effects.push(Effect::Answer { publisher, entry });
        }
    }

    /// Turns every ack of something behind `kept` into a refusal: it will not come to hold.
    pub(crate) fn fail_behind(&mut self, kept: Offset, code: ErrorCode) {
        for waiting in self.0.iter_mut().filter(|waiting| waiting.until > kept) {
            waiting.until = kept;
            if waiting.entry.is_ok() {
                waiting.entry = Err(Refusal::from(code));
            }
        }
    }
}
