//! Counting things that come and go, up to a limit, without a chance to forget the going.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// How many of something there are, and how many there may be. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    count: Arc<AtomicUsize>,
    limit: usize,
}

/// One that is there until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Gauge {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            count: Arc::default(),
            limit,
        }
    }

    /// Counts one more, unless there are as many as there may be.
    pub(crate) fn enter(&self) -> Option<Counted> {
        let more = |count| (count < self.limit).then_some(count + 1);
        self.count.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Counted(Arc::clone(&self.count)))
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_places_come_back() {
        let gauge = Gauge::new(2);
        let first = gauge.enter().unwrap();
        let _second = gauge.clone().enter().unwrap();
        assert!(gauge.enter().is_none());
        drop(first);
        assert_eq!(gauge.count(), 1);
        assert!(gauge.enter().is_some());
    }
}
