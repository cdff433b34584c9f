//! What all parts of a running broker share.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{runtime::Handle, sync::watch};
use tokio_util::task::TaskTracker;

use crate::{
    catalogue::CatalogueService,
    clock::Clock,
    connections::Connections,
    data_dir::Identity,
    gauge::Gauge,
    memory::{Budget, InFlight},
    metrics::{LaneTotals, MemoryShare, Metrics, Snapshot},
    mtu::DatagramSizes,
    peers::Peers,
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
    pub(crate) peers: Arc<Peers>,
    /// Where the lanes run, in their order.
    pub(crate) lanes: Vec<Handle>,
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) budget: Budget,
    pub(crate) rings: Rings,
    pub(crate) in_flight: InFlight,
    pub(crate) handshakes: Gauge,
    /// QUIC streams that are open beyond those that each connection may have anyway, control streams apart.
    pub(crate) open_streams: Gauge,
    pub(crate) publishers: Gauge,
    pub(crate) subscriptions: Gauge,
    pub(crate) max_record_bytes: usize,
    pub(crate) sizes: DatagramSizes,
    /// How long a subscription may make publishers wait with too little progress.
    pub(crate) block_timeout: Duration,
    pub(crate) buffers: ArcSwap<Buffers>,
    pub(crate) ready: AtomicBool,
    pub(crate) stopping: Stopping,
}

/// How far a broker is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Clients are served.
    Serving,
    /// Clients are asked to leave; publishers are ended, newcomers refused.
    Leaving,
    /// Subscriptions deliver what there is, then end.
    Draining,
}

/// The phase, and the tasks that are waited for before the next one.
#[derive(Debug)]
pub(crate) struct Stopping {
    phase: watch::Sender<Phase>,
    pub(crate) publisher_tasks: TaskTracker,
    pub(crate) subscription_tasks: TaskTracker,
}

impl Stopping {
    pub(crate) fn new() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Serving),
            publisher_tasks: TaskTracker::new(),
            subscription_tasks: TaskTracker::new(),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    pub(crate) fn has_reached(&self, phase: Phase) -> bool {
        *self.phase.borrow() >= phase
    }

    /// Waits until a phase is reached.
    pub(crate) fn reached(&self, phase: Phase) -> impl Future<Output = ()> + use<> {
        let mut phases = self.phase.subscribe();
        async move {
            // The sender lives as long as the broker; without one nobody waits for a phase any more.
            phases.wait_for(|now| *now >= phase).await.ok();
        }
    }
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
        let totals = self.connections.totals();
        let held = self.rings.used();
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
            ring_bytes: held.saturating_sub(self.catalogue.streams().pinned_bytes()),
            memory: self.memory_shares(held),
            buffers: self.buffers(),
            sizes: self.sizes,
            quic: totals.quic,
            lanes: self.lanes.iter().zip(totals.lanes).map(with_load).collect(),
            certificate_expiry_seconds: self.certificate.not_after().saturating_sub(now_seconds),
            dropped: self.catalogue.streams().dropped(),
        })
    }

    fn memory_shares(&self, rings: u64) -> Vec<MemoryShare> {
        let (send, receive) = self.connections.windows();
        let connections = Budget::connections_used(self.connections.count(), self.open_streams.count());
        let handshakes = Budget::handshakes_used(self.handshakes.count());
        let budget = &self.budget;
        let share = |name, budget, used| MemoryShare { name, budget, used };
        vec![
            share("rings", budget.rings, rings),
            share("in_flight", budget.in_flight, self.in_flight.used()),
            share("send", budget.send, send),
            share("receive", budget.receive, receive),
            share("connections", budget.connections, connections),
            share("handshakes", budget.handshakes, handshakes),
        ]
    }
}

/// Adds how long the lane's thread was busy: one thread has but one worker. Embedded, that of the caller's runtime counts.
fn with_load((runtime, totals): (&Handle, LaneTotals)) -> LaneTotals {
    let busy = runtime.metrics().worker_total_busy_duration(0);
    LaneTotals { busy, ..totals }
}
