//! What all parts of a running broker share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    catalogue::CatalogueService,
    clock::Clock,
    connections::Connections,
    data_dir::Identity,
    gauge::Gauge,
    memory::{Budget, InFlight},
    metrics::{MemoryShare, Metrics, Snapshot},
    rings::Rings,
    tls::Certificate,
    udp::Buffers,
};

/// Subscriptions of one broker, one for each subscriber and shard. A task and a QUIC stream take a few kilobytes.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 100_000;
/// Publishers of one broker, one for each publisher and shard.
pub(crate) const MAX_PUBLISHERS: usize = 100_000;

/// The shared state of a broker.
pub(crate) struct Broker {
    pub(crate) identity: Identity,
    pub(crate) clock: Clock,
    pub(crate) catalogue: CatalogueService,
    pub(crate) metrics: Metrics,
    pub(crate) connections: Connections,
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) budget: Budget,
    pub(crate) rings: Rings,
    pub(crate) in_flight: InFlight,
    pub(crate) publishers: Gauge,
    pub(crate) subscriptions: Gauge,
    pub(crate) max_record_bytes: usize,
    pub(crate) buffers: ArcSwap<Buffers>,
    pub(crate) ready: AtomicBool,
    pub(crate) stopping: Stopping,
}

/// The steps of a stop, each told to those whom it concerns.
#[derive(Debug, Default)]
pub(crate) struct Stopping {
    /// Clients are asked to leave; publishers take no more batches.
    pub(crate) publishers: CancellationToken,
    /// Subscriptions deliver what there is, then end.
    pub(crate) subscriptions: CancellationToken,
    /// The tasks of publishers, waited for before subscriptions are told.
    pub(crate) publisher_tasks: TaskTracker,
    /// The tasks of subscriptions, waited for before connections are closed.
    pub(crate) subscription_tasks: TaskTracker,
}

impl Broker {
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn catalogue(&self) -> &CatalogueService {
        &self.catalogue
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.clock.uptime()
    }

    pub(crate) fn buffers(&self) -> Buffers {
        **self.buffers.load()
    }

    /// Whether clients are served. A probe that sees a change a moment late does no harm.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    pub(crate) fn render_metrics(&self) -> String {
        let catalogue = self.catalogue.current();
        let now_seconds = i64::try_from(self.clock.now().0 / 1_000_000_000).unwrap_or(i64::MAX);
        self.metrics.render(&Snapshot {
            cluster_id: self.identity.cluster_id.clone(),
            broker_id: self.identity.broker_id.clone(),
            uptime_seconds: self.uptime().as_secs(),
            ready: self.is_ready(),
            connections: self.connections.count() as u64,
            subscriptions: self.subscriptions.count() as u64,
            publishers: self.publishers.count() as u64,
            streams: catalogue.streams().len() as u64,
            catalogue_version: catalogue.version(),
            ring_bytes: self.rings.used(),
            memory: self.memory_shares(),
            buffers: self.buffers(),
            quic: self.connections.totals(),
            certificate_expiry_seconds: self.certificate.not_after().saturating_sub(now_seconds),
            dropped: self.catalogue.streams().dropped(),
        })
    }

    fn memory_shares(&self) -> Vec<MemoryShare> {
        let rings = self
            .rings
            .used()
            .saturating_add(self.catalogue.streams().pinned_bytes());
        vec![
            MemoryShare {
                name: "rings",
                budget: self.budget.rings,
                used: rings,
            },
            MemoryShare {
                name: "in_flight",
                budget: self.budget.in_flight,
                used: self.in_flight.used(),
            },
        ]
    }
}
