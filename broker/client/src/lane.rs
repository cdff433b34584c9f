//! One publisher's way to one shard: the outbox behind a lock, and the task that owns the QUIC stream.
//!
//! A record crosses no queue. Whoever sends appends it to the open batch; when nothing is in flight the same call seals the
//! batch and hands it to QUIC. Otherwise the task is woken. It lets all that can run do so once, then seals what has
//! gathered: that is how concurrent senders share batches without a timer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use felix_wire::{
    BatchBuilder, ErrorCode, ErrorKind, Frame, FrameKind, MAX_ANSWER_BYTES, OpenPublish, ProducerId, ShardId,
    StreamName,
};
use quinn::{SendStream, WriteError};
use tokio::sync::Notify;
use tokio::time::Sleep;

use crate::ack::Ack;
use crate::error::{ConnectError, PublishError};
use crate::frames::{FrameReader, ReadEnd, code_of};
use crate::link::Links;
use crate::outbox::{Limits, Next, NotTaken, Outbox};
use crate::record::Record;

/// Pause before a stream that the broker ended is opened anew on the same connection.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);

/// Which shard of which stream.
pub(crate) struct Destination {
    pub(crate) stream: StreamName,
    pub(crate) shard: ShardId,
    pub(crate) producer: ProducerId,
}

/// See the module.
pub(crate) struct Lane {
    destination: Destination,
    links: Arc<Links>,
    /// How long a record may wait for its answer.
    patience: Duration,
    state: Mutex<State>,
    /// Told when senders may find room again.
    room: Notify,
    /// Told when nothing is held any more.
    idle: Notify,
}

struct State {
    outbox: Outbox,
    /// Present while the publisher is open at the broker.
    stream: Option<SendStream>,
    /// The task, where it sleeps.
    task: Option<Waker>,
    /// Senders wait for room.
    crowded: bool,
    /// The task has let others run before it seals the open batch.
    yielded: bool,
    /// The publisher was dropped or closed: the task ends once nothing is held.
    closing: bool,
    /// The publisher is finished, and why.
    stopped: Option<PublishError>,
}

/// Why the task leaves a stream.
enum Left {
    /// Open it anew: the connection or the stream ended, or the epoch changed.
    Reopen(Pause),
    /// All is done.
    Done,
    /// The publisher is finished.
    Stopped(PublishError),
}

enum Pause {
    None,
    Short,
}

impl Lane {
    pub(crate) fn new(
        destination: Destination,
        links: Arc<Links>,
        limits: Limits,
        patience: Duration,
    ) -> Self {
        let outbox = Outbox::new(destination.shard, destination.producer, limits);
        Self {
            destination,
            links,
            patience,
            state: Mutex::new(State {
                outbox,
                stream: None,
                task: None,
                crowded: false,
                yielded: false,
                closing: false,
                stopped: None,
            }),
            room: Notify::new(),
            idle: Notify::new(),
        }
    }

    pub(crate) fn shard(&self) -> ShardId {
        self.destination.shard
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a record if there is room.
    pub(crate) fn try_send(&self, record: &Record<'_>) -> Result<Ack, NotTaken> {
        let mut state = self.lock();
        state.check()?;
        let (ack, index) = state
            .outbox
            .push(record, Instant::now())
            .inspect_err(|_| state.crowded = true)?;
        if state.stream.is_some() && state.outbox.nothing_in_flight() {
            state.outbox.seal_due();
            state.write_now();
        } else {
            state.wake_task();
        }
        Ok(Ack::new(ack, index))
    }

    /// Takes a whole batch if there is room; otherwise it stays in `batch`.
    pub(crate) fn try_send_batch(&self, batch: &mut Option<BatchBuilder>) -> Result<Ack, NotTaken> {
        let mut state = self.lock();
        state.check()?;
        let (ack, index) = state
            .outbox
            .push_batch(batch, Instant::now())
            .inspect_err(|_| state.crowded = true)?;
        state.write_now();
        Ok(Ack::new(ack, index))
    }

    /// An open batch for [`try_send_batch`](Self::try_send_batch), and the largest record that it takes, in bytes.
    pub(crate) fn builder(&self) -> (BatchBuilder, usize) {
        let state = self.lock();
        (state.outbox.builder(), state.outbox.record_bytes())
    }

    /// Repeats `attempt` until there is room for what it sends.
    pub(crate) async fn when_room<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, NotTaken>,
    ) -> Result<T, PublishError> {
        loop {
            let mut freed = pin!(self.room.notified());
            freed.as_mut().enable();
            match attempt() {
                Ok(sent) => return Ok(sent),
                Err(NotTaken::Never(error)) => return Err(error),
                Err(NotTaken::Full) => freed.await,
            }
        }
    }

