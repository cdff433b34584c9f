//! How much each subscription may have unread in this process: what the broker is promised, and when it is promised more.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use felix_wire::{Credit, FRAME_HEAD_LEN, Frame, FrameKind};
use quinn::SendStream;

/// Most bytes that the subscriptions of one client may have unread together, unless its user says otherwise.
pub(crate) const DEFAULT_BUDGET: u64 = 64 << 20;

/// A subscription is promised this part of what is free: one alone 8 MiB of 64, ten of them some 4 MiB each, a thousand
/// the least. So those that are not read leave something for those that are, whatever their number.
const SHARE: u64 = 8;

/// The least that a subscription is promised, in bytes, also where nothing is free: a few usual batches.
pub(crate) const LEAST: u64 = 64 << 10;

/// The most, in bytes: what one fast path can have under way, and the window of its QUIC stream.
pub(crate) const MOST: u64 = 8 << 20;

/// What the subscriptions of one client are promised together.
#[derive(Debug)]
pub(crate) struct Credits {
    budget: u64,
    promised: AtomicU64,
}

impl Credits {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            budget,
            promised: AtomicU64::new(0),
        }
    }

    /// The promise to a new subscription. It is taken back when it is dropped.
    pub(crate) fn grant(self: &Arc<Self>) -> Grant {
        let promised = self.exchange(0, 0);
        Grant {
            credits: self.clone(),
            limit: promised,
            consumed: 0,
            promised,
            renew_at: promised - promised / 2,
        }
    }

    /// Gives back a promise of `old` bytes for a new one of `least` at least. How large the new one is.
    fn exchange(&self, old: u64, least: u64) -> u64 {
        let mut new = least;
        let update = |all: u64| {
            let others = all.saturating_sub(old);
            let free = self.budget.saturating_sub(others);
            new = least.max((free / SHARE).clamp(LEAST, MOST));
            Some(others + new)
        };
        // The closure never declines. Nothing else is ordered by this number.
        self.promised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
            .ok();
        new
    }
}

/// What one subscription is promised. Pure but for the sum that all share.
#[derive(Debug)]
pub(crate) struct Grant {
    credits: Arc<Credits>,
    /// The broker may send so many bytes of deliver frames in all.
    limit: u64,
    /// So many were read.
    consumed: u64,
    /// What the sum of all holds for this one.
    promised: u64,
    /// How far reading has to come before the promise is renewed.
    renew_at: u64,
}

impl Grant {
    /// The limit in force.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Notes that so many bytes were read. The new limit, when half of the promise is used up: one frame for many batches.
    pub(crate) fn consume(&mut self, bytes: u64) -> Option<u64> {
        self.consumed += bytes;
        if self.consumed < self.renew_at {
            return None;
        }
        let unread = self.limit.saturating_sub(self.consumed);
        self.promised = self.credits.exchange(self.promised, unread);
        let before = self.limit;
        self.limit = before.max(self.consumed + self.promised);
        self.renew_at = self.limit - self.promised / 2;
        (self.limit > before).then_some(self.limit)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.credits.promised.fetch_sub(self.promised, Ordering::Relaxed);
    }
}

/// A subscription's promise and the half of its stream that renews it. That half stays open, because its end would end
/// the subscription.
pub(crate) struct CreditLine {
    grant: Grant,
    send: SendStream,
    /// A limit that the broker has not been told.
    due: Option<u64>,
    /// The rest of a frame that QUIC has taken a part of.
    unsent: BytesMut,
}

impl CreditLine {
    pub(crate) fn new(grant: Grant, send: SendStream) -> Self {
        Self {
            grant,
            send,
            due: None,
            unsent: BytesMut::new(),
        }
    }

    /// A frame was read. Deliver frames use up credit, heads included.
    pub(crate) fn take(&mut self, kind: FrameKind, body: &[u8]) {
        if kind == FrameKind::Deliver {
            let bytes = FRAME_HEAD_LEN + body.len();
            self.due = self.grant.consume(bytes as u64).or(self.due);
        }
    }

    /// Hands to QUIC what the broker is to be told, as far as it takes it now.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        while self.due.is_some() || !self.unsent.is_empty() {
            if self.unsent.is_empty()
                && let Some(limit) = self.due.take()
            {
                Frame::Credit(Credit { limit }).encode(&mut self.unsent);
            }
            match Pin::new(&mut self.send).poll_write(cx, &self.unsent) {
                Poll::Ready(Ok(written)) => self.unsent.advance(written),
                Poll::Ready(Err(_)) => {
                    // The stream is over; why, its other half says.
                    self.unsent.clear();
                    return;
                }
                Poll::Pending => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promised(credits: &Credits) -> u64 {
        credits.promised.load(Ordering::Relaxed)
    }

    #[test]
    fn few_get_much_and_many_get_little_and_the_sum_is_bounded() {
        let credits = Arc::new(Credits::new(DEFAULT_BUDGET));
        let first = credits.grant();
        assert_eq!(first.limit(), MOST);
        let mut grants = vec![first];
        grants.extend((1..10).map(|_| credits.grant()));
        assert!(grants.iter().all(|grant| grant.limit() >= 2 << 20), "{grants:?}");
        grants.extend((10..500).map(|_| credits.grant()));
        let least = grants.iter().filter(|grant| grant.limit() == LEAST).count() as u64;
        assert!(
            promised(&credits) <= DEFAULT_BUDGET + least * LEAST,
            "{credits:?}"
        );
        drop(grants);
        assert_eq!(promised(&credits), 0);
    }

    #[test]
    fn those_that_read_end_with_equal_shares_and_within_the_budget() {
        let credits = Arc::new(Credits::new(DEFAULT_BUDGET));
        let mut grants: Vec<Grant> = (0..100).map(|_| credits.grant()).collect();
        for _ in 0..2000 {
            for grant in &mut grants {
                grant.consume(32 << 10);
            }
        }
        let largest = grants.iter().map(|grant| grant.promised).max().unwrap();
        let smallest = grants.iter().map(|grant| grant.promised).min().unwrap();
        assert!(largest <= 2 * smallest, "{smallest} to {largest}");
        assert!(promised(&credits) <= DEFAULT_BUDGET, "{credits:?}");
    }

    #[test]
    fn a_promise_is_renewed_when_half_of_it_is_used() {
        let credits = Arc::new(Credits::new(DEFAULT_BUDGET));
        let mut grant = credits.grant();
        assert_eq!(grant.consume(MOST / 2 - 1), None);
        assert_eq!(grant.consume(1), Some(MOST / 2 + MOST));
        // A frame may go beyond the limit.
        assert_eq!(grant.consume(3 * MOST), Some(MOST / 2 + 4 * MOST));
    }

    #[test]
    fn where_nothing_is_free_reading_still_goes_on() {
        let credits = Arc::new(Credits::new(0));
        let mut grant = credits.grant();
        assert_eq!(grant.limit(), LEAST);
        assert_eq!(grant.consume(LEAST), Some(2 * LEAST));
    }
}
