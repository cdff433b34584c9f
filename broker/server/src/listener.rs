//! A lane's door: who may come in, how many at once, with which configuration.

use std::{sync::Arc, time::Duration};

use quinn::{Endpoint, Incoming};
use tokio::time;
use tracing::{Instrument as _, debug_span};

use crate::{
    broker::{Broker, Phase},
    connection,
    gauge::Counted,
    lanes::{self, Lane},
    metrics::Limit,
    peers::Peer,
    transport::ServerConfigs,
};

/// Part of the handshakes that may be under way, on all lanes together, above which a client has to show first that it receives
/// at its address.
const RETRY_ABOVE: usize = 8;
/// Longest handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Lets clients in on one lane. The limits hold over all lanes: they count together.
pub(crate) struct Listener {
    pub(crate) lane: Lane,
    pub(crate) endpoint: Endpoint,
    pub(crate) configs: ServerConfigs,
    pub(crate) broker: Arc<Broker>,
}

impl Listener {
    /// Admits clients until the endpoint is closed. Who comes while the broker stops is refused, and so knows at once.
    pub(crate) async fn run(self) {
        while let Some(incoming) = self.endpoint.accept().await {
            self.admit(incoming);
        }
    }

    fn admit(&self, incoming: Incoming) {
        if self.broker.stopping.has_reached(Phase::Leaving) {
            self.broker.metrics.observe_connection_refused();
            return incoming.refuse();
        }
        let handshakes = &self.broker.handshakes;
        if handshakes.count() >= handshakes.limit() / RETRY_ABOVE
            && !incoming.remote_address_validated()
            && incoming.may_retry()
        {
            self.broker.metrics.observe_limit(Limit::Retry);
            // Whether it can be sent is the kernel's affair; the client asks again.
            incoming.retry().ok();
            return;
        }
        let Some(handshake) = handshakes.enter() else {
            // Clients send first packets again.
            self.broker.metrics.observe_limit(Limit::Handshakes);
            return incoming.ignore();
        };
        let Some(place) = self.broker.connections.take_place() else {
            self.broker.metrics.observe_connection_refused();
            self.broker.metrics.observe_limit(Limit::Connections);
            return incoming.refuse();
        };
        let config = self.configs.for_peer(incoming.remote_address().ip());
        tokio::spawn(shake_hands(
            Arc::clone(&self.broker),
            incoming,
            config,
            Places {
                lane: self.lane,
                handshake,
                place,
            },
        ));
    }
}

/// The places that a connection takes while it begins.
struct Places {
    lane: Lane,
    handshake: Counted,
    place: Counted,
}

async fn shake_hands(
    broker: Arc<Broker>,
    incoming: Incoming,
    config: Arc<quinn::ServerConfig>,
    places: Places,
) {
    let peer = incoming.remote_address();
    let (accepted, id) = lanes::with_id_made(|| incoming.accept_with(config));
    let connected = match accepted {
        Ok(connecting) => time::timeout(HANDSHAKE_TIMEOUT, connecting).await,
        Err(error) => return tracing::debug!(%peer, %error, "a handshake did not begin"),
    };
    let connection = match connected {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "a handshake failed"),
        Err(_) => return tracing::debug!(%peer, "a handshake took too long"),
    };
    drop(places.handshake);
    let entered = broker.connections.enter(&connection, places.lane, places.place);
    let _remembered = id.map(|id| {
        broker.peers.remember(Peer {
            id,
            remote: connection.remote_address(),
            local: connection.local_ip(),
        })
    });
    // Spans are made where the level is debug; else one is a look at a static, and entering it another.
    let span = debug_span!("connection", %peer, lane = places.lane.index);
    connection::serve(broker, connection, entered)
        .instrument(span)
        .await;
}
