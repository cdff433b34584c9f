//! A client of bare QUIC that asks for a lane, and says hello.

use std::{net::SocketAddr, sync::Arc};

use felix_wire::Frame;
use quinn::{Connection, ConnectionError, ConnectionId, Endpoint};

use super::{wire, within};

/// A connection, and the endpoint with its socket.
pub(crate) struct RawClient {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: Connection,
}

impl RawClient {
    /// Connects with a first flight whose connection id begins with `first`.
    pub(crate) async fn connect(
        address: SocketAddr,
        ca_pem: &[u8],
        first: u8,
    ) -> Result<Self, ConnectionError> {
        let mut config = wire::config(ca_pem);
        config.initial_dst_cid_provider(Arc::new(move || {
            let mut id: [u8; 8] = rand::random();
            id[0] = first;
            ConnectionId::new(&id)
        }));
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let connecting = endpoint.connect_with(config, address, "localhost").unwrap();
        let connection = within(connecting).await?;
        Ok(Self { endpoint, connection })
    }

    /// Says hello on the first stream and waits for the welcome.
    pub(crate) async fn greet(&self) {
        let (mut send, mut recv) = within(self.connection.open_bi()).await.unwrap();
        within(send.write_all(&wire::encoded(&wire::hello())))
            .await
            .unwrap();
        let answer = wire::read_frame(&mut recv).await;
        assert!(matches!(answer, Frame::Welcome(_)), "{answer:?}");
    }
}
