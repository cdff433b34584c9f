//! Every metric of the broker: the only file that names one. Counters are raised where things happen; everything that
//! is a state is read when somebody asks.

mod histogram;

use std::{sync::atomic::AtomicU64, time::Duration};

use felix_store::SlowSubscriberPolicy;
use felix_wire::ErrorCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
    },
    registry::{Metric, Registry},
};

pub(crate) use histogram::LatencyHistogram;

use crate::{mtu::DatagramSizes, udp::Buffers};

/// One row of the documentation, and of the registry.
pub(crate) struct Row {
    /// The name as it stands in the exposition.
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) labels: &'static str,
    pub(crate) help: &'static str,
}

/// Declares a constant for each metric, and the table of all.
macro_rules! metrics {
    ($($id:ident = $kind:literal $name:literal [$labels:literal] $help:literal;)+) => {
        $(const $id: Row = Row { name: $name, kind: $kind, labels: $labels, help: $help };)+
        pub(crate) const TABLE: &[Row] = &[$($id),+];
    };
}

metrics! {
    DROPPED = "counter" "felix_subscribe_dropped_total" ["stream, policy"]
        "Records that subscriptions were not given because they were slow, counted while the gap is still open";
    PUBLISH_REQUESTS = "counter" "felix_publish_requests_total" ["result"]
        "Batches from publishers by their answer: stored, or the name of the error";
    PUBLISH_RECORDS = "counter" "felix_publish_records_total" [""] "Records stored";
    PUBLISH_BYTES = "counter" "felix_publish_bytes_total" [""] "Bytes of the batches stored, headers included";
    SUBSCRIBE_RECORDS = "counter" "felix_subscribe_records_total" [""] "Records handed to QUIC for subscriptions";
    SUBSCRIBE_BYTES = "counter" "felix_subscribe_bytes_total" [""]
        "Bytes of the batches handed to QUIC for subscriptions, headers included";
    PUBLISH_ACK = "histogram" "felix_publish_ack_seconds" [""]
        "Time from a batch's last byte read to its answer handed to QUIC";
    DELIVERY = "histogram" "felix_delivery_seconds" [""]
        "Time from a batch being stored to its first byte handed to QUIC, one observation for each write of a subscription";
    CONNECTIONS = "gauge" "felix_connections" [""] "Client connections";
    CONNECTIONS_REFUSED = "counter" "felix_connections_refused_total" [""]
        "Connections refused because of max_connections, or because the broker stops";
    LIMITED = "counter" "felix_limit_refusals_total" ["limit"]
        "What was refused because a limit was reached; retry: clients asked to show first that they receive at their address";
    SUBSCRIPTIONS = "gauge" "felix_subscriptions" [""] "Subscriptions, one for each subscriber and shard";
    PUBLISHERS = "gauge" "felix_publishers" [""] "Publishers, one for each publisher and shard";
    STREAMS = "gauge" "felix_streams" [""] "Streams in the catalogue";
    CATALOGUE_VERSION = "gauge" "felix_catalogue_version" [""] "Version of the catalogue";
    RING_BYTES = "gauge" "felix_ring_bytes" [""] "Bytes of batches kept in the rings of all shards";
    MEMORY_BUDGET = "gauge" "felix_memory_budget_bytes" ["share"] "Memory budget by share";
    MEMORY_USED = "gauge" "felix_memory_used_bytes" ["share"]
        "Memory in use by share of the budget; of send and receive, what the windows of all connections allow";
    UDP_ASKED = "gauge" "felix_udp_buffer_asked_bytes" ["direction"] "UDP socket buffer asked of the kernel";
    UDP_GRANTED = "gauge" "felix_udp_buffer_granted_bytes" ["direction"]
        "UDP socket buffer granted by the kernel: half of what it says, the smallest of all sockets";
    QUIC_SENT = "counter" "felix_quic_sent_packets_total" [""] "QUIC packets sent";
    QUIC_LOST = "counter" "felix_quic_lost_packets_total" [""] "QUIC packets taken for lost";
    QUIC_CONGESTION = "counter" "felix_quic_congestion_events_total" [""] "Times that QUIC reduced a congestion window";
    QUIC_BLACK_HOLES = "counter" "felix_quic_black_holes_total" [""]
        "Times that QUIC found a path where large datagrams vanish";
    QUIC_MTU = "gauge" "felix_quic_mtu_bytes" ["stat"]
        "Smallest and largest UDP payload in use over the present connections, 0 without any";
    QUIC_MTU_LIMIT = "gauge" "felix_quic_mtu_limit_bytes" ["peer"]
        "Largest UDP payload that is tried with peers on the loopback interface and elsewhere";
    LARGE_ARRIVE = "gauge" "felix_udp_large_datagrams_arrive" [""]
        "Whether datagrams of the sizes in use arrived at the broker's own address when it started, 1 or 0; if not, 1,200 bytes are used";
    LANE_CONNECTIONS = "gauge" "felix_lane_connections" ["lane"] "Client connections by lane";
    LANE_RECEIVED = "counter" "felix_lane_received_bytes_total" ["lane"] "Bytes of UDP payload from clients by lane";
    LANE_SENT = "counter" "felix_lane_sent_bytes_total" ["lane"] "Bytes of UDP payload to clients by lane";
    LANE_BUSY = "counter" "felix_lane_busy_seconds_total" ["lane"]
        "Time that a lane's thread was not waiting for something to do; a whole second in each second is all it can";
    INFO = "gauge" "felix_broker_info" ["version, cluster_id, broker_id"] "Who this broker is; always 1";
    UPTIME = "gauge" "felix_uptime_seconds" [""] "Seconds since the broker started";
    READY = "gauge" "felix_ready" [""] "Whether the broker serves clients, 1 or 0";
    CERTIFICATE_EXPIRY = "gauge" "felix_tls_certificate_expiry_seconds" [""]
        "Seconds until the server certificate in use expires, negative when it has";
    RELOAD_FAILURES = "counter" "felix_reload_failures_total" ["file"]
        "Times that a changed certificate or token file could not be used; the one before stays in use";
}

