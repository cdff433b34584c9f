//! One client connection: hello first, then each stream to the task that serves it.

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use felix_wire::{
    ErrorCode, ErrorFrame, Frame, FrameKind, GoAway, Hello, MAX_REQUEST_BYTES, Metadata, MetadataRequest,
    Refusal, VERSION, Welcome,
};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::{task::JoinSet, time};
use tracing::{Instrument as _, debug_span};

use crate::{
    broker::{Broker, Phase},
    connections::{Entered, Use},
    frames::{FrameError, FrameReader},
    gauge::Counted,
    metrics::Limit,
    publish, subscribe,
};

/// Longest wait for the hello, and for the first frame of each further stream.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(10);

/// Streams that a connection may have open at first. QUIC keeps some 100 bytes for each that it may, so the number follows
/// the use.
pub(crate) const FIRST_STREAMS: u32 = 64;
/// Publishers and subscriptions of one connection at most.
const MAX_STREAMS: u32 = 4096;

/// Serves a connection until it ends.
pub(crate) async fn serve(broker: Arc<Broker>, connection: Connection, entered: Arc<Entered>) {
    let greeted = time::timeout(FIRST_FRAME_TIMEOUT, greet(&broker, &connection)).await;
    let control = match greeted {
        Ok(Ok(control)) => control,
        Ok(Err(refused)) => return refused.close(&connection),
        Err(_) => {
            let refused = Refused::new(ErrorCode::ProtocolViolation, "no hello in time");
            return refused.close(&connection);
        }
    };
    // Whatever they wait for, the tasks end with this function, which ends with the connection.
    let mut tasks = JoinSet::new();
    tasks.spawn({
        let (broker, connection) = (Arc::clone(&broker), connection.clone());
        async move {
            if let Err(refused) = control.serve(&broker).await {
                refused.close(&connection);
            }
        }
        .in_current_span()
    });
    let mut allowed = FIRST_STREAMS;
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        while tasks.try_join_next().is_some() {}
        if allowed < MAX_STREAMS && tasks.len() >= allowed as usize / 2 {
            allowed *= 2;
            connection.set_max_concurrent_bi_streams(allowed.into());
        }
        let Some(place) = entered.stream_place(&broker.open_streams) else {
            // Answered without a task: there are as many as the memory for them holds.
            broker.metrics.observe_limit(Limit::Streams);
            let code = close_code(ErrorCode::Overloaded);
            send.reset(code).ok();
            recv.stop(code).ok();
            continue;
        };
        let streams = Streams {
            broker: Arc::clone(&broker),
            connection: connection.clone(),
            entered: Arc::clone(&entered),
            _place: place,
        };
        tasks.spawn(streams.serve(send, recv).in_current_span());
    }
}

/// Why a connection or a stream is not served, as the client is told.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    message: String,
}

impl Refused {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            refusal: code.into(),
            message: message.into(),
        }
    }

    pub(crate) fn with_detail(refusal: Refusal, message: impl Into<String>) -> Self {
        Self {
            refusal,
            message: message.into(),
        }
    }

    pub(crate) fn frame(self) -> Frame {
        Frame::Error(ErrorFrame {
            code: self.refusal.code,
            detail: self.refusal.detail,
            message: self.message,
        })
    }

    fn close(self, connection: &Connection) {
        tracing::debug!(peer = %connection.remote_address(), code = %self.refusal.code, self.message, "closed");
        connection.close(close_code(self.refusal.code), self.message.as_bytes());
    }
}

impl From<FrameError> for Refused {
    fn from(error: FrameError) -> Self {
        let code = match &error {
            FrameError::Decode(error) => error.code(),
            FrameError::End | FrameError::Cut | FrameError::Read(_) => ErrorCode::ProtocolViolation,
        };
        Self::new(code, error.to_string())
    }
}

/// The close code of streams and connections for an error.
pub(crate) fn close_code(code: ErrorCode) -> VarInt {
    VarInt::from_u32(u32::from(code.to_wire()))
}

/// A control frame's bytes, in a buffer of its own.
pub(crate) fn encode(frame: &Frame) -> bytes::Bytes {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    bytes.freeze()
}

/// Ends a stream with an error frame, and lets the client send no more on it.
pub(crate) async fn refuse(mut send: SendStream, recv: &mut RecvStream, refused: Refused) {
    let code = close_code(refused.refusal.code);
    tracing::debug!(code = %refused.refusal.code, refused.message, "a stream is refused");
    // Where the client is gone, there is nobody to tell.
    if send.write_chunk(encode(&refused.frame())).await.is_ok() {
        send.finish().ok();
    }
    recv.stop(code).ok();
}

