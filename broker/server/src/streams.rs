//! The live streams: what the catalogue names, with their shards, ready to publish to and to subscribe to.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use arc_swap::ArcSwap;
use felix_core::{Dropped, Limits, ShardConfig};
use felix_store::{Catalogue, OverloadPolicy, SlowSubscriberPolicy, StreamEntry, StreamSpec};
use felix_wire::{Incarnation, Reached, ShardId, SlowPolicy, StreamClass, StreamName, Term};

use crate::{metrics, rings::Rings, shard::ShardHandle};

/// Streams with series of their own in the metrics; what later ones drop is counted for `other`.
const MAX_DROP_SERIES: usize = 1000;
const OTHER: &str = "other";

/// One life of a stream.
pub(crate) struct Stream {
    name: StreamName,
    incarnation: Incarnation,
    spec: ArcSwap<StreamSpec>,
    shards: Vec<Arc<ShardHandle>>,
    /// Which policies a subscription has had, in the order of [`SlowSubscriberPolicy::ALL`].
    policies_seen: Mutex<[bool; 3]>,
}

impl Stream {
    fn new(name: &StreamName, entry: &StreamEntry, rings: &Rings) -> Self {
        // The catalogue was checked when it was written; a damaged id only has to differ from every other.
        let incarnation = entry
            .incarnation
            .parse()
            .unwrap_or_else(|_| Incarnation(rand::random()));
        let shard = |(number, shard): (u32, &felix_store::ShardEntry)| {
            let config = ShardConfig {
                incarnation,
                shard: ShardId(number),
                term: Term(u64::from(shard.term)),
                reached: Reached::Stored,
                ring_bytes: entry.spec.ring_bytes,
                limits: Limits::default(),
            };
            let shard = Arc::new(ShardHandle::new(config, rings.clone()));
            rings.register(&shard);
            shard
        };
        Self {
            name: name.clone(),
            incarnation,
            spec: ArcSwap::from_pointee(entry.spec.clone()),
            shards: (0..).zip(&entry.shards).map(shard).collect(),
            policies_seen: Mutex::default(),
        }
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(crate) fn class(&self) -> StreamClass {
        match self.spec.load().class {
            felix_store::StreamClass::Memory => StreamClass::Memory,
        }
    }

    pub(crate) fn spec(&self) -> Arc<StreamSpec> {
        self.spec.load_full()
    }

    /// Whether batches are refused rather than paced when memory is used up.
    pub(crate) fn sheds(&self) -> bool {
        self.spec.load().overload == OverloadPolicy::Shed
    }

    pub(crate) fn shards(&self) -> &[Arc<ShardHandle>] {
        &self.shards
    }

    pub(crate) fn shard(&self, shard: ShardId) -> Option<&Arc<ShardHandle>> {
        self.shards.get(usize::try_from(shard.0).ok()?)
    }

    /// From now on the metrics show what this policy drops, be it nothing.
    pub(crate) fn note_policy(&self, policy: SlowPolicy) {
        let index = match policy {
            SlowPolicy::DropNew => 0,
            SlowPolicy::DropOld => 1,
            SlowPolicy::Block => 2,
        };
        self.policies_seen.lock().unwrap_or_else(PoisonError::into_inner)[index] = true;
    }

    fn change_spec(&self, spec: &StreamSpec) {
        if **self.spec.load() != *spec {
            self.spec.store(Arc::new(spec.clone()));
            for shard in &self.shards {
                shard.resize(spec.ring_bytes);
            }
        }
    }

    fn end(&self) {
        for shard in &self.shards {
            shard.end();
        }
    }

    /// What was dropped under each policy that a subscription has had.
    fn dropped(&self) -> impl Iterator<Item = (SlowSubscriberPolicy, u64)> + use<> {
        let mut sum = Dropped::default();
        for shard in &self.shards {
            let dropped = shard.dropped();
            sum.drop_new += dropped.drop_new;
            sum.drop_old += dropped.drop_old;
        }
        let seen = *self.policies_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let records = [sum.drop_new, sum.drop_old, 0];
        let all = SlowSubscriberPolicy::ALL.into_iter().zip(records).zip(seen);
        all.filter_map(|(counted, seen)| seen.then_some(counted))
    }
}

/// All live streams by name.
pub(crate) struct Streams {
    live: RwLock<HashMap<StreamName, Arc<Stream>>>,
    /// What former lives dropped: a counter never goes back while the process lives.
    former: Mutex<BTreeMap<(String, SlowSubscriberPolicy), u64>>,
    /// Who has a series of its own. Once given, it is kept, so that no counter goes back.
    named: Mutex<HashSet<(String, SlowSubscriberPolicy)>>,
    rings: Rings,
}

impl Streams {
    pub(crate) fn new(rings: Rings) -> Self {
        Self {
            live: RwLock::default(),
            former: Mutex::default(),
            named: Mutex::default(),
            rings,
        }
    }

    /// The stream of a name.
    pub(crate) fn get(&self, name: &StreamName) -> Option<Arc<Stream>> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    /// Makes the live streams those of the document: new ones begin, changed ones change, others end.
    pub(crate) fn follow(&self, catalogue: &Catalogue) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let ended: Vec<StreamName> = live
            .values()
            .filter(|stream| match catalogue.streams().get(stream.name.as_str()) {
                Some(entry) => entry.incarnation != stream.incarnation.to_string(),
                None => true,
            })
            .map(|stream| stream.name.clone())
            .collect();
        for name in ended {
            if let Some(stream) = live.remove(&name) {
                self.bury(&stream);
            }
        }
        for (name, entry) in catalogue.streams() {
            if let Some(stream) = live.get(name.as_str()) {
                stream.change_spec(&entry.spec);
                continue;
            }
            match StreamName::new(name) {
                Ok(name) => {
                    let stream = Stream::new(&name, entry, &self.rings);
                    live.insert(name, Arc::new(stream));
                }
                Err(error) => {
                    tracing::error!(name, %error, "the catalogue names a stream that cannot be served")
                }
            }
        }
    }

    /// Records dropped by stream and policy since the process began, with a bound on the number of series.
    pub(crate) fn dropped(&self) -> Vec<metrics::Dropped> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let mut sums = self.former.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for stream in live.values() {
            for (policy, records) in stream.dropped() {
                *sums.entry((stream.name.as_str().to_owned(), policy)).or_default() += records;
            }
        }
        drop(live);
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let mut series = Vec::with_capacity(sums.len().min(MAX_DROP_SERIES));
        let mut rest: BTreeMap<SlowSubscriberPolicy, u64> = BTreeMap::new();
        for (key, records) in sums {
            if named.contains(&key) || named.len() < MAX_DROP_SERIES {
                named.insert(key.clone());
                series.push(metrics::Dropped {
                    stream: key.0,
                    policy: key.1,
                    records,
                });
            } else {
                *rest.entry(key.1).or_default() += records;
            }
        }
        let other = |(policy, records)| metrics::Dropped {
            stream: OTHER.to_owned(),
            policy,
            records,
        };
        series.extend(rest.into_iter().map(other));
        series
    }

    /// Bytes that slow subscriptions hold beside the rings.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.values()
            .flat_map(|stream| &stream.shards)
            .map(|shard| shard.pinned_bytes())
            .sum()
    }

    fn bury(&self, stream: &Stream) {
        stream.end();
        let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        for (policy, records) in stream.dropped() {
            *former
                .entry((stream.name.as_str().to_owned(), policy))
                .or_default() += records;
        }
    }
}
