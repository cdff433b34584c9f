//! The Felix protocol as values: ids, record batches, frames and errors, and their bytes.
//!
//! The crate does no IO and keeps no state but a half-filled [`BatchBuilder`]. It says *what* travels; who sends it
//! when is decided elsewhere. `docs/src/wire.md` describes the same bytes for other implementations.
//!
//! # The parts
//! - [`StreamName`], [`ShardId`], [`Offset`], [`Term`], [`Incarnation`], [`ProducerId`], [`ProducerEpoch`],
//!   [`Sequence`], [`Nanos`]: the words everyone uses. [`shard_of_key`] places a key.
//! - The **batch** is the same bytes at the publisher, in the ring, on the disk and at the subscriber.
//!   [`BatchBuilder`] encodes records straight into the buffer that is sent; [`SealedBatch`] is what is sent, and sent
//!   again byte for byte on a retry. The broker checks what it received once ([`IncomingBatch`]), stamps the leader's
//!   part of the header in place ([`Stamp`]) and from then on shares the [`Batch`]. [`Batch::records`] yields
//!   [`Record`]s that borrow from it.
//! - **Frames** are a kind, a length and a body. [`FrameHead`] is read first (so that a broker can take a memory permit
//!   before it reads a body); [`take_frame`] cuts complete frames from a buffer; [`Frame::decode`] and [`Frame::encode`]
//!   are for everything but the two frames that carry batches in bulk, whose heads are written by
//!   [`SealedBatch`] and [`Deliver::encode_head`].
//! - [`ErrorCode`]s come from one table; each is of one [`ErrorKind`]: retry, do not retry, unknown.
//!
//! # One connection
//! The client's first bidirectional stream carries [`Hello`], [`Welcome`], then [`MetadataRequest`] and [`Metadata`]
//! pairs, and [`GoAway`] from the broker. Each further bidirectional stream is one publisher or one subscription of one
//! shard: [`OpenPublish`], [`PublishOpened`], then publish frames one way and [`Ack`]s in the same order the other way;
//! or [`Subscribe`], [`Subscribed`], then [`Deliver`] and [`Gap`] frames one way and [`Credit`] the other way.
#![no_std]

extern crate alloc;

mod batch;
mod builder;
mod codec;
mod error;
mod frame;
mod hash;
mod header;
mod ids;
mod limits;
mod name;
mod publish;
mod record;
mod session;
mod subscribe;

pub use batch::{Batch, BatchError, IncomingBatch};
pub use builder::{BatchBuilder, PushError, SealedBatch};
pub use error::{ErrorCode, ErrorKind};
pub use frame::{DecodeError, FRAME_HEAD_LEN, Frame, FrameHead, FrameKind, take_frame};
pub use hash::{KEY_HASH_SEED, shard_of_key};
pub use header::{BatchHeader, Codec, HEADER_LEN, Origin, Stamp};
pub use ids::{Incarnation, Nanos, Offset, ParseIdError, ProducerEpoch, ProducerId, Sequence, ShardId, Term};
pub use limits::*;
pub use name::{NameError, StreamName};
pub use publish::{Ack, AckEntry, Acks, OpenPublish, PublishOpened, Reached, Refusal};
pub use record::{Header, Headers, Record, RecordCursor, RecordError, Records};
pub use session::{
    ALPN, AuthMethod, ErrorFrame, GoAway, Hello, Metadata, MetadataRequest, StreamClass, VERSION, Welcome,
};
pub use subscribe::{
    Credit, Deliver, Gap, GapReason, Lost, Selection, SlowPolicy, Start, Subscribe, Subscribed,
};
