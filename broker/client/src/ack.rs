//! Acknowledgements: a future per record, all records of a batch sharing one state. Dropping a future loses nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use felix_wire::{Offset, Reached};

use crate::error::PublishError;
use crate::record::Receipt;

/// Resolves when the broker has acknowledged the record, or refused it, or when that will not be known.
///
/// The record is sent whether or not this future is awaited; dropping it only drops the answer.
#[must_use = "a record is only known to be stored once its acknowledgement has been awaited"]
#[derive(Debug)]
pub struct Ack {
    batch: Arc<BatchAck>,
    /// Which record of the batch.
    index: u32,
    /// Where this future's waker stands in the batch.
    place: Option<usize>,
}

impl Ack {
    pub(crate) fn new(batch: Arc<BatchAck>, index: u32) -> Self {
        Self {
            batch,
            index,
            place: None,
        }
    }

    /// The answer if it is here already.
    pub fn try_take(&self) -> Option<Result<Receipt, PublishError>> {
        self.batch.receipt(self.index)
    }
}

impl Future for Ack {
    type Output = Result<Receipt, PublishError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(receipt) = self.batch.receipt(self.index) {
            return Poll::Ready(receipt);
        }
        let place = self.batch.wait(self.place, cx.waker());
        self.place = Some(place);
        // The answer may have come between the look and the waiting.
        match self.batch.receipt(self.index) {
            Some(receipt) => Poll::Ready(receipt),
            None => Poll::Pending,
        }
    }
}

/// What a batch was answered.
pub(crate) type Outcome = Result<(Offset, Reached), PublishError>;

/// The shared state of a batch's acknowledgements.
#[derive(Debug)]
pub(crate) struct BatchAck {
    shard: u32,
    outcome: OnceLock<Outcome>,
    wakers: Mutex<Wakers>,
}

/// Who waits. The usual one or none takes no allocation; there are never more than records in the batch.
#[derive(Debug, Default)]
struct Wakers {
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl BatchAck {
    pub(crate) fn new(shard: u32) -> Arc<Self> {
        Arc::new(Self {
            shard,
            outcome: OnceLock::new(),
            wakers: Mutex::new(Wakers::default()),
        })
    }

    /// Answers all waiting futures. Later answers change nothing.
    pub(crate) fn resolve(&self, outcome: Outcome) {
        if self.outcome.set(outcome).is_err() {
            return;
        }
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers
            .first
            .into_iter()
            .chain(wakers.others)
            .for_each(Waker::wake);
    }

    fn receipt(&self, index: u32) -> Option<Result<Receipt, PublishError>> {
        self.outcome.get().map(|outcome| match outcome {
            Ok((base, reached)) => Ok(Receipt {
                shard: self.shard,
                offset: base.plus(index.into()).0,
                reached: *reached,
            }),
            Err(error) => Err(error.clone()),
        })
    }

    /// Registers a waker at its place, or at a new one.
    fn wait(&self, place: Option<usize>, waker: &Waker) -> usize {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        match place {
            Some(0) => wakers
                .first
                .get_or_insert_with(|| waker.clone())
                .clone_from(waker),
            Some(place) => match wakers.others.get_mut(place - 1) {
                Some(known) => known.clone_from(waker),
                // Already answered: the caller looks again.
                None => waker.wake_by_ref(),
            },
            None if wakers.first.is_none() => {
                wakers.first = Some(waker.clone());
                return 0;
            }
            None => {
                wakers.others.push(waker.clone());
                return wakers.others.len();
            }
        }
        place.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll(ack: &mut Ack, waker: &Waker) -> Poll<Result<Receipt, PublishError>> {
        Pin::new(ack).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn every_waiting_record_is_woken_once_and_told_its_own_offset() {
        let counts: Vec<_> = (0..3).map(|_| Arc::new(Count(AtomicUsize::new(0)))).collect();
        let wakers: Vec<Waker> = counts.iter().map(|count| Waker::from(count.clone())).collect();
        let batch = BatchAck::new(4);
        let mut acks: Vec<_> = (0..3).map(|index| Ack::new(batch.clone(), index)).collect();
        for (ack, waker) in acks.iter_mut().zip(&wakers) {
            assert!(poll(ack, waker).is_pending());
            assert!(poll(ack, waker).is_pending(), "polling twice registers once");
        }
        batch.resolve(Ok((Offset(100), Reached::Stored)));
        assert!(counts.iter().all(|count| count.0.load(Ordering::SeqCst) == 1));
        for (index, (ack, waker)) in acks.iter_mut().zip(&wakers).enumerate() {
            let Poll::Ready(Ok(receipt)) = poll(ack, waker) else {
                panic!("not acknowledged")
            };
            assert_eq!((receipt.shard, receipt.offset), (4, 100 + index as u64));
        }
    }

    #[test]
    fn a_moved_future_wakes_its_new_task() {
        let (old, new) = (
            Arc::new(Count(AtomicUsize::new(0))),
            Arc::new(Count(AtomicUsize::new(0))),
        );
        let batch = BatchAck::new(0);
        let mut acks = [Ack::new(batch.clone(), 0), Ack::new(batch.clone(), 1)];
        for ack in &mut acks {
            assert!(poll(ack, &old.clone().into()).is_pending());
            assert!(poll(ack, &new.clone().into()).is_pending());
        }
        batch.resolve(Err(PublishError::Closed));
        assert_eq!(
            (old.0.load(Ordering::SeqCst), new.0.load(Ordering::SeqCst)),
            (0, 2)
        );
    }

    #[test]
    fn a_dropped_future_leaves_the_others_alone() {
        let batch = BatchAck::new(0);
        let mut kept = Ack::new(batch.clone(), 1);
        let mut dropped = Ack::new(batch.clone(), 0);
        assert!(poll(&mut dropped, Waker::noop()).is_pending());
        assert!(poll(&mut kept, Waker::noop()).is_pending());
        drop(dropped);
        batch.resolve(Ok((Offset(7), Reached::Stored)));
        assert!(matches!(
            poll(&mut kept, Waker::noop()),
            Poll::Ready(Ok(Receipt { offset: 8, .. }))
        ));
        batch.resolve(Err(PublishError::Closed));
        assert!(kept.try_take().unwrap().is_ok(), "the first answer stands");
    }
}
