//! A shard of the core behind a short lock, and the waking of those who wait for it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use felix_core::{
    Attach, AttachError, CursorId, Delivery, Dropped, Effect, Publish, PublisherId, Room, Shard, ShardConfig,
    answer_at_once,
};
use felix_wire::{AckEntry, ErrorCode, IncomingBatch, Nanos, Offset, Origin};
use tokio::sync::Notify;

use crate::rings::Rings;

/// One shard, shared by its publishers and subscriptions. Nobody waits while it is locked.
#[derive(Debug)]
pub(crate) struct ShardHandle {
    state: Mutex<State>,
    /// Woken when there is more to read.
    pub(crate) readers: Notify,
    /// Woken when publishers who were told to wait may go on.
    pub(crate) publishers: Notify,
    /// When the last batch was taken, in nanoseconds since 1970.
    last_published: AtomicU64,
    rings: Rings,
}

#[derive(Debug)]
struct State {
    core: Shard,
    /// The budget of the stream, beside which the ring may be made smaller for a moment.
    ring_bytes: u64,
    /// What the rings' share counts for this shard.
    counted: u64,
    /// Kept for its allocation.
    effects: Vec<Effect>,
    /// Where answers go that are given later.
    answers: HashMap<PublisherId, Arc<Answers>>,
    ended: bool,
}

/// Answers for one publisher that were given while somebody else's call had the shard.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    waiting: Mutex<Vec<AckEntry>>,
    pub(crate) given: Notify,
}

impl Answers {
    /// Moves what is there to the end of `out`.
    pub(crate) fn take(&self, out: &mut Vec<AckEntry>) {
        out.append(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn give(&self, entry: AckEntry) {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(entry);
        self.given.notify_one();
    }
}

impl ShardHandle {
    pub(crate) fn new(config: ShardConfig, rings: Rings) -> Self {
        let state = State {
            core: Shard::new(config),
            ring_bytes: config.ring_bytes,
            counted: 0,
            effects: Vec::new(),
            answers: HashMap::new(),
            ended: false,
        };
        Self {
            state: Mutex::new(state),
            readers: Notify::new(),
            publishers: Notify::new(),
            last_published: AtomicU64::new(0),
            rings,
        }
    }

    /// Whether a publisher may read its next batch. If not, it waits for [`Self::publishers`].
    pub(crate) fn room(&self) -> Room {
        self.lock().core.room()
    }

    /// Registers a publisher for answers that are given later.
    pub(crate) fn enter_publisher(&self, publisher: PublisherId) -> Arc<Answers> {
        let answers = Arc::new(Answers::default());
        self.lock().answers.insert(publisher, Arc::clone(&answers));
        answers
    }

    /// Forgets a publisher; answers for it go nowhere from now on.
    pub(crate) fn leave_publisher(&self, publisher: PublisherId) {
        self.lock().answers.remove(&publisher);
    }

    /// Offers a batch. Answers for this publisher are added to `out`, those for others go to them.
    pub(crate) fn publish(
        &self,
        publisher: PublisherId,
        batch: IncomingBatch,
        now: Nanos,
        out: &mut Vec<AckEntry>,
    ) -> Publish {
        let mut state = self.lock();
        if state.ended {
            out.push(Err(ErrorCode::StreamEnded.into()));
            return Publish::Taken;
        }
        let State { core, effects, .. } = &mut *state;
        let published = core.publish(publisher, batch, now, effects);
        answer_at_once(core, effects);
        let used_up = self.count(&mut state);
        self.last_published.store(now.0, Relaxed);
        self.act(state, Some((publisher, out)));
        if used_up {
            self.rings.relieve();
        }
        published
    }

    /// Says that a batch was refused which the core has not seen.
    pub(crate) fn refuse(&self, origin: Origin) {
        self.lock().core.refuse(origin);
    }

    /// Attaches a subscription until the guard is dropped.
    pub(crate) fn attach(self: &Arc<Self>, attach: Attach) -> Result<(Attached, Offset), AttachError> {
        let (cursor, from) = self.lock().core.attach(attach)?;
        Ok((
            Attached {
                shard: Arc::clone(self),
                cursor,
            },
            from,
        ))
    }

    /// Changes the budget of the ring, in bytes.
    pub(crate) fn resize(&self, ring_bytes: u64) {
        let mut state = self.lock();
        state.ring_bytes = ring_bytes;
        state.core.set_ring_bytes(ring_bytes);
        self.count(&mut state);
    }

    /// Lets the ring give way by about so many bytes; its budget stays.
    pub(crate) fn let_go(&self, bytes: u64) {
        let mut state = self.lock();
        let keep = state.core.ring_bytes().saturating_sub(bytes);
        let budget = state.ring_bytes;
        state.core.set_ring_bytes(keep);
        state.core.set_ring_bytes(budget);
        self.count(&mut state);
    }

    /// Memory is short: gives up so many bytes, of slow subscriptions' windows too, which they are told as a gap.
    pub(crate) fn give_way(&self, bytes: u64) {
        let mut state = self.lock();
        state.core.give_way(bytes);
        self.count(&mut state);
        drop(state);
        // A gap may be due.
        self.readers.notify_waiters();
    }

    /// The stream's life is over: memory is given back, and whoever waits for the shard is woken to see it.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.core.set_ring_bytes(0);
        self.count(&mut state);
        drop(state);
        self.readers.notify_waiters();
        self.publishers.notify_waiters();
    }

    /// When the last batch was taken.
    pub(crate) fn last_published(&self) -> Nanos {
        Nanos(self.last_published.load(Relaxed))
    }

    /// Records dropped under each policy so far, those not yet told included.
    pub(crate) fn dropped(&self) -> Dropped {
        self.lock().core.dropped()
    }

    /// Bytes that slow subscriptions hold beside the ring.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.lock().core.pinned_bytes()
    }