/// What is counted where it happens.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    stored: Counter,
    refused: Family<ResultLabel, Counter>,
    publish_records: Counter,
    publish_bytes: Counter,
    subscribe_records: Counter,
    subscribe_bytes: Counter,
    publish_ack: LatencyHistogram,
    delivery: LatencyHistogram,
    connections_refused: Counter,
    limited: [Counter; Limit::ALL.len()],
    reload_failures: Family<FileLabel, Counter>,
}

impl Metrics {
    /// A batch was stored.
    pub(crate) fn observe_stored(&self, records: u32, bytes: usize) {
        self.stored.inc();
        self.publish_records.inc_by(u64::from(records));
        self.publish_bytes.inc_by(bytes as u64);
    }

    /// A batch, or the opening of a publisher, was refused.
    pub(crate) fn observe_refused(&self, code: ErrorCode) {
        self.refused
            .get_or_create(&ResultLabel { result: code.name() })
            .inc();
    }

    /// An answer was handed to QUIC, so long after its batch had been read.
    pub(crate) fn observe_ack(&self, nanoseconds: u64) {
        self.publish_ack.observe(nanoseconds);
    }

    /// Batches were handed to QUIC for a subscription; the oldest had been stored so long before.
    pub(crate) fn observe_delivered(&self, records: u64, bytes: u64, nanoseconds: u64) {
        self.subscribe_records.inc_by(records);
        self.subscribe_bytes.inc_by(bytes);
        self.delivery.observe(nanoseconds);
    }

    /// A connection was refused.
    pub(crate) fn observe_connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// A limit was reached.
    pub(crate) fn observe_limit(&self, limit: Limit) {
        self.limited[limit as usize].inc();
    }

    /// A changed file could not be used.
    pub(crate) fn observe_reload_failure(&self, file: WatchedFile) {
        self.reload_failures
            .get_or_create(&FileLabel { file: file.name() })
            .inc();
    }
}

/// Limits whose refusals are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Retry,
    Handshakes,
    Connections,
    Streams,
    Publishers,
    Subscriptions,
}

impl Limit {
    const ALL: [Self; 6] = [
        Self::Retry,
        Self::Handshakes,
        Self::Connections,
        Self::Streams,
        Self::Publishers,
        Self::Subscriptions,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Handshakes => "handshakes",
            Self::Connections => "connections",
            Self::Streams => "streams",
            Self::Publishers => "publishers",
            Self::Subscriptions => "subscriptions",
        }
    }
}

