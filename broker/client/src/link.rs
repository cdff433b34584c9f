//! The client's one connection: made when first needed, made again when lost, shared by all publishers and subscriptions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use felix_wire::{ErrorFrame, ErrorKind, Frame, Metadata, MetadataRequest, StreamName, Welcome};
use quinn::{RecvStream, SendStream, VarInt};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::connect::{Dialed, Dialer, encoded};
use crate::credit::Credits;
use crate::error::{ConnectError, MetadataError};
use crate::frames::{FrameReader, ReadEnd};
use crate::watch::watch;

/// Metadata requests that may wait for the broker at a time.
const CONTROL_QUEUE: usize = 16;

/// After so many failures in a row, a refusal that is final is believed also by a client that was connected before: a
/// certificate may be in the middle of being renewed.
const PATIENCE: u32 = 6;

/// Makes the connection and keeps the latest.
pub(crate) struct Links {
    dialer: Dialer,
    credits: Arc<Credits>,
    slot: Mutex<Slot>,
    closed: CancellationToken,
}

#[derive(Default)]
struct Slot {
    link: Option<Arc<Link>>,
    backoff: Backoff,
    last_error: Option<ConnectError>,
}

impl Links {
    /// Subscriptions may have `unread_bytes` unread together.
    pub(crate) fn new(dialer: Dialer, unread_bytes: u64) -> Self {
        Self {
            dialer,
            credits: Arc::new(Credits::new(unread_bytes)),
            slot: Mutex::new(Slot::default()),
            closed: CancellationToken::new(),
        }
    }

    /// The connection, made if need be. Tries until it stands; an error is final. Whoever stops waiting stops nobody
    /// else: the next in line goes on, with the same back-off.
    pub(crate) async fn get(&self) -> Result<Arc<Link>, ConnectError> {
        let mut slot = self.slot.lock().await;
        if let Some(link) = slot.link.as_ref().filter(|link| link.is_usable()) {
            return Ok(link.clone());
        }
        let known = slot.link.is_some();
        loop {
            let dialed = tokio::select! {
                dialed = self.dialer.dial() => dialed,
                () = self.closed.cancelled() => return Err(ConnectError::Closed),
            };
            let error = match dialed {
                Ok(dialed) => {
                    slot.backoff.reset();
                    let link = Arc::new(Link::start(dialed));
                    slot.link = Some(link.clone());
                    return Ok(link);
                }
                Err(error) => error,
            };
            tracing::debug!(%error, failures = slot.backoff.failures(), "connecting failed");
            let patience = if known { PATIENCE } else { 0 };
            if error.kind() == ErrorKind::DoNotRetry && slot.backoff.failures() >= patience {
                return Err(error);
            }
            slot.last_error = Some(error);
            let pause = slot.backoff.next_pause(rand::random());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.closed.cancelled() => return Err(ConnectError::Closed),
            }
        }
    }

    /// As [`get`](Self::get), for at most `patience`; then the latest reason why not.
    pub(crate) async fn get_within(&self, patience: Duration) -> Result<Arc<Link>, ConnectError> {
        match tokio::time::timeout(patience, self.get()).await {
            Ok(link) => link,
            Err(_) => {
                let last = self.slot.lock().await.last_error.take();
                let address = self.dialer.address.clone();
                Err(last.unwrap_or(ConnectError::TimedOut {
                    address,
                    waited: patience,
                }))
            }
        }
    }

    /// The latest connection, alive or not.
    pub(crate) async fn latest(&self) -> Option<Arc<Link>> {
        self.slot.lock().await.link.clone()
    }

    /// Ends all that is under way; nothing connects any more.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        if let Some(link) = self.slot.lock().await.link.take() {
            link.connection
                .close(VarInt::from_u32(0), b"closed by the client");
            link.endpoint.wait_idle().await;
        }
    }

    /// What subscriptions are promised.
    pub(crate) fn credits(&self) -> &Arc<Credits> {
        &self.credits
    }

    pub(crate) fn address(&self) -> &str {
        &self.dialer.address
    }
}

/// One connection that stands or stood.
pub(crate) struct Link {
    pub(crate) connection: quinn::Connection,
    endpoint: quinn::Endpoint,
    pub(crate) welcome: Welcome,
    requests: mpsc::Sender<Request>,
    /// The broker has said that it will close: nothing new is opened here.
    leaving: Arc<AtomicBool>,
    control: JoinHandle<()>,
    watching: JoinHandle<()>,
}

