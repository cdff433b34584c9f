//! The decisions of a broker: which batches a shard takes, where they go, when they are acknowledged, and what each
//! subscription is given or told that it lost.
//!
//! The crate is pure. It opens nothing, reads no clock and calls nobody: time and the log's progress come in as
//! arguments, and what is to be done comes out as [`Effect`]s in a list that the caller reuses.
//!
//! # One code path
//! A batch goes through the same steps whatever the class of its stream: [`Shard::publish`] gives it a place and asks for
//! it to be written ([`Effect::Write`]); the log says how far it is safe ([`Shard::synced_to`]); that releases the answers
//! in order and moves the tail that readers see. A memory stream is a log that answers at once: [`answer_at_once`].
//!
//! ```
//! # use felix_core::*; use felix_wire::*; use bytes::BytesMut;
//! let mut shard = Shard::new(ShardConfig {
//!     incarnation: Incarnation(7), shard: ShardId(0), term: Term(1), reached: Reached::Stored,
//!     ring_bytes: 1 << 20, limits: Limits::default(),
//! });
//! let mut effects = Vec::new();
//! let (cursor, _) = shard.attach(Attach {
//!     start: Start::Latest, incarnation: Incarnation(0), policy: SlowPolicy::DropNew, window: 1 << 16,
//! })?;
//! # let mut builder = BatchBuilder::new(BytesMut::new(), 1 << 16);
//! # builder.push(Nanos(1), None, [].into_iter(), b"hello")?;
//! # let sealed = builder.seal(Origin { producer: ProducerId(1), ..Origin::default() }).unwrap();
//! let batch = IncomingBatch::check(BytesMut::from(&sealed.batch()[..]), 1 << 20)?;
//! let Publish::Taken = shard.publish(PublisherId(0), batch, Nanos(1), &mut effects) else { panic!("there is room") };
//! answer_at_once(&mut shard, &mut effects);
//! assert!(matches!(effects[..], [Effect::Answer { entry: Ok(_), .. }, Effect::WakeReaders]));
//!
//! let mut deliveries = Vec::new();
//! shard.poll(cursor, 1 << 20, &mut deliveries, &mut effects);
//! assert!(matches!(&deliveries[..], [Delivery::Batch { .. }]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What always holds
//! - Offsets are dense: each batch begins where its predecessor ended.
//! - A producer's records are stored in the order of their sequences, each at most once while the producer is known.
//! - Nothing is delivered before the log has said that it is safe.
//! - Deliveries and gaps of a cursor, put together, are all offsets from its start on, each once.
//! - A record that a policy drops is counted once, at the moment it can no longer be delivered.
//! - The ring is within its budget. Beside it a cursor holds at most its window and two batches, and what it began behind
//!   if the ring has since been made smaller.
#![no_std]

extern crate alloc;

mod acks;
mod attach;
mod cursor;
mod cursors;
mod effect;
mod limits;
mod pins;
mod producers;
mod ring;
mod shard;

pub use attach::{Attach, AttachError};
pub use cursor::{CursorId, Delivery};
pub use cursors::Dropped;
pub use effect::{Effect, PublisherId, answer_at_once};
pub use limits::{BATCH_OVERHEAD, Limits, MAX_BATCHES_PER_POLL};
pub use shard::{Publish, Room, Shard, ShardConfig};
