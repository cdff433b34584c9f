//! Subscribing: one QUIC stream per shard, read directly by whoever calls `next`. There is no task and no queue behind it,
//! so not calling `next` is the back-pressure.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use felix_wire::{
    ErrorCode, ErrorKind, Frame, FrameKind, MAX_FRAME_BYTES, ShardId, SlowPolicy, Start, StreamName,
    Subscribe, Subscribed,
};

use crate::client::Client;
use crate::credit::CreditLine;
use crate::cursor::Cursor;
use crate::error::{ConnectError, MetadataError, SubscribeError};
use crate::frames::{FrameReader, ReadEnd};
use crate::inbox::{Inbox, Taken};
use crate::link::Links;
use crate::record::Delivery;

/// Pause before a subscription that the broker ended, or refused for now, is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(100);

/// Prepares a [`Subscription`].
#[derive(Clone, Debug)]
pub struct SubscribeBuilder {
    client: Client,
    stream: String,
    start: Start,
    policy: Option<SlowPolicy>,
    window: u64,
}

impl SubscribeBuilder {
    pub(crate) fn new(client: Client, stream: &str) -> Self {
        Self {
            client,
            stream: stream.to_owned(),
            start: Start::Latest,
            policy: None,
            window: 0,
        }
    }

    /// Where to begin (latest unless set). An offset is that of every shard.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// What happens when this subscription is slower than the publishers. Without it, what the stream says.
    #[must_use]
    pub fn policy(mut self, policy: SlowPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// How far this subscription may fall behind before the policy acts, in bytes. Without it, what the stream says.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// Opens the subscription. Once this returns, the broker answers for every record from here on.
    pub async fn open(self) -> Result<Subscription, SubscribeError> {
        let stream = StreamName::new(&self.stream)?;
        let metadata = self
            .client
            .metadata(stream.as_str())
            .await
            .map_err(from_metadata)?;
        let wish = Arc::new(Wish {
            stream,
            policy: self.policy,
            window: self.window,
            links: self.client.links().clone(),
        });
        let mut shards = Vec::with_capacity(metadata.shards as usize);
        for shard in 0..metadata.shards {
            let mut reader = ShardReader::new(wish.clone(), ShardId(shard), self.start);
            reader.open().await?;
            shards.push(reader);
        }
        Ok(Subscription {
            shards,
            turn: 0,
            failed: None,
            ended: false,
        })
    }
}

/// What a subscription asks of the broker, in every shard and at every reconnect.
struct Wish {
    stream: StreamName,
    policy: Option<SlowPolicy>,
    window: u64,
    links: Arc<Links>,
}

/// Yields the records of a stream, and gaps where records were not delivered.
///
/// Within a shard, records come in the order of their offsets. After a lost connection it goes on where it was; what was no
/// longer kept, or belonged to a former life of the stream, comes as a gap.
pub struct Subscription {
    shards: Vec<ShardReader>,
    /// Which shard is looked at first, so that a busy one does not starve the others.
    turn: usize,
    failed: Option<SubscribeError>,
    ended: bool,
}

impl Subscription {
    /// The next record or gap. `None` after the client was closed, or after an error that is final. Dropping the future
    /// loses nothing.
    pub async fn next(&mut self) -> Result<Option<Delivery>, SubscribeError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next record or gap that this process holds already: after `next` has waited, the rest of what came with it.
    pub fn next_buffered(&mut self) -> Option<Delivery> {
        for _ in 0..self.shards.len() {
            let shard = self.shards.get_mut(self.turn)?;
            match shard.take_buffered() {
                Ok(Some(delivery)) => return Some(delivery),
                Ok(None) => self.turn = (self.turn + 1) % self.shards.len(),
                Err(error) => {
                    self.failed = Some(error);
                    return None;
                }
            }
        }
        None
    }

    /// The policy and window in force at the broker, of the first shard, where this version knows the policy.
    pub fn terms(&self) -> Option<(SlowPolicy, u64)> {
        let subscribed = self.shards.first()?.subscribed?;
        Some((subscribed.policy?, subscribed.window))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Delivery>, SubscribeError>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(self.fail(error));
        }
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        for _ in 0..self.shards.len() {
            let Some(shard) = self.shards.get_mut(self.turn) else {
                break;
            };
            match shard.poll(cx) {
                Poll::Ready(Ok(delivery)) => return Poll::Ready(Ok(Some(delivery))),
                Poll::Ready(Err(error)) => return Poll::Ready(self.fail(error)),
                Poll::Pending => self.turn = (self.turn + 1) % self.shards.len(),
            }
        }
        Poll::Pending
    }