    /// Tells the rings' share what the shard holds now, and says whether that is used up.
    fn count(&self, state: &mut State) -> bool {
        let held = state.core.ring_bytes() + state.core.pinned_bytes();
        let before = std::mem::replace(&mut state.counted, held);
        if before == held {
            return self.rings.are_full();
        }
        self.rings.moved(before, held)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the core asked for: answers under the lock, so that they keep their order; wake-ups after it.
    fn act(&self, mut state: MutexGuard<'_, State>, own: Option<(PublisherId, &mut Vec<AckEntry>)>) {
        let (mut wake_readers, mut wake_publishers) = (false, false);
        let mut own = own;
        let State { effects, answers, .. } = &mut *state;
        for effect in effects.drain(..) {
            match effect {
                Effect::Answer { publisher, entry } => match &mut own {
                    Some((id, out)) if *id == publisher => out.push(entry),
                    Some(_) | None => {
                        if let Some(answers) = answers.get(&publisher) {
                            answers.give(entry);
                        }
                    }
                },
                Effect::WakeReaders => wake_readers = true,
                Effect::WakePublishers => wake_publishers = true,
                // A memory stream's log is the ring: `answer_at_once` has taken these.
                Effect::Write(_) => {}
            }
        }
        drop(state);
        if wake_readers {
            self.readers.notify_waiters();
        }
        if wake_publishers {
            self.publishers.notify_waiters();
        }
    }
}

impl Drop for ShardHandle {
    fn drop(&mut self) {
        let bytes = self.lock().counted;
        self.rings.moved(bytes, 0);
    }
}

/// The stream's life is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended;

/// A subscription's place in a shard, given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    shard: Arc<ShardHandle>,
    cursor: CursorId,
}

impl Attached {
    /// Takes what the subscription is to be told next, at most `credit` bytes of batches. Nothing means: wait for
    /// [`ShardHandle::readers`].
    pub(crate) fn poll(&self, credit: u64, out: &mut Vec<Delivery>) -> Result<(), Ended> {
        let mut state = self.shard.lock();
        if state.ended {
            return Err(Ended);
        }
        let State { core, effects, .. } = &mut *state;
        core.poll(self.cursor, credit, out, effects);
        self.shard.count(&mut state);
        self.shard.act(state, None);
        Ok(())
    }

    /// Whether publishers have waited because of this subscription since `seen`; see [`Shard::holds_back`].
    pub(crate) fn holds_back(&self, seen: &mut u64) -> bool {
        let memory_is_short = self.shard.rings.are_full();
        self.shard
            .lock()
            .core
            .holds_back(self.cursor, seen, memory_is_short)
    }

    pub(crate) fn shard(&self) -> &Arc<ShardHandle> {
        &self.shard
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut state = self.shard.lock();
        let State { core, effects, .. } = &mut *state;
        core.detach(self.cursor, effects);
        self.shard.count(&mut state);
        self.shard.act(state, None);
    }
}
