//! How far subscribers are, and publishers that stay within reach of them.
//!
//! Each subscriber passes a mark every so many records. Once all have passed a mark, publishers are told, by a call or by
//! a datagram from process to process. It is the same for every target, so that none is measured while it drops, and none
//! while it fills queues.

use std::net::UdpSocket;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use tokio::sync::Notify;

/// Nothing arrives for so long: the measurement has failed.
pub(super) const STALL: Duration = Duration::from_secs(10);

/// Marks that may be passed by some and not by others: more than lie in what may be in flight.
const MARKS: usize = 64;

/// The publisher's side.
pub(super) struct Pace {
    delivered: AtomicU64,
    moved: Notify,
    in_flight: u64,
}

impl Pace {
    pub(super) fn new(in_flight: u64) -> Self {
        Self {
            delivered: AtomicU64::new(0),
            moved: Notify::new(),
            in_flight,
        }
    }

    /// All subscribers have this many records.
    pub(super) fn reached(&self, records: u64) {
        self.delivered.fetch_max(records, Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// Waits until `sent` records may have been sent in all.
    pub(super) async fn room_for(&self, sent: u64) -> anyhow::Result<()> {
        while !self.has_room_for(sent) {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            if self.has_room_for(sent) {
                break;
            }
            if tokio::time::timeout(STALL, moved).await.is_err() {
                bail!("nothing arrived for {} s", STALL.as_secs());
            }
        }
        Ok(())
    }

    fn has_room_for(&self, sent: u64) -> bool {
        sent.saturating_sub(self.delivered.load(Ordering::SeqCst)) <= self.in_flight
    }
}

/// Where subscribers say how far all of them are.
pub(super) enum Report {
    /// To publishers in this process.
    Here(Arc<Pace>),
    /// To a publisher's process.
    There(UdpSocket),
}

impl Report {
    fn send(&self, records: u64) {
        match self {
            Self::Here(pace) => pace.reached(records),
            // The next one says more; where it is the last, the publisher's wait ends in an error.
            Self::There(socket) => drop(socket.send(&records.to_le_bytes())),
        }
    }
}

/// The subscribers' side.
pub(super) struct Marks {
    passed: [AtomicU32; MARKS],
    subscribers: u32,
    step: u64,
    report: Report,
}

impl Marks {
    pub(super) fn new(subscribers: usize, step: u64, report: Report) -> Self {
        Self {
            passed: std::array::from_fn(|_| AtomicU32::new(0)),
            subscribers: u32::try_from(subscribers).unwrap_or(u32::MAX),
            step,
            report,
        }
    }

    /// A subscriber that had `before` records has `now`.
    pub(super) fn moved(&self, before: u64, now: u64) {
        for mark in before / self.step..now / self.step {
            let place = &self.passed[(mark % MARKS as u64) as usize];
            // Marks are passed in order by each, so the last to pass one is the last to have passed all before it.
            if place.fetch_add(1, Ordering::AcqRel) + 1 == self.subscribers {
                place.store(0, Ordering::Release);
                self.report.send((mark + 1) * self.step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn publishers_go_as_far_as_the_slowest_subscriber_allows() {
        let pace = Arc::new(Pace::new(10));
        let marks = Marks::new(2, 5, Report::Here(pace.clone()));
        pace.room_for(10).await.unwrap();
        marks.moved(0, 9);
        assert!(!pace.has_room_for(11), "the other has nothing yet");
        marks.moved(0, 4);
        marks.moved(4, 5);
        assert!(pace.has_room_for(15) && !pace.has_room_for(16));
        marks.moved(9, 11);
        marks.moved(5, 12);
        pace.room_for(20).await.unwrap();
    }

    #[test]
    fn marks_are_used_again() {
        let pace = Arc::new(Pace::new(1));
        let marks = Marks::new(3, 1, Report::Here(pace.clone()));
        for record in 0..10 * MARKS as u64 {
            for _ in 0..3 {
                assert!(!pace.has_room_for(record + 2));
                marks.moved(record, record + 1);
            }
            assert!(pace.has_room_for(record + 2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_an_error() {
        let failed = Pace::new(1).room_for(2).await.unwrap_err();
        assert!(failed.to_string().contains("nothing arrived"), "{failed}");
    }
}
