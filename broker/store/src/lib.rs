//! The catalogue of a Felix cluster: one versioned document behind compare-and-swap.
//!
//! [`Catalogue`] is the document and the rules for changing it, without any IO. [`Store`] is where it lives: it swaps
//! a whole document against the version that the writer has seen, and lets readers watch. [`FileStore`] is the store
//! of a single broker.

mod catalogue;
mod file;
mod spec;
mod store;

pub use catalogue::{Catalogue, ChangeError, PutOutcome, PutStream, ShardEntry, StreamEntry};
pub use file::{FileStore, OpenError};
pub use spec::{
    MAX_RING_BYTES, MAX_SHARDS, MIN_RING_BYTES, MIN_WINDOW_BYTES, OverloadPolicy, SlowSubscriberPolicy,
    SlowSubscriberSpec, SpecError, StreamClass, StreamSpec,
};
pub use store::{Store, SwapError, SwapFuture};
