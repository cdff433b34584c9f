//! Frames: a kind, a length and a body. The head is read first, so that a receiver can refuse, skip, or take a memory
//! permit before it reads the body.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::batch::BatchError;
use crate::error::ErrorCode;
use crate::name::NameError;
use crate::publish::{Acks, OpenPublish, PublishOpened};
use crate::session::{ErrorFrame, GoAway, Hello, Metadata, MetadataRequest, Welcome};
use crate::subscribe::{Credit, Deliver, Gap, Subscribe, Subscribed};

/// Length of a frame's head in bytes: the kind as `u16` and the body's length as `u32`, little-endian.
pub const FRAME_HEAD_LEN: usize = 6;

/// Makes [`FrameKind`] and its numbers from one table.
macro_rules! frame_kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)+) => {
        /// The kinds of frames. A kind with the top bit set is optional: who does not know it skips it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FrameKind {
            $($(#[doc = $doc])+ $name,)+
            /// A kind that this version does not know and may skip. The number has its top bit set.
            Optional(u16),
        }

        impl FrameKind {
            /// The kind of a number.
            pub const fn from_wire(number: u16) -> Result<Self, DecodeError> {
                match number {
                    $($number => Ok(Self::$name),)+
                    OPTIONAL.. => Ok(Self::Optional(number)),
                    kind => Err(DecodeError::UnknownFrame { kind }),
                }
            }

            /// The kind's number.
            pub const fn to_wire(self) -> u16 {
                match self {
                    $(Self::$name => $number,)+
                    Self::Optional(number) => number | OPTIONAL,
                }
            }
        }
    };
}

/// The bit of a kind's number that makes it optional.
const OPTIONAL: u16 = 1 << 15;

frame_kinds! {
    /// [`Hello`], client to broker.
    Hello = 0x01,
    /// [`Welcome`], broker to client.
    Welcome = 0x02,
    /// [`MetadataRequest`], client to broker.
    MetadataRequest = 0x03,
    /// [`Metadata`], broker to client.
    Metadata = 0x04,
    /// [`OpenPublish`], client to broker.
    OpenPublish = 0x10,
    /// [`PublishOpened`], broker to client.
    PublishOpened = 0x11,
    /// A batch and nothing else, client to broker; see [`SealedBatch`](crate::SealedBatch).
    Publish = 0x12,
    /// [`Acks`], broker to client.
    Acks = 0x13,
    /// [`Subscribe`], client to broker.
    Subscribe = 0x20,
    /// [`Subscribed`], broker to client.
    Subscribed = 0x21,
    /// [`Deliver`], broker to client.
    Deliver = 0x22,
    /// [`Gap`], broker to client.
    Gap = 0x23,
    /// [`Credit`], client to broker.
    Credit = 0x24,
    /// [`ErrorFrame`], either way; nothing follows it on its stream.
    Error = 0x30,
    /// [`GoAway`], broker to client.
    GoAway = 0x31,
}

/// What stands before a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// What the body is.
    pub kind: FrameKind,
    /// The body's length in bytes.
    pub length: u32,
}

impl FrameHead {
    /// Decodes a head and refuses a body of more than `limit` bytes.
    pub fn decode(bytes: [u8; FRAME_HEAD_LEN], limit: usize) -> Result<Self, DecodeError> {
        let [k0, k1, l0, l1, l2, l3] = bytes;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length as usize > limit {
            return Err(DecodeError::FrameTooLarge {
                bytes: length as usize,
                limit,
            });
        }
        Ok(Self {
            kind: FrameKind::from_wire(u16::from_le_bytes([k0, k1]))?,
            length,
        })
    }

    /// The head's bytes.
    pub fn to_bytes(self) -> [u8; FRAME_HEAD_LEN] {
        let [k0, k1] = self.kind.to_wire().to_le_bytes();
        let [l0, l1, l2, l3] = self.length.to_le_bytes();
        [k0, k1, l0, l1, l2, l3]
    }
}

/// Cuts the first complete frame from `buffer`, skipping optional ones of unknown kinds. `None` means that more bytes
/// are needed; the buffer then holds at most one frame's head and a part of its body. A body of more than `limit` bytes
/// is refused as soon as its head is there.
pub fn take_frame(buffer: &mut BytesMut, limit: usize) -> Result<Option<(FrameKind, Bytes)>, DecodeError> {
    while let Some(head) = buffer.first_chunk() {
        let head = FrameHead::decode(*head, limit)?;
        let length = head.length as usize;
        if buffer.len() - FRAME_HEAD_LEN < length {
            return Ok(None);
        }
        buffer.advance(FRAME_HEAD_LEN);
        let body = buffer.split_to(length);
        if !matches!(head.kind, FrameKind::Optional(_)) {
            return Ok(Some((head.kind, body.freeze())));
        }
    }
    Ok(None)
}

/// A decoded frame. Batches inside are bytes, not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The first frame of a client.
    Hello(Hello),
    /// The broker's answer to it.
    Welcome(Welcome),
    /// What shards has this stream?
    MetadataRequest(MetadataRequest),
    /// These.
    Metadata(Metadata),
    /// The first frame of a publisher's stream.
    OpenPublish(OpenPublish),
    /// The broker's answer to it.
    PublishOpened(PublishOpened),
    /// A batch to store.
    Publish(Bytes),
    /// Answers to batches, in their order.
    Acks(Acks),
    /// The first frame of a subscription's stream.
    Subscribe(Subscribe),
    /// The broker's answer to it.
    Subscribed(Subscribed),
    /// Records.
    Deliver(Deliver),
    /// Records that the subscription was not given.
    Gap(Gap),
    /// The subscriber has room for more.
    Credit(Credit),
    /// Why the stream ends.
    Error(ErrorFrame),
    /// Why the connection will end.
    GoAway(GoAway),
    /// A frame to skip.
    Optional {
        /// Its number on the wire.
        kind: u16,
        /// Its body.
        body: Bytes,
    },
}

