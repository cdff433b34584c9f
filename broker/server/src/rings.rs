//! The rings' share of the memory budget: what all rings hold together, and who gives way when it is used up.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::shard::ShardHandle;

/// When the share is used up, rings give way down to this part of it, so that looking for them is rare.
const RELIEF: (u64, u64) = (7, 8);

/// The sum of all rings. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Rings(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    budget: u64,
    used: AtomicU64,
    shards: Mutex<Vec<Weak<ShardHandle>>>,
}

impl Rings {
    pub(crate) fn new(budget: u64) -> Self {
        Self(Arc::new(Inner {
            budget,
            used: AtomicU64::new(0),
            shards: Mutex::default(),
        }))
    }

    pub(crate) fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// Makes a shard one that gives way.
    pub(crate) fn register(&self, shard: &Arc<ShardHandle>) {
        let mut shards = self.0.shards.lock().unwrap_or_else(PoisonError::into_inner);
        shards.retain(|known| known.strong_count() > 0);
        shards.push(Arc::downgrade(shard));
    }

    /// Notes that a ring went from one size to another, in bytes, and says whether the share is used up.
    pub(crate) fn moved(&self, before: u64, after: u64) -> bool {
        let used = if after >= before {
            self.0.used.fetch_add(after - before, Relaxed) + (after - before)
        } else {
            self.0.used.fetch_sub(before - after, Relaxed) - (before - after)
        };
        used > self.0.budget
    }

    /// Lets the rings give way that have not been published to for the longest time. Not to be called while a shard is
    /// locked.
    pub(crate) fn relieve(&self) {
        // Whoever comes second has nothing to do: the first one makes room for both.
        let Ok(shards) = self.0.shards.try_lock() else {
            return;
        };
        let mut idle_first: Vec<Arc<ShardHandle>> = shards.iter().filter_map(Weak::upgrade).collect();
        drop(shards);
        idle_first.sort_by_key(|shard| shard.last_published());
        let aim = self.0.budget / RELIEF.1 * RELIEF.0;
        for shard in idle_first {
            let excess = self.used().saturating_sub(aim);
            if excess == 0 {
                return;
            }
            shard.let_go(excess);
        }
    }
}