    /// Lets the task end once all is answered.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        state.wake_task();
    }

    /// Waits until nothing is held.
    pub(crate) async fn flushed(&self) -> Result<(), PublishError> {
        loop {
            let mut idle = pin!(self.idle.notified());
            idle.as_mut().enable();
            {
                let state = self.lock();
                if let Some(error) = &state.stopped {
                    return Err(error.clone());
                }
                if state.outbox.is_idle() {
                    return Ok(());
                }
            }
            idle.await;
        }
    }

    /// Opens the publisher at the broker and waits for the answer.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other frame is equally out of place"
    )]
    async fn open(&self) -> Result<FrameReader, Left> {
        let link = self
            .links
            .get()
            .await
            .map_err(|error| Left::Stopped(error.into()))?;
        let epoch = self.lock().outbox.epoch();
        let first = Frame::OpenPublish(OpenPublish {
            stream: self.destination.stream.clone(),
            shard: self.destination.shard,
            producer: self.destination.producer,
            epoch,
        });
        let (send, recv) = link.open(&first).await.map_err(left)?;
        let mut reader = FrameReader::new(recv, MAX_ANSWER_BYTES);
        match reader.next().await.map_err(left)? {
            Frame::PublishOpened(opened) => {
                let mut state = self.lock();
                state
                    .outbox
                    .adopt_limits(opened.max_batch_bytes, opened.max_record_bytes);
                match state.outbox.opened(opened.incarnation) {
                    Next::Continue => {
                        state.stream = Some(send);
                        Ok(reader)
                    }
                    Next::Reopen => Err(Left::Reopen(Pause::None)),
                    Next::Stop(error) => Err(Left::Stopped(error)),
                }
            }
            Frame::Error(error) => Err(ended_by(error.code, error.detail)),
            other => Err(Left::Stopped(unexpected(other.kind()))),
        }
    }

    /// Runs until the publisher is closed and everything answered, or cannot go on. `opened` is told of the first
    /// opening, or why there is none.
    pub(crate) async fn run(self: Arc<Self>, opened: impl FnOnce(Result<(), PublishError>)) {
        let mut opened = Some(opened);
        loop {
            let left = match self.open_within_patience().await {
                Ok(reader) => {
                    if let Some(opened) = opened.take() {
                        opened(Ok(()));
                    }
                    self.serve(reader).await
                }
                Err(left) => left,
            };
            self.lock().stream = None;
            self.told();
            match left {
                Left::Done => return,
                Left::Stopped(error) => {
                    if let Some(opened) = opened.take() {
                        opened(Err(error.clone()));
                    }
                    return self.stop(error);
                }
                Left::Reopen(Pause::None) => {}
                Left::Reopen(Pause::Short) => tokio::time::sleep(REOPEN_PAUSE).await,
            }
        }
    }

    /// Opens, and meanwhile gives up what has waited too long.
    async fn open_within_patience(&self) -> Result<FrameReader, Left> {
        let mut opening = pin!(self.open());
        loop {
            let tick = tokio::time::sleep(self.patience.min(Duration::from_secs(1)));
            tokio::select! {
                reader = &mut opening => return reader,
                () = tick => {}
            }
            let mut state = self.lock();
            state.outbox.expire(Instant::now(), self.patience);
            let done = state.closing && state.outbox.is_idle();
            drop(state);
            self.told();
            if done {
                return Err(Left::Done);
            }
        }
    }

    /// Writes batches and takes answers until the stream ends.
    async fn serve(&self, mut reader: FrameReader) -> Left {
        let mut alarm = pin!(tokio::time::sleep(self.patience));
        poll_fn(|cx| self.poll_serve(&mut reader, alarm.as_mut(), cx)).await
    }

    fn poll_serve(
        &self,
        reader: &mut FrameReader,
        alarm: Pin<&mut Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<Left> {
        let read = self.poll_answers(reader, cx);
        if read.is_ready() {
            return read;
        }
        let mut state = self.lock();
        loop {
            if let Err(left) = state.write(cx) {
                return Poll::Ready(left);
            }
            if !state.outbox.unwritten().is_empty() || !state.seal_gathered(cx) {
                break;
            }
        }
        if state.closing && state.outbox.is_idle() {
            if let Some(stream) = &mut state.stream {
                // A stream that is closed already is finished too.
                stream.finish().ok();
            }
            return Poll::Ready(Left::Done);
        }
        if self.poll_expired(&mut state, alarm, cx) {
            drop(state);
            self.told();
            return Poll::Ready(Left::Reopen(Pause::None));
        }
        match &mut state.task {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Looks at the alarm; sets it to the next deadline. Whether something expired so that the stream must be left.
    fn poll_expired(&self, state: &mut State, mut alarm: Pin<&mut Sleep>, cx: &mut Context<'_>) -> bool {
        while alarm.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if state.outbox.expire(now, self.patience) {
                return true;
            }
            let next = state
                .outbox
                .deadline(self.patience)
                .unwrap_or(now + self.patience);
            alarm
                .as_mut()
                .reset(next.max(now + Duration::from_millis(1)).into());
        }
        false
    }

    /// Takes all answers that are here.
    fn poll_answers(&self, reader: &mut FrameReader, cx: &mut Context<'_>) -> Poll<Left> {
        loop {
            let (kind, body) = match reader.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(end)) => return Poll::Ready(left(end)),
                Poll::Ready(Ok(frame)) => frame,
            };
            match self.take_answer(kind, body) {
                Next::Continue => {}
                Next::Reopen => return Poll::Ready(Left::Reopen(Pause::Short)),
                Next::Stop(error) => return Poll::Ready(Left::Stopped(error)),
            }
        }
    }

    fn take_answer(&self, kind: FrameKind, body: Bytes) -> Next {
        match Frame::decode(kind, body) {
            Ok(Frame::Acks(acks)) => {
                let mut state = self.lock();
                let mut next = Next::Continue;
                for entry in acks.into_entries() {
                    next = state.outbox.answer(entry);
                    if !matches!(next, Next::Continue) {
                        break;
                    }
                }
                self.tell(state);
                next
            }
            Ok(Frame::Error(error)) => match ended_by(error.code, error.detail) {
                Left::Stopped(error) => Next::Stop(error),
                Left::Reopen(_) | Left::Done => Next::Reopen,
            },
            Ok(other) => Next::Stop(unexpected(other.kind())),
            Err(error) => Next::Stop(protocol(error.to_string())),
        }
    }

    /// Tells those who wait for room, and those who wait for the end.
    fn told(&self) {
        self.tell(self.lock());
    }

    fn tell(&self, mut state: MutexGuard<'_, State>) {
        let crowded = std::mem::take(&mut state.crowded);
        let idle = state.outbox.is_idle();
        drop(state);
        if crowded {
            self.room.notify_waiters();
        }
        if idle {
            self.idle.notify_waiters();
        }
    }

    fn stop(&self, error: PublishError) {
        let mut state = self.lock();
        state.outbox.fail_all(&error);
        state.stopped = Some(error);
        drop(state);
        self.room.notify_waiters();
        self.idle.notify_waiters();
    }
}