/// Files that are read again when they change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WatchedFile {
    Certificate,
    AdminToken,
}

impl WatchedFile {
    const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::AdminToken => "admin_token",
        }
    }
}

/// What is read from the broker when somebody asks.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) cluster_id: String,
    pub(crate) broker_id: String,
    pub(crate) uptime_seconds: u64,
    pub(crate) ready: bool,
    pub(crate) connections: u64,
    pub(crate) subscriptions: u64,
    pub(crate) publishers: u64,
    pub(crate) streams: u64,
    pub(crate) catalogue_version: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) memory: Vec<MemoryShare>,
    pub(crate) buffers: Buffers,
    pub(crate) sizes: DatagramSizes,
    pub(crate) quic: QuicTotals,
    pub(crate) lanes: Vec<LaneTotals>,
    pub(crate) certificate_expiry_seconds: i64,
    pub(crate) dropped: Vec<Dropped>,
}

/// One share of the memory budget, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryShare {
    pub(crate) name: &'static str,
    pub(crate) budget: u64,
    pub(crate) used: u64,
}

/// Records dropped for one stream and policy since the broker started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) stream: String,
    pub(crate) policy: SlowSubscriberPolicy,
    pub(crate) records: u64,
}

/// Sums over all connections, past and present.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuicTotals {
    pub(crate) sent_packets: u64,
    pub(crate) lost_packets: u64,
    pub(crate) congestion_events: u64,
    pub(crate) black_holes: u64,
    /// Of the present connections, in bytes.
    pub(crate) smallest_mtu: u64,
    /// Of the present connections, in bytes.
    pub(crate) largest_mtu: u64,
}

