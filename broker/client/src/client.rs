//! The client: a handle to one broker's address. Cheap to clone; all clones share one connection.

use std::sync::Arc;
use std::time::Duration;

use felix_wire::{Metadata, StreamName};

use crate::config::Builder;
use crate::connect::Dialer;
use crate::error::{ConnectError, MetadataError};
use crate::link::Links;
use crate::publisher::PublisherBuilder;
use crate::subscription::SubscribeBuilder;

/// How long a metadata request may take, reconnecting included.
const METADATA_TIMEOUT: Duration = Duration::from_secs(15);

/// A client of one broker.
#[derive(Clone)]
pub struct Client {
    links: Arc<Links>,
    delivery_timeout: Duration,
}

/// Who the broker says it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BrokerIdentity {
    /// The cluster it belongs to.
    pub cluster_id: String,
    /// The broker's own id.
    pub broker_id: String,
}

/// What QUIC knows about the connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TransportStats {
    /// Largest datagram in bytes at the moment.
    pub mtu_bytes: u16,
    /// Smoothed round trip.
    pub round_trip: Duration,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets lost.
    pub lost_packets: u64,
    /// Times that the congestion window was cut.
    pub congestion_events: u64,
    /// Times that large datagrams were found to vanish.
    pub black_holes: u64,
}

impl Client {
    /// Begins to describe a client of the broker at `host:port`.
    pub fn builder(address: &str) -> Builder {
        Builder::new(address)
    }

    pub(crate) fn new(dialer: Dialer, delivery_timeout: Duration, unread_bytes: u64) -> Self {
        Self {
            links: Arc::new(Links::new(dialer, unread_bytes)),
            delivery_timeout,
        }
    }

    pub(crate) async fn first_connection(&self, patience: Duration) -> Result<(), ConnectError> {
        self.links.get_within(patience).await.map(drop)
    }

    /// Begins to describe a publisher to a stream.
    pub fn publisher(&self, stream: &str) -> PublisherBuilder {
        PublisherBuilder::new(self.clone(), stream)
    }

    /// Begins to describe a subscription of a stream.
    pub fn subscribe(&self, stream: &str) -> SubscribeBuilder {
        SubscribeBuilder::new(self.clone(), stream)
    }

    /// What the stream is made of: its life, its class, its shards.
    pub async fn metadata(&self, stream: &str) -> Result<Metadata, MetadataError> {
        let stream = StreamName::new(stream)?;
        let asked = async {
            loop {
                let link = self.links.get().await.map_err(MetadataError::Connect)?;
                match link.metadata(stream.clone()).await {
                    // The connection broke under the request: asking again does no harm.
                    Err(MetadataError::Connect(_)) => tokio::task::yield_now().await,
                    answered => return answered,
                }
            }
        };
        match tokio::time::timeout(METADATA_TIMEOUT, asked).await {
            Ok(answered) => answered,
            Err(_) => {
                let address = self.links.address().to_owned();
                Err(ConnectError::TimedOut {
                    address,
                    waited: METADATA_TIMEOUT,
                }
                .into())
            }
        }
    }

    /// Who the broker at the other end is; `None` while there is no connection.
    pub async fn broker(&self) -> Option<BrokerIdentity> {
        let link = self.links.latest().await?;
        let welcome = link.welcome.clone();
        Some(BrokerIdentity {
            cluster_id: welcome.cluster_id,
            broker_id: welcome.broker_id,
        })
    }

    /// What QUIC knows about the latest connection; `None` before there was one.
    pub async fn transport_stats(&self) -> Option<TransportStats> {
        let stats = self.links.latest().await?.connection.stats().path;
        Some(TransportStats {
            mtu_bytes: stats.current_mtu,
            round_trip: stats.rtt,
            sent_packets: stats.sent_packets,
            lost_packets: stats.lost_packets,
            congestion_events: stats.congestion_events,
            black_holes: stats.black_holes_detected,
        })
    }

    /// Closes the connection. What is unanswered fails; close publishers first to wait for it.
    pub async fn close(&self) {
        self.links.close().await;
    }

    pub(crate) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    pub(crate) fn delivery_timeout(&self) -> Duration {
        self.delivery_timeout
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.links.address())
            .finish_non_exhaustive()
    }
}