impl State {
    fn check(&self) -> Result<(), NotTaken> {
        match &self.stopped {
            Some(error) => Err(NotTaken::Never(error.clone())),
            None if self.closing => Err(NotTaken::Never(PublishError::Closed)),
            None => Ok(()),
        }
    }

    fn wake_task(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Seals the open batch if it is due. While others are in flight the task first goes behind everything that can run:
    /// an answer wakes many senders, and the first of them wakes this task, which would seal a batch of one record.
    fn seal_gathered(&mut self, cx: &Context<'_>) -> bool {
        let due = self.outbox.is_due();
        if due && !self.yielded && !self.outbox.nothing_in_flight() {
            self.yielded = true;
            cx.waker().wake_by_ref();
            return false;
        }
        self.yielded = false;
        due && self.outbox.seal_due()
    }

    /// Hands to QUIC what it takes at once; the task does the rest.
    fn write_now(&mut self) {
        let done = self.write(&mut Context::from_waker(Waker::noop()));
        if done.is_err() || !self.outbox.unwritten().is_empty() {
            self.wake_task();
        }
    }

    /// Hands to QUIC what it takes; registers the waker where it takes no more.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), Left> {
        let Some(stream) = &mut self.stream else {
            return Err(Left::Reopen(Pause::Short));
        };
        while !self.outbox.unwritten().is_empty() {
            let polled = pin!(stream.write_chunks(self.outbox.unwritten())).poll(cx);
            match polled {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(written)) => self.outbox.written(written.chunks),
                Poll::Ready(Err(error)) => {
                    self.stream = None;
                    return Err(match error {
                        WriteError::Stopped(code) => ended_by(code_of(code), 0),
                        WriteError::ConnectionLost(_)
                        | WriteError::ClosedStream
                        | WriteError::ZeroRttRejected => Left::Reopen(Pause::None),
                    });
                }
            }
        }
        Ok(())
    }
}

/// What the end of the answers means.
fn left(end: ReadEnd) -> Left {
    match end {
        ReadEnd::Reset(code) => ended_by(code, 0),
        ReadEnd::Finished => Left::Reopen(Pause::Short),
        ReadEnd::Lost(_) => Left::Reopen(Pause::None),
        ReadEnd::Broken(error) => Left::Stopped(protocol(error.to_string())),
    }
}

/// What an error of the table means for the publisher: what may pass is tried again, the rest is final.
fn ended_by(code: ErrorCode, detail: u64) -> Left {
    match code.kind() {
        ErrorKind::Retry | ErrorKind::Unknown => Left::Reopen(Pause::Short),
        ErrorKind::DoNotRetry => Left::Stopped(PublishError::Refused { code, detail }),
    }
}

fn unexpected(kind: FrameKind) -> PublishError {
    protocol(format!("{kind:?} in answer to a publisher"))
}

fn protocol(reason: String) -> PublishError {
    ConnectError::Protocol { reason }.into()
}