type Answer = Result<Metadata, ErrorFrame>;

struct Request {
    frame: Frame,
    answer: oneshot::Sender<Answer>,
}

impl Link {
    fn start(dialed: Dialed) -> Self {
        let (requests, queue) = mpsc::channel(CONTROL_QUEUE);
        let leaving = Arc::new(AtomicBool::new(false));
        let control = Control {
            send: dialed.control_send,
            reader: dialed.control_recv,
            queue,
            waiting: VecDeque::with_capacity(CONTROL_QUEUE),
            leaving: leaving.clone(),
        };
        let watching = tokio::spawn(watch(dialed.connection.clone()));
        Self {
            connection: dialed.connection,
            endpoint: dialed.endpoint,
            welcome: dialed.welcome,
            requests,
            leaving,
            control: tokio::spawn(control.run()),
            watching,
        }
    }

    fn is_usable(&self) -> bool {
        // A flag that is seen a little late only costs an attempt that the broker refuses.
        self.connection.close_reason().is_none() && !self.leaving.load(Ordering::Relaxed)
    }

    /// Opens a stream to the broker and sends the first frame on it.
    pub(crate) async fn open(&self, first: &Frame) -> Result<(SendStream, RecvStream), ReadEnd> {
        let lost = |reason: String| ReadEnd::Lost(reason);
        let (mut send, recv) = self
            .connection
            .open_bi()
            .await
            .map_err(|error| lost(error.to_string()))?;
        // A stopped stream has its reason on the other half, which the caller reads.
        match send.write_chunk(encoded(first)).await {
            Ok(()) | Err(quinn::WriteError::Stopped(_)) => Ok((send, recv)),
            Err(error) => Err(lost(error.to_string())),
        }
    }

    /// Asks for a stream's metadata.
    pub(crate) async fn metadata(&self, stream: StreamName) -> Result<Metadata, MetadataError> {
        let (answer, answered) = oneshot::channel();
        let frame = Frame::MetadataRequest(MetadataRequest { stream });
        let gone = || {
            let reason = self
                .connection
                .close_reason()
                .map_or_else(String::new, |error| error.to_string());
            MetadataError::Connect(ConnectError::Lost {
                address: self.connection.remote_address().to_string(),
                reason,
            })
        };
        self.requests
            .send(Request { frame, answer })
            .await
            .map_err(|_| gone())?;
        match answered.await {
            Ok(Ok(metadata)) => Ok(metadata),
            Ok(Err(error)) => Err(MetadataError::Refused {
                code: error.code,
                message: error.message,
            }),
            Err(_) => Err(gone()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.control.abort();
        self.watching.abort();
    }
}

/// Owns the control stream: writes requests, hands answers out in their order, notes that the broker leaves.
struct Control {
    send: SendStream,
    reader: FrameReader,
    queue: mpsc::Receiver<Request>,
    /// Bounded: no request is taken while this is as long as the queue.
    waiting: VecDeque<oneshot::Sender<Answer>>,
    leaving: Arc<AtomicBool>,
}

impl Control {
    async fn run(mut self) {
        loop {
            tokio::select! {
                request = self.queue.recv(), if self.waiting.len() < CONTROL_QUEUE => {
                    let Some(request) = request else { return };
                    if self.send.write_chunk(encoded(&request.frame)).await.is_err() {
                        return;
                    }
                    self.waiting.push_back(request.answer);
                }
                frame = self.reader.next() => {
                    let Ok(frame) = frame else { return };
                    if !self.take(frame) {
                        return;
                    }
                }
            }
        }
    }

    /// Handles a frame; `false` where it has no place here.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other frame is equally out of place"
    )]
    fn take(&mut self, frame: Frame) -> bool {
        let answer = match frame {
            Frame::Metadata(metadata) => Ok(metadata),
            Frame::Error(error) => Err(error),
            Frame::GoAway(going) => {
                tracing::debug!(code = %going.code, message = going.message, "the broker leaves");
                self.leaving.store(true, Ordering::Relaxed);
                return true;
            }
            other => {
                tracing::warn!(kind = ?other.kind(), "a frame that has no place on the control stream");
                return false;
            }
        };
        match self.waiting.pop_front() {
            // Whoever asked may have stopped waiting.
            Some(waiting) => {
                waiting.send(answer).ok();
                true
            }
            None => false,
        }
    }
}
