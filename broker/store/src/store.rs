//! What every store of the catalogue offers: a swap of the whole document against a version, and a watch.

use std::{future::Future, pin::Pin, sync::Arc};

use tokio::sync::watch;

use crate::Catalogue;

/// The answer of [`Store::compare_and_swap`].
pub type SwapFuture<'a> = Pin<Box<dyn Future<Output = Result<Arc<Catalogue>, SwapError>> + Send + 'a>>;

/// Where the catalogue lives.
pub trait Store: Send + Sync + 'static {
    /// The newest document that this store knows, and each later one.
    fn watch(&self) -> watch::Receiver<Arc<Catalogue>>;

    /// Puts `next` in the place of the document with version `expected`. The swap is safe when the future is done: it
    /// survives a crash of the process and of the machine.
    fn compare_and_swap(&self, expected: u64, next: Catalogue) -> SwapFuture<'_>;
}

/// Why a document was not put in place.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// Somebody else was first; nothing was changed.
    #[error("the catalogue is at version {actual}, not {expected}; read it again")]
    Conflict {
        /// What the writer has seen.
        expected: u64,
        /// What the store holds.
        actual: u64,
    },
    /// Writing failed before the change took place; nothing was changed.
    #[error("writing the catalogue failed: {0}; free space or make the data directory writable")]
    Failed(#[source] std::io::Error),
    /// It is not known whether the change is safe. The store refuses further changes until it is opened again.
    #[error("it is not known whether the catalogue was written: {0}; restart the broker")]
    Unknown(String),
}