async fn greet(broker: &Broker, connection: &Connection) -> Result<Control, Refused> {
    let lost = |error: quinn::ConnectionError| Refused::new(ErrorCode::ProtocolViolation, error.to_string());
    let (mut send, recv) = connection.accept_bi().await.map_err(lost)?;
    let mut reader = FrameReader::new(recv);
    let first = reader.control(MAX_REQUEST_BYTES).await?;
    let Frame::Hello(hello) = first else {
        return Err(out_of_place(first.kind()));
    };
    let version = agree(&hello)?;
    tracing::debug!(peer = %connection.remote_address(), agent = hello.agent, version, "a client says hello");
    let welcome = Frame::Welcome(Welcome {
        version,
        features: 0,
        cluster_id: broker.identity.cluster_id.clone(),
        broker_id: broker.identity.broker_id.clone(),
    });
    let written = send.write_chunk(encode(&welcome)).await;
    written.map_err(|error| Refused::new(ErrorCode::ProtocolViolation, error.to_string()))?;
    Ok(Control { send, reader })
}

fn agree(hello: &Hello) -> Result<u16, Refused> {
    if (hello.min_version..=hello.max_version).contains(&VERSION) {
        return Ok(VERSION);
    }
    let message = format!("this broker speaks version {VERSION} of the protocol only");
    Err(Refused::new(ErrorCode::UnsupportedVersion, message))
}

fn out_of_place(kind: FrameKind) -> Refused {
    Refused::new(
        ErrorCode::ProtocolViolation,
        format!("a {kind:?} frame has no place here"),
    )
}

/// The control stream after the hello.
struct Control {
    send: SendStream,
    reader: FrameReader,
}

impl Control {
    /// Answers requests until the client ends the stream; says when the broker stops.
    async fn serve(mut self, broker: &Broker) -> Result<(), Refused> {
        let mut told = false;
        let leaving = broker.stopping.reached(Phase::Leaving);
        tokio::pin!(leaving);
        loop {
            let request = self.reader.control(MAX_REQUEST_BYTES);
            tokio::pin!(request);
            let frame = loop {
                tokio::select! {
                    frame = &mut request => break frame,
                    () = &mut leaving, if !told => {
                        told = true;
                        let message = "the broker stops".to_owned();
                        let go_away = Frame::GoAway(GoAway { code: ErrorCode::ShuttingDown, message });
                        // A client that is gone needs no farewell.
                        self.send.write_chunk(encode(&go_away)).await.ok();
                    }
                }
            };
            let answer = match frame {
                Ok(Frame::MetadataRequest(request)) => metadata(broker, request),
                Ok(other) => return Err(out_of_place(other.kind())),
                Err(FrameError::End | FrameError::Read(_)) => return Ok(()),
                Err(error @ (FrameError::Cut | FrameError::Decode(_))) => return Err(error.into()),
            };
            if self.send.write_chunk(encode(&answer)).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn metadata(broker: &Broker, request: MetadataRequest) -> Frame {
    match broker.catalogue.streams().get(&request.stream) {
        Some(stream) => Frame::Metadata(Metadata {
            stream: request.stream,
            incarnation: stream.incarnation(),
            class: stream.class(),
            shards: u32::try_from(stream.shards().len()).unwrap_or(u32::MAX),
        }),
        None => unknown_stream(&request.stream).frame(),
    }
}

/// The refusal for a name that the catalogue does not have.
pub(crate) fn unknown_stream(name: &felix_wire::StreamName) -> Refused {
    Refused::new(
        ErrorCode::UnknownStream,
        format!("there is no stream {name}; create it first"),
    )
}

/// What the further streams of a connection need.
struct Streams {
    broker: Arc<Broker>,
    connection: Connection,
    entered: Arc<Entered>,
    _place: Counted,
}

impl Streams {
    /// Reads the first frame of a stream and serves what it asks for.
    async fn serve(self, send: SendStream, recv: RecvStream) {
        let mut reader = FrameReader::new(recv);
        let first = time::timeout(FIRST_FRAME_TIMEOUT, reader.control(MAX_REQUEST_BYTES)).await;
        let refused = match first {
            Ok(Ok(Frame::OpenPublish(open))) => {
                let tasks = self.broker.stopping.publisher_tasks.token();
                let span = debug_span!("publisher", stream = %open.stream, shard = open.shard.0);
                publish::serve(self.broker, self.entered, open, (send, reader))
                    .instrument(span)
                    .await;
                return drop(tasks);
            }
            Ok(Ok(Frame::Subscribe(subscribe))) => {
                let tasks = self.broker.stopping.subscription_tasks.token();
                let _in_use = self.entered.begin(Use::Subscribe);
                let span = debug_span!("subscription", stream = %subscribe.stream, shard = subscribe.shard.0);
                subscribe::serve(self.broker, subscribe, send, reader)
                    .instrument(span)
                    .await;
                return drop(tasks);
            }
            Ok(Ok(other)) => out_of_place(other.kind()),
            // The client has changed its mind, or is gone.
            Ok(Err(FrameError::End | FrameError::Read(_))) => return,
            Ok(Err(error @ (FrameError::Cut | FrameError::Decode(_)))) => error.into(),
            Err(_) => Refused::new(ErrorCode::ProtocolViolation, "no first frame in time"),
        };
        // Whoever breaks the protocol is not listened to any longer.
        let violation = refused.refusal.code == ErrorCode::ProtocolViolation;
        refuse(send, reader.stream(), refused).await;
        if violation {
            Refused::new(ErrorCode::ProtocolViolation, "a stream broke the protocol").close(&self.connection);
        }
    }
}
