//! Every bound of a shard, with its arithmetic.

/// What a batch costs the broker beside its own bytes: an entry of 96 bytes in a queue that is at times twice as large as
/// what it holds, and 64 bytes for what makes a buffer shared and for the allocator. Ring and windows count it, so that a
/// ring full of tiny batches stays within its budget too, and the number of entries is bounded by the budget.
pub const BATCH_OVERHEAD: u64 = 256;

/// The part of [`BATCH_OVERHEAD`] that each cursor takes which holds a batch that the ring has let go: the entry in a queue.
pub(crate) const PIN_OVERHEAD: u64 = 192;

/// Most batches that one poll hands out, so that a shard is held for a short time only: 64 clones of a reference.
pub const MAX_BATCHES_PER_POLL: usize = 64;

/// Bounds of one shard. The defaults suit a small pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most cursors attached at a time.
    pub max_cursors: usize,
    /// Most producers remembered; the one that has been silent longest is forgotten first. One takes at most 64 runs of
    /// 24 bytes, so 1,024 take 1.6 MB at worst and 150 kB when producers do not interleave.
    pub max_producers: usize,
    /// Most answers that wait for the log; publishers wait when there are so many.
    pub max_waiting_answers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_cursors: 10_000,
            max_producers: 1024,
            max_waiting_answers: 1 << 16,
        }
    }
}