impl Frame {
    /// Decodes the body of a frame. Fields that newer versions put behind the known ones are ignored.
    pub fn decode(kind: FrameKind, body: Bytes) -> Result<Self, DecodeError> {
        Ok(match kind {
            FrameKind::Hello => Self::Hello(Hello::decode(body)?),
            FrameKind::Welcome => Self::Welcome(Welcome::decode(body)?),
            FrameKind::MetadataRequest => Self::MetadataRequest(MetadataRequest::decode(body)?),
            FrameKind::Metadata => Self::Metadata(Metadata::decode(body)?),
            FrameKind::OpenPublish => Self::OpenPublish(OpenPublish::decode(body)?),
            FrameKind::PublishOpened => Self::PublishOpened(PublishOpened::decode(body)?),
            FrameKind::Publish => Self::Publish(body),
            FrameKind::Acks => Self::Acks(Acks::decode(body)?),
            FrameKind::Subscribe => Self::Subscribe(Subscribe::decode(body)?),
            FrameKind::Subscribed => Self::Subscribed(Subscribed::decode(body)?),
            FrameKind::Deliver => Self::Deliver(Deliver::decode(body)?),
            FrameKind::Gap => Self::Gap(Gap::decode(body)?),
            FrameKind::Credit => Self::Credit(Credit::decode(body)?),
            FrameKind::Error => Self::Error(ErrorFrame::decode(body)?),
            FrameKind::GoAway => Self::GoAway(GoAway::decode(body)?),
            FrameKind::Optional(kind) => Self::Optional { kind, body },
        })
    }

    /// The frame's kind.
    pub const fn kind(&self) -> FrameKind {
        match self {
            Self::Hello(_) => FrameKind::Hello,
            Self::Welcome(_) => FrameKind::Welcome,
            Self::MetadataRequest(_) => FrameKind::MetadataRequest,
            Self::Metadata(_) => FrameKind::Metadata,
            Self::OpenPublish(_) => FrameKind::OpenPublish,
            Self::PublishOpened(_) => FrameKind::PublishOpened,
            Self::Publish(_) => FrameKind::Publish,
            Self::Acks(_) => FrameKind::Acks,
            Self::Subscribe(_) => FrameKind::Subscribe,
            Self::Subscribed(_) => FrameKind::Subscribed,
            Self::Deliver(_) => FrameKind::Deliver,
            Self::Gap(_) => FrameKind::Gap,
            Self::Credit(_) => FrameKind::Credit,
            Self::Error(_) => FrameKind::Error,
            Self::GoAway(_) => FrameKind::GoAway,
            Self::Optional { kind, .. } => FrameKind::Optional(*kind),
        }
    }

    /// Appends the frame, head and body, to `out`.
    pub fn encode(&self, out: &mut BytesMut) {
        let begin = out.len();
        out.put_bytes(0, FRAME_HEAD_LEN);
        match self {
            Self::Hello(frame) => frame.encode(out),
            Self::Welcome(frame) => frame.encode(out),
            Self::MetadataRequest(frame) => frame.encode(out),
            Self::Metadata(frame) => frame.encode(out),
            Self::OpenPublish(frame) => frame.encode(out),
            Self::PublishOpened(frame) => frame.encode(out),
            Self::Publish(batch) => out.put_slice(batch),
            Self::Acks(frame) => frame.encode(out),
            Self::Subscribe(frame) => frame.encode(out),
            Self::Subscribed(frame) => frame.encode(out),
            Self::Deliver(frame) => frame.encode(out),
            Self::Gap(frame) => frame.encode(out),
            Self::Credit(frame) => frame.encode(out),
            Self::Error(frame) => frame.encode(out),
            Self::GoAway(frame) => frame.encode(out),
            Self::Optional { body, .. } => out.put_slice(body),
        }
        let head = FrameHead {
            kind: self.kind(),
            length: (out.len() - begin - FRAME_HEAD_LEN) as u32,
        };
        out[begin..begin + FRAME_HEAD_LEN].copy_from_slice(&head.to_bytes());
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body ends inside a field.
    #[error("the frame ends inside its field {field:?}")]
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// A field is longer than the protocol allows.
    #[error("the field {field:?} has {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A field has a value without a meaning.
    #[error("the field {field:?} has a value without a meaning")]
    Value {
        /// The field.
        field: &'static str,
    },
    /// A text is not UTF-8.
    #[error("the field {field:?} is not UTF-8")]
    NotUtf8 {
        /// The field.
        field: &'static str,
    },
    /// A stream name breaks the grammar.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A batch cannot be read.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The kind is unknown and not optional.
    #[error("frame kind {kind:#06x} is not known and must be understood")]
    UnknownFrame {
        /// The kind's number.
        kind: u16,
    },
    /// The body is longer than the receiver takes.
    #[error("a frame of {bytes} bytes is longer than the {limit} that are taken here")]
    FrameTooLarge {
        /// The body's length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

impl DecodeError {
    /// What the peer is told.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownFrame { .. } => ErrorCode::UnknownFrame,
            Self::FrameTooLarge { .. } => ErrorCode::FrameTooLarge,
            Self::Batch(error) => error.code(),
            Self::Truncated { .. }
            | Self::TooLong { .. }
            | Self::Value { .. }
            | Self::NotUtf8 { .. }
            | Self::Name(_) => ErrorCode::ProtocolViolation,
        }
    }
}