/// What the connections of one lane, past and present, have had it do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneTotals {
    /// Present ones.
    pub(crate) connections: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// How long the lane's thread has been at work.
    pub(crate) busy: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabel {
    lane: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FileLabel {
    file: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShareLabel {
    share: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatLabel {
    stat: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabel {
    peer: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    stream: String,
    policy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InfoLabels {
    version: &'static str,
    cluster_id: String,
    broker_id: String,
}

impl Metrics {
    /// All metrics in the OpenMetrics text format.
    pub(crate) fn render(&self, snapshot: &Snapshot) -> String {
        let mut registry = Registry::default();
        self.register_counted(&mut registry);
        register_broker(&mut registry, snapshot);
        register_memory(&mut registry, snapshot);
        register_network(&mut registry, snapshot);
        register_sizes(&mut registry, snapshot.sizes);
        register_lanes(&mut registry, &snapshot.lanes);
        register_dropped(&mut registry, &snapshot.dropped);
        let mut text = String::new();
        // Writing to a string does not fail.
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap_or_default();
        text
    }

    fn register_counted(&self, registry: &mut Registry) {
        let results = Family::<ResultLabel, Counter>::default();
        results
            .get_or_create(&ResultLabel { result: "stored" })
            .inc_by(self.stored.get());
        for code in ErrorCode::ALL {
            let label = ResultLabel { result: code.name() };
            if let Some(refused) = self.refused.get(&label) {
                results.get_or_create(&label).inc_by(refused.get());
            }
        }
        register(registry, &PUBLISH_REQUESTS, results);
        register(registry, &PUBLISH_RECORDS, self.publish_records.clone());
        register(registry, &PUBLISH_BYTES, self.publish_bytes.clone());
        register(registry, &SUBSCRIBE_RECORDS, self.subscribe_records.clone());
        register(registry, &SUBSCRIBE_BYTES, self.subscribe_bytes.clone());
        register(registry, &PUBLISH_ACK, self.publish_ack.clone());
        register(registry, &DELIVERY, self.delivery.clone());
        register(registry, &CONNECTIONS_REFUSED, self.connections_refused.clone());
        let limited = Family::<LimitLabel, Counter>::default();
        for limit in Limit::ALL {
            let label = LimitLabel { limit: limit.name() };
            limited
                .get_or_create(&label)
                .inc_by(self.limited[limit as usize].get());
        }
        register(registry, &LIMITED, limited);
        for file in [WatchedFile::Certificate, WatchedFile::AdminToken] {
            // A series that begins at 0 shows its first increase.
            drop(
                self.reload_failures
                    .get_or_create(&FileLabel { file: file.name() }),
            );
        }
        register(registry, &RELOAD_FAILURES, self.reload_failures.clone());
    }
}

fn register_broker(registry: &mut Registry, snapshot: &Snapshot) {
    let info = InfoLabels {
        version: env!("CARGO_PKG_VERSION"),
        cluster_id: snapshot.cluster_id.clone(),
        broker_id: snapshot.broker_id.clone(),
    };
    let known = Family::<InfoLabels, prometheus_client::metrics::gauge::Gauge>::default();
    known.get_or_create(&info).set(1);
    register(registry, &INFO, known);
    register(registry, &UPTIME, gauge(snapshot.uptime_seconds));
    register(registry, &READY, gauge(u64::from(snapshot.ready)));
    register(registry, &CONNECTIONS, gauge(snapshot.connections));
    register(registry, &SUBSCRIPTIONS, gauge(snapshot.subscriptions));
    register(registry, &PUBLISHERS, gauge(snapshot.publishers));
    register(registry, &STREAMS, gauge(snapshot.streams));
    register(registry, &CATALOGUE_VERSION, gauge(snapshot.catalogue_version));
    register(
        registry,
        &CERTIFICATE_EXPIRY,
        ConstGauge::new(snapshot.certificate_expiry_seconds),
    );
}

fn register_memory(registry: &mut Registry, snapshot: &Snapshot) {
    register(registry, &RING_BYTES, gauge(snapshot.ring_bytes));
    let shares = |value: fn(&MemoryShare) -> u64| {
        gauges(
            snapshot
                .memory
                .iter()
                .map(|share| (ShareLabel { share: share.name }, value(share))),
        )
    };
    register(registry, &MEMORY_BUDGET, shares(|share| share.budget));
    register(registry, &MEMORY_USED, shares(|share| share.used));
}

fn register_network(registry: &mut Registry, snapshot: &Snapshot) {
    let directions = [
        ("receive", snapshot.buffers.receive),
        ("send", snapshot.buffers.send),
    ];
    let label = |direction| DirectionLabel { direction };
    register(
        registry,
        &UDP_ASKED,
        gauges(directions.map(|(name, buffer)| (label(name), buffer.asked))),
    );
    register(
        registry,
        &UDP_GRANTED,
        gauges(directions.map(|(name, buffer)| (label(name), buffer.granted))),
    );
    let quic = &snapshot.quic;
    register(registry, &QUIC_SENT, ConstCounter::new(quic.sent_packets));
    register(registry, &QUIC_LOST, ConstCounter::new(quic.lost_packets));
    register(
        registry,
        &QUIC_CONGESTION,
        ConstCounter::new(quic.congestion_events),
    );
    register(registry, &QUIC_BLACK_HOLES, ConstCounter::new(quic.black_holes));
    let stats = [("min", quic.smallest_mtu), ("max", quic.largest_mtu)];
    register(
        registry,
        &QUIC_MTU,
        gauges(stats.map(|(stat, value)| (StatLabel { stat }, value))),
    );
}

fn register_sizes(registry: &mut Registry, sizes: DatagramSizes) {
    let limits = [("loopback", sizes.loopback), ("elsewhere", sizes.largest)];
    register(
        registry,
        &QUIC_MTU_LIMIT,
        gauges(limits.map(|(peer, size)| (PeerLabel { peer }, u64::from(size)))),
    );
    register(registry, &LARGE_ARRIVE, gauge(u64::from(sizes.arrive)));
}

fn register_lanes(registry: &mut Registry, lanes: &[LaneTotals]) {
    let connections = Family::<LaneLabel, prometheus_client::metrics::gauge::Gauge>::default();
    let received = Family::<LaneLabel, Counter>::default();
    let sent = Family::<LaneLabel, Counter>::default();
    let busy = Family::<LaneLabel, Counter<f64, AtomicU64>>::default();
    for (lane, totals) in lanes.iter().enumerate() {
        let label = LaneLabel { lane };
        connections
            .get_or_create(&label)
            .set(i64::try_from(totals.connections).unwrap_or(i64::MAX));
        received.get_or_create(&label).inc_by(totals.received_bytes);
        sent.get_or_create(&label).inc_by(totals.sent_bytes);
        busy.get_or_create(&label).inc_by(totals.busy.as_secs_f64());
    }
    register(registry, &LANE_CONNECTIONS, connections);
    register(registry, &LANE_RECEIVED, received);
    register(registry, &LANE_SENT, sent);
    register(registry, &LANE_BUSY, busy);
}

fn register_dropped(registry: &mut Registry, dropped: &[Dropped]) {
    let series = Family::<DropLabels, Counter>::default();
    for entry in dropped {
        let labels = DropLabels {
            stream: entry.stream.clone(),
            policy: entry.policy.name(),
        };
        series.get_or_create(&labels).inc_by(entry.records);
    }
    register(registry, &DROPPED, series);
}

/// The registry adds the ending of a counter's name itself.
fn register(registry: &mut Registry, row: &Row, metric: impl Metric) {
    registry.register(
        row.name.strip_suffix("_total").unwrap_or(row.name),
        row.help,
        metric,
    );
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

fn gauges<L>(
    values: impl IntoIterator<Item = (L, u64)>,
) -> Family<L, prometheus_client::metrics::gauge::Gauge>
where
    L: Clone + std::hash::Hash + Eq,
{
    let family = Family::<L, prometheus_client::metrics::gauge::Gauge>::default();
    for (label, value) in values {
        family
            .get_or_create(&label)
            .set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    family
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::udp::Buffer;

    fn snapshot() -> Snapshot {
        let buffer = Buffer { asked: 8, granted: 4 };
        Snapshot {
            cluster_id: "c".into(),
            broker_id: "b".into(),
            uptime_seconds: 1,
            ready: true,
            connections: 2,
            subscriptions: 3,
            publishers: 4,
            streams: 5,
            catalogue_version: 6,
            ring_bytes: 7,
            memory: vec![MemoryShare {
                name: "rings",
                budget: 9,
                used: 8,
            }],
            buffers: Buffers {
                receive: buffer,
                send: buffer,
            },
            sizes: DatagramSizes {
                loopback: 4096,
                initial: 1200,
                largest: 1452,
                arrive: true,
            },
            quic: QuicTotals::default(),
            lanes: vec![
                LaneTotals::default(),
                LaneTotals {
                    connections: 12,
                    received_bytes: 13,
                    sent_bytes: 14,
                    busy: Duration::from_millis(1500),
                },
            ],
            certificate_expiry_seconds: -10,
            dropped: vec![Dropped {
                stream: "s".into(),
                policy: SlowSubscriberPolicy::DropOld,
                records: 11,
            }],
        }
    }

    #[test]
    fn the_table_and_the_exposition_agree() {
        let metrics = Metrics::default();
        metrics.observe_refused(ErrorCode::UnknownStream);
        let text = metrics.render(&snapshot());
        let mut exposed = BTreeSet::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            let ending = if kind == "counter" { "_total" } else { "" };
            exposed.insert((format!("{name}{ending}"), kind.to_owned()));
        }
        let documented = TABLE
            .iter()
            .map(|row| (row.name.to_owned(), row.kind.to_owned()))
            .collect();
        assert_eq!(exposed, documented);
    }

    #[test]
    fn values_stand_where_they_belong() {
        let metrics = Metrics::default();
        metrics.observe_stored(64, 1000);
        metrics.observe_refused(ErrorCode::RecordTooLarge);
        let text = metrics.render(&snapshot());
        for line in [
            "felix_subscribe_dropped_total{stream=\"s\",policy=\"drop_old\"} 11",
            "felix_publish_requests_total{result=\"stored\"} 1",
            "felix_publish_requests_total{result=\"RecordTooLarge\"} 1",
            "felix_publish_records_total 64",
            "felix_udp_buffer_granted_bytes{direction=\"send\"} 4",
            "felix_tls_certificate_expiry_seconds -10",
            "felix_quic_mtu_limit_bytes{peer=\"elsewhere\"} 1452",
            "felix_udp_large_datagrams_arrive 1",
            "felix_lane_connections{lane=\"1\"} 12",
            "felix_lane_received_bytes_total{lane=\"1\"} 13",
            "felix_lane_sent_bytes_total{lane=\"1\"} 14",
            "felix_lane_busy_seconds_total{lane=\"1\"} 1.5",
            "felix_broker_info{version=\"0.1.0\",cluster_id=\"c\",broker_id=\"b\"} 1",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