    fn fail(&mut self, error: SubscribeError) -> Result<Option<Delivery>, SubscribeError> {
        self.ended = error.kind() == ErrorKind::DoNotRetry;
        if matches!(error, SubscribeError::Connect(ConnectError::Closed)) {
            Ok(None)
        } else {
            Err(error)
        }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

/// A subscription that the broker has registered.
struct Opened {
    reader: FrameReader,
    credit: CreditLine,
    subscribed: Subscribed,
}

type Opening = Pin<Box<dyn Future<Output = Result<Opened, SubscribeError>> + Send>>;

enum State {
    /// Boxed and kept here, so that whoever stops waiting does not start it over.
    Opening(Opening),
    /// The broker's half is read, ours renews the credit.
    Open { reader: FrameReader, credit: CreditLine },
}

/// One shard's part of a subscription.
struct ShardReader {
    wish: Arc<Wish>,
    shard: ShardId,
    cursor: Cursor,
    subscribed: Option<Subscribed>,
    inbox: Inbox,
    state: State,
}

impl ShardReader {
    fn new(wish: Arc<Wish>, shard: ShardId, start: Start) -> Self {
        let cursor = Cursor::new(start);
        let opening = Box::pin(open_once(wish.clone(), shard, cursor));
        Self {
            wish,
            shard,
            cursor,
            subscribed: None,
            inbox: Inbox::new(shard),
            state: State::Opening(opening),
        }
    }

    /// Waits until the broker has registered the subscription.
    async fn open(&mut self) -> Result<(), SubscribeError> {
        poll_fn(|cx| match &mut self.state {
            State::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                Ok(opened) => {
                    self.opened(opened);
                    Poll::Ready(Ok(()))
                }
                Err(error) => Poll::Ready(Err(error)),
            },
            State::Open { .. } => Poll::Ready(Ok(())),
        })
        .await
    }

    fn opened(&mut self, opened: Opened) {
        let Opened {
            reader,
            credit,
            subscribed,
        } = opened;
        self.cursor.subscribed(&subscribed);
        self.subscribed = Some(subscribed);
        self.state = State::Open { reader, credit };
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Delivery, SubscribeError>> {
        loop {
            if let Some(delivery) = self.inbox.next()? {
                return Poll::Ready(Ok(delivery));
            }
            match &mut self.state {
                State::Opening(opening) => {
                    let opened = ready!(opening.as_mut().poll(cx))?;
                    self.opened(opened);
                }
                State::Open { reader, credit } => {
                    credit.flush(cx);
                    match ready!(reader.poll(cx)) {
                        Ok((kind, body)) => {
                            credit.take(kind, &body);
                            credit.flush(cx);
                            self.take_frame(kind, body)?;
                        }
                        Err(end) => self.ended(end)?,
                    }
                }
            }
        }
    }

    fn take_buffered(&mut self) -> Result<Option<Delivery>, SubscribeError> {
        loop {
            if let Some(delivery) = self.inbox.next()? {
                return Ok(Some(delivery));
            }
            let State::Open { reader, credit } = &mut self.state else {
                return Ok(None);
            };
            match reader.take_buffered() {
                Ok(Some((kind, body))) => {
                    credit.take(kind, &body);
                    self.take_frame(kind, body)?;
                }
                Ok(None) => return Ok(None),
                Err(end) => self.ended(end)?,
            }
        }
    }

    fn take_frame(&mut self, kind: FrameKind, body: bytes::Bytes) -> Result<(), SubscribeError> {
        match self.inbox.take(kind, body, &mut self.cursor)? {
            Taken::Delivery => Ok(()),
            Taken::Ended { code, message } => self.refused(code, message),
        }
    }

    /// The stream ended without a word, or with a code.
    fn ended(&mut self, end: ReadEnd) -> Result<(), SubscribeError> {
        match end {
            ReadEnd::Reset(code) => self.refused(code, String::new()),
            ReadEnd::Broken(error) => Err(SubscribeError::Damaged {
                reason: error.to_string(),
            }),
            ReadEnd::Finished | ReadEnd::Lost(_) => {
                self.resume();
                Ok(())
            }
        }
    }

    /// What may pass is tried again by itself. That the subscription was too slow is something its user must know.
    fn refused(&mut self, code: ErrorCode, message: String) -> Result<(), SubscribeError> {
        if code.kind() == ErrorKind::DoNotRetry {
            return Err(SubscribeError::Refused { code, message });
        }
        self.resume();
        if code == ErrorCode::TooSlow {
            Err(SubscribeError::Refused { code, message })
        } else {
            Ok(())
        }
    }

    fn resume(&mut self) {
        self.state = State::Opening(Box::pin(open_again(self.wish.clone(), self.shard, self.cursor)));
    }
}

/// Opens a subscription for the first time: refusals are the user's to handle.
async fn open_once(wish: Arc<Wish>, shard: ShardId, cursor: Cursor) -> Result<Opened, SubscribeError> {
    loop {
        match try_open(&wish, shard, cursor).await {
            Ok(opened) => return Ok(opened),
            Err(Refusal::Passing) => tokio::time::sleep(REOPEN_PAUSE).await,
            Err(Refusal::Broker { code, message }) => return Err(SubscribeError::Refused { code, message }),
            Err(Refusal::Final(error)) => return Err(error),
        }
    }
}

/// Opens a subscription that was open before: what may pass is tried until it does.
async fn open_again(wish: Arc<Wish>, shard: ShardId, cursor: Cursor) -> Result<Opened, SubscribeError> {
    loop {
        match try_open(&wish, shard, cursor).await {
            Ok(opened) => return Ok(opened),
            Err(Refusal::Broker { code, message }) if code.kind() == ErrorKind::DoNotRetry => {
                return Err(SubscribeError::Refused { code, message });
            }
            Err(Refusal::Final(error)) => return Err(error),
            Err(Refusal::Passing | Refusal::Broker { .. }) => tokio::time::sleep(REOPEN_PAUSE).await,
        }
    }
}

/// Why an attempt to open failed.
enum Refusal {
    /// The connection or the stream broke.
    Passing,
    /// The broker said no.
    Broker { code: ErrorCode, message: String },
    /// There is no sense in another attempt.
    Final(SubscribeError),
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other frame is equally out of place"
)]
async fn try_open(wish: &Wish, shard: ShardId, cursor: Cursor) -> Result<Opened, Refusal> {
    let link = wish
        .links
        .get()
        .await
        .map_err(|error| Refusal::Final(error.into()))?;
    let (start, incarnation) = cursor.request();
    let grant = wish.links.credits().grant();
    let first = Frame::Subscribe(Subscribe {
        stream: wish.stream.clone(),
        shard,
        start,
        incarnation,
        policy: wish.policy,
        window: wish.window,
        credit: grant.limit(),
    });
    let (send, recv) = link.open(&first).await.map_err(passing)?;
    let mut reader = FrameReader::new(recv, MAX_FRAME_BYTES);
    match reader.next().await.map_err(passing)? {
        Frame::Subscribed(subscribed) => Ok(Opened {
            reader,
            credit: CreditLine::new(grant, send),
            subscribed,
        }),
        Frame::Error(error) => Err(Refusal::Broker {
            code: error.code,
            message: error.message,
        }),
        other => {
            let reason = format!("{:?} in answer to a subscription", other.kind());
            Err(Refusal::Final(SubscribeError::Damaged { reason }))
        }
    }
}

fn passing(end: ReadEnd) -> Refusal {
    match end {
        ReadEnd::Finished | ReadEnd::Lost(_) => Refusal::Passing,
        ReadEnd::Reset(code) => Refusal::Broker {
            code,
            message: String::new(),
        },
        ReadEnd::Broken(error) => Refusal::Final(SubscribeError::Damaged {
            reason: error.to_string(),
        }),
    }
}

fn from_metadata(error: MetadataError) -> SubscribeError {
    match error {
        MetadataError::Name(error) => error.into(),
        MetadataError::Connect(error) => error.into(),
        MetadataError::Refused { code, message } => SubscribeError::Refused { code, message },
    }
}
