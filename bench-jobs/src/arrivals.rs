//! What has arrived at all subscribers together, and waiting for it: readiness, the end of the warm-up, the end of a row.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::progress::Progress;

/// Counts records that are accounted for: received, or told as dropped.
pub(crate) struct Arrivals {
    accounted: AtomicU64,
    target: AtomicU64,
    reached: Notify,
    failure: OnceLock<String>,
    progress: Arc<Progress>,
}

impl Arrivals {
    /// Nothing has arrived; arrivals also move `progress`.
    pub(crate) fn new(progress: Arc<Progress>) -> Self {
        Self {
            accounted: AtomicU64::new(0),
            target: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
            failure: OnceLock::new(),
            progress,
        }
    }

    /// A subscriber has accounted for `records` more.
    pub(crate) fn add(&self, records: u64) {
        self.progress.counter().fetch_add(records, Ordering::Relaxed);
        // Either this sees the target that is being set, or whoever sets it sees these records: hence SeqCst.
        let accounted = self.accounted.fetch_add(records, Ordering::SeqCst) + records;
        if accounted >= self.target.load(Ordering::SeqCst) {
            self.reached.notify_one();
        }
    }

    /// A subscriber has failed; whoever waits is told. The first reason is kept.
    pub(crate) fn fail(&self, why: String) {
        self.failure.set(why).ok();
        self.reached.notify_one();
    }

    /// Why a subscriber failed, if one did.
    pub(crate) fn failure(&self) -> Option<&String> {
        self.failure.get()
    }

    /// Waits until `records` are accounted for in all. Fails when a subscriber fails, or when nothing arrives for `stall`.
    /// One waiter at a time.
    pub(crate) async fn wait_for(&self, records: u64, stall: Duration) -> Result<(), String> {
        self.target.store(records, Ordering::SeqCst);
        let mut last = self.accounted.load(Ordering::SeqCst);
        loop {
            if let Some(why) = self.failure.get() {
                return Err(why.clone());
            }
            if self.accounted.load(Ordering::SeqCst) >= records {
                return Ok(());
            }
            if tokio::time::timeout(stall, self.reached.notified())
                .await
                .is_err()
            {
                let now = self.accounted.load(Ordering::SeqCst);
                if now == last {
                    return Err(format!("nothing arrived for {} s", stall.as_secs()));
                }
                last = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(10);

    fn arrivals() -> Arc<Arrivals> {
        Arc::new(Arrivals::new(Arc::new(Progress::new())))
    }

    #[tokio::test]
    async fn the_last_record_ends_the_wait() {
        let arrivals = arrivals();
        let waiting = tokio::spawn({
            let arrivals = arrivals.clone();
            async move { arrivals.wait_for(10, STALL).await }
        });
        for _ in 0..10 {
            arrivals.add(1);
            tokio::task::yield_now().await;
        }
        waiting.await.unwrap().unwrap();
        arrivals.wait_for(10, STALL).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_a_stall_and_slow_progress_is_not() {
        let arrivals = arrivals();
        let slow = tokio::spawn({
            let arrivals = arrivals.clone();
            async move {
                for _ in 0..5 {
                    tokio::time::sleep(STALL / 2).await;
                    arrivals.add(1);
                }
            }
        });
        arrivals.wait_for(5, STALL).await.unwrap();
        slow.await.unwrap();
        assert!(
            arrivals
                .wait_for(6, STALL)
                .await
                .unwrap_err()
                .contains("nothing arrived")
        );
    }

    #[tokio::test]
    async fn a_failed_subscriber_ends_the_wait() {
        let arrivals = arrivals();
        arrivals.fail("first".into());
        arrivals.fail("second".into());
        assert_eq!(arrivals.wait_for(1, STALL).await, Err("first".into()));
    }
}
