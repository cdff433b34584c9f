//! The Felix client: publishers and subscriptions over QUIC.
//!
//! A [`Client`] holds one connection to a broker and makes it anew when it is lost. A [`Publisher`] batches by itself and
//! returns a future per record that resolves when the broker has acknowledged it. A [`Subscription`] yields records as
//! slices of what was received, and says where records were not delivered.
//!
//! ```no_run
//! use felix_client::{Client, Delivery, Record, Start};
//!
//! # async fn example(ca: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("demo.default.svc:5000").ca_pem(ca).connect().await?;
//! let mut subscription = client.subscribe("orders").start(Start::Latest).open().await?;
//! let publisher = client.publisher("orders").open().await?;
//!
//! let ack = publisher.send(Record::new("two beers").key("table-4")).await?;
//! println!("stored at {}", ack.await?.offset);
//!
//! match subscription.next().await? {
//!     Some(Delivery::Record(record)) => println!("{:?}", record.value),
//!     Some(Delivery::Gap(gap)) => println!("not delivered: {:?}", gap.lost),
//!     None => println!("closed"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Every error says what to do about it by its kind: [`ErrorKind::Retry`], [`ErrorKind::DoNotRetry`] or
//! [`ErrorKind::Unknown`].

mod ack;
mod backoff;
mod client;
mod config;
mod connect;
mod credit;
mod cursor;
mod error;
mod frames;
mod inbox;
mod lane;
mod link;
mod mtu;
mod outbox;
mod publisher;
mod record;
mod subscription;
mod watch;

pub use ack::Ack;
pub use client::{BrokerIdentity, Client, TransportStats};
pub use config::Builder;
pub use error::{ConnectError, MetadataError, PublishError, SubscribeError};
pub use felix_wire::{
    ErrorCode, ErrorKind, GapReason, Header, Incarnation, Lost, Metadata, Nanos, Offset, Reached, SlowPolicy,
    SlowPolicy as SlowSubscriber, Start, StreamClass, StreamName,
};
pub use publisher::{Batch, Publisher, PublisherBuilder, PushBatchError, TrySendError};
pub use record::{Delivery, Gap, Payload, Receipt, Received, ReceivedHeaders, Record};
pub use subscription::{SubscribeBuilder, Subscription};
