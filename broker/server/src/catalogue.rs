//! Changing the catalogue: one writer at a time, the store first, then the live streams.

use std::sync::Arc;

use felix_store::{Catalogue, ChangeError, PutOutcome, PutStream, Store, StreamSpec, SwapError};
use felix_wire::StreamName;
use tokio::sync::{Mutex, watch};

use crate::{clock::Clock, streams::Streams};

/// The catalogue's document and the streams that it stands for.
pub(crate) struct CatalogueService {
    store: Arc<dyn Store>,
    newest: watch::Receiver<Arc<Catalogue>>,
    streams: Streams,
    clock: Clock,
    /// Held from reading a version to serving what was made of it.
    changing: Mutex<()>,
}

/// A request to create or change a stream.
pub(crate) struct NewStream<'a> {
    pub(crate) name: &'a StreamName,
    pub(crate) owner: &'a str,
    pub(crate) expected_version: Option<u64>,
    pub(crate) spec: StreamSpec,
}

/// Why a change did not take place, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The catalogue's rules refuse it.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] SwapError),
}

impl CatalogueService {
    /// Begins to serve what the store holds. Memory streams begin a new life: their records did not survive.
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        streams: Streams,
        clock: Clock,
    ) -> Result<Self, CatalogueError> {
        let newest = store.watch();
        let service = Self {
            store,
            newest,
            streams,
            clock,
            changing: Mutex::new(()),
        };
        let begun = service.change(|next| {
            next.renew_memory_streams(new_incarnation);
            Ok(())
        });
        let ((), catalogue) = begun.await?;
        service.streams.follow(&catalogue);
        Ok(service)
    }

    /// The newest document.
    pub(crate) fn current(&self) -> Arc<Catalogue> {
        Arc::clone(&self.newest.borrow())
    }

    /// The live streams.
    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Creates or changes a stream. It can be published to when the future is done.
    pub(crate) async fn put(
        &self,
        new: NewStream<'_>,
    ) -> Result<(PutOutcome, Arc<Catalogue>), CatalogueError> {
        let incarnation = new_incarnation();
        let now_ms = self.clock.now().0 / 1_000_000;
        self.change(|next| {
            next.put_stream(PutStream {
                name: new.name.as_str(),
                owner: new.owner,
                expected_version: new.expected_version,
                spec: new.spec,
                incarnation: &incarnation,
                now_ms,
            })
        })
        .await
    }

    /// Removes a stream; its publishers and subscriptions are ended.
    pub(crate) async fn delete(
        &self,
        name: &str,
        owner: &str,
        expected_version: Option<u64>,
    ) -> Result<Arc<Catalogue>, CatalogueError> {
        Ok(self
            .change(|next| next.delete_stream(name, owner, expected_version))
            .await?
            .1)
    }

    /// Lets go of a stream without removing it.
    pub(crate) async fn release(
        &self,
        name: &str,
        owner: &str,
        expected_version: Option<u64>,
    ) -> Result<Arc<Catalogue>, CatalogueError> {
        Ok(self
            .change(|next| next.release_owner(name, owner, expected_version))
            .await?
            .1)
    }

    async fn change<T>(
        &self,
        change: impl FnOnce(&mut Catalogue) -> Result<T, ChangeError>,
    ) -> Result<(T, Arc<Catalogue>), CatalogueError> {
        let _changing = self.changing.lock().await;
        let seen = self.current();
        let mut next = Catalogue::clone(&seen);
        let outcome = change(&mut next)?;
        if next.version() == seen.version() {
            return Ok((outcome, seen));
        }
        let swapped = self.store.compare_and_swap(seen.version(), next).await?;
        self.streams.follow(&swapped);
        Ok((outcome, swapped))
    }
}

fn new_incarnation() -> String {
    felix_wire::Incarnation(rand::random()).to_string()
}
