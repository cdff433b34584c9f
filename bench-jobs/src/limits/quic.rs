//! Bare QUIC with the broker's loopback settings, and the echo over it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, Connection, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig,
    TransportConfig,
};

use super::{Found, Load, WARMUP_ROUNDS};
use crate::measure::latency_histogram;

/// What the broker and its clients guarantee between loopback peers, in bytes.
const MTU: u16 = 4096;
const UDP_BUFFER_BYTES: usize = 8 << 20;
const WINDOW_BYTES: u32 = 64 << 20;

/// Both ends' configurations, with a certificate made for the occasion.
#[derive(Clone)]
pub(super) struct Configs {
    server: ServerConfig,
    client: ClientConfig,
}

impl Configs {
    pub(super) fn new() -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let key = key.map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = &[&rustls::version::TLS13];
        let server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone())?;
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let transport = transport();
        let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server)?));
        let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client)?));
        server.transport_config(transport.clone());
        client.transport_config(transport);
        Ok(Self { server, client })
    }

    /// A listening endpoint and its address.
    pub(super) fn listen(&self) -> anyhow::Result<(Endpoint, SocketAddr)> {
        let endpoint = endpoint(Some(self.server.clone()))?;
        let address = endpoint.local_addr()?;
        Ok((endpoint, address))
    }

    /// A connection from an endpoint of its own, as every client has.
    pub(super) async fn connect(&self, address: SocketAddr) -> anyhow::Result<Connection> {
        let connecting = endpoint(None)?.connect_with(self.client.clone(), address, "localhost")?;
        connecting.await.context("connecting")
    }
}

fn endpoint(server: Option<ServerConfig>) -> anyhow::Result<Endpoint> {
    let socket = socket2::Socket::from(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
    socket.set_recv_buffer_size(UDP_BUFFER_BYTES)?;
    socket.set_send_buffer_size(UDP_BUFFER_BYTES)?;
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(u16::MAX - 8)?;
    Ok(Endpoint::new(
        config,
        server,
        socket.into(),
        Arc::new(quinn::TokioRuntime),
    )?)
}

fn transport() -> Arc<TransportConfig> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(MTU);
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(20_u32.into())
        .max_ack_delay(Some(Duration::from_millis(2)));
    let mut config = TransportConfig::default();
    config
        .initial_mtu(MTU)
        .min_mtu(MTU)
        .mtu_discovery_config(Some(discovery))
        .ack_frequency_config(Some(acks))
        .stream_receive_window((WINDOW_BYTES / 2).into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into());
    Arc::new(config)
}

/// Messages there and back over one stream, both ends on this runtime.
pub(super) async fn echo(load: Load) -> anyhow::Result<Found> {
    let configs = Configs::new()?;
    let (server, address) = configs.listen()?;
    let far = tokio::spawn(async move {
        let connection = server.accept().await.context("nobody came")?.await?;
        let (mut send, mut recv) = connection.accept_bi().await?;
        while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
            send.write_chunk(chunk.bytes).await?;
        }
        anyhow::Ok(())
    });
    let connection = configs.connect(address).await?;
    let (mut send, mut recv) = connection.open_bi().await?;
    let message = vec![7; load.message.max(1)];
    let mut buffer = message.clone();
    let mut histogram = latency_histogram();
    let (begin, mut round) = (Instant::now(), 0);
    while begin.elapsed() < load.time || histogram.is_empty() {
        let sent = Instant::now();
        send.write_all(&message).await?;
        recv.read_exact(&mut buffer).await?;
        round += 1;
        if round > WARMUP_ROUNDS {
            histogram.saturating_record(sent.elapsed().as_nanos() as u64);
        }
    }
    send.finish()?;
    far.await??;
    Ok(Found::Latency(histogram))
}
