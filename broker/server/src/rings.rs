//! The rings' share of the memory budget: what all shards hold together, in their rings and for slow subscriptions, and
//! who gives way when it is used up: idle rings first, then all rings, then the windows of subscriptions that drop. What is
//! left is held for subscriptions that lose nothing; publishers wait for it, or are refused.

use std::{
    cmp::Reverse,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::{Notify, futures::Notified};

use crate::shard::ShardHandle;

/// When the share is used up, rings give way down to this part of it, so that looking for them is rare.
const RELIEF: (u64, u64) = (7, 8);

/// The sum of all shards. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Rings(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    budget: u64,
    used: AtomicU64,
    shards: Mutex<Vec<Weak<ShardHandle>>>,
    /// Woken when the share is no longer used up.
    room: Notify,
}

impl Rings {
    pub(crate) fn new(budget: u64) -> Self {
        Self(Arc::new(Inner {
            budget,
            used: AtomicU64::new(0),
            shards: Mutex::default(),
            room: Notify::new(),
        }))
    }

    pub(crate) fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// Makes a shard one that gives way.
    pub(crate) fn register(&self, shard: &Arc<ShardHandle>) {
        let mut shards = self.0.shards.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked through when it would grow, so that many streams cost little each.
        if shards.len() == shards.capacity() {
            shards.retain(|known| known.strong_count() > 0);
        }
        shards.push(Arc::downgrade(shard));
    }

    /// Notes that a shard went from one size to another, in bytes, and says whether the share is used up.
    pub(crate) fn moved(&self, before: u64, after: u64) -> bool {
        let budget = self.0.budget;
        if after >= before {
            let more = after - before;
            return self.0.used.fetch_add(more, Relaxed) + more > budget;
        }
        let less = before - after;
        let was = self.0.used.fetch_sub(less, Relaxed);
        if was > budget && was - less <= budget {
            self.0.room.notify_waiters();
        }
        was - less > budget
    }

    /// Whether the share is used up, although everything that can has given way.
    pub(crate) fn are_full(&self) -> bool {
        self.used() > self.0.budget
    }

    /// Waits until [`Self::are_full`] may have changed. To be made before looking.
    pub(crate) fn room(&self) -> Notified<'_> {
        self.0.room.notified()
    }

    /// Lets shards give way until there is room. Not to be called while a shard is locked.
    pub(crate) fn relieve(&self) {
        // Whoever comes second has nothing to do: the first one makes room for both.
        let Ok(mut shards) = self.0.shards.try_lock() else {
            return;
        };
        shards.retain(|shard| shard.strong_count() > 0);
        let mut all: Vec<Arc<ShardHandle>> = shards.iter().filter_map(Weak::upgrade).collect();
        let aim = self.0.budget / RELIEF.1 * RELIEF.0;
        let excess = || self.used().saturating_sub(aim);
        all.sort_by_cached_key(|shard| shard.last_published());
        for shard in &all {
            if excess() == 0 {
                return;
            }
            shard.let_go(excess());
        }
        all.sort_by_cached_key(|shard| Reverse(shard.pinned_bytes()));
        for shard in &all {
            if excess() == 0 {
                return;
            }
            shard.give_way(excess());
        }
    }
}
