//! The port for clients: one socket and QUIC endpoint a lane, each on the runtime of its lane.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use quinn::{Endpoint, VarInt};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, JoinSet},
    time,
};

use crate::{
    broker::Broker,
    data_dir::QuicKeys,
    lanes::Lane,
    listener::Listener,
    transport::{self, ServerConfigs},
};

/// Longest wait for the last packets of closed connections.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An open port. All its sockets stay open until the last endpoint is done: the kernel steers by their order.
pub(crate) struct QuicPort {
    lanes: Vec<OpenLane>,
    configs: ServerConfigs,
    address: SocketAddr,
}

struct OpenLane {
    lane: Lane,
    runtime: Handle,
    endpoint: Endpoint,
}

impl QuicPort {
    /// Makes an endpoint of each socket, on the runtime of the same place. `address` is that of the sockets.
    pub(crate) fn open(
        sockets: Vec<UdpSocket>,
        runtimes: &[Handle],
        configs: ServerConfigs,
        keys: &QuicKeys,
    ) -> io::Result<Self> {
        let address = match sockets.first() {
            Some(first) => first.local_addr()?,
            None => return Err(io::ErrorKind::NotConnected.into()),
        };
        let of = u8::try_from(sockets.len()).unwrap_or(u8::MAX);
        let lanes = Lane::all(of).zip(sockets).zip(runtimes);
        let lanes = lanes.map(|((lane, socket), runtime)| {
            // The endpoint's task begins where its socket is registered: on the lane's runtime.
            let _on_the_lane = runtime.enter();
            let endpoint = Endpoint::new(
                transport::endpoint_config(keys, lane),
                Some(configs.any()),
                socket,
                Arc::new(quinn::TokioRuntime),
            )?;
            Ok(OpenLane {
                lane,
                runtime: runtime.clone(),
                endpoint,
            })
        });
        Ok(Self {
            lanes: lanes.collect::<io::Result<_>>()?,
            configs,
            address,
        })
    }

    /// The address, with the port that was given by the system if 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many lanes there are.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Lets clients in on all lanes, until the port is closed.
    pub(crate) fn listen(&self, broker: &Arc<Broker>) -> Vec<JoinHandle<()>> {
        let listeners = self.lanes.iter().map(|open| {
            let listener = Listener {
                lane: open.lane,
                endpoint: open.endpoint.clone(),
                configs: self.configs.clone(),
                broker: Arc::clone(broker),
            };
            open.runtime.spawn(listener.run())
        });
        listeners.collect()
    }

    /// Closes all connections with a code and a reason, and waits a little for the last packets.
    pub(crate) async fn close(&self, code: VarInt, reason: &str) {
        let mut idle = JoinSet::new();
        for OpenLane { endpoint, .. } in &self.lanes {
            endpoint.close(code, reason.as_bytes());
            let endpoint = endpoint.clone();
            idle.spawn(async move { endpoint.wait_idle().await });
        }
        time::timeout(CLOSE_TIMEOUT, idle.join_all()).await.ok();
    }
}
