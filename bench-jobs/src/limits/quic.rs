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
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{Found, Load, WARMUP_ROUNDS};
use crate::measure::latency_histogram;

/// What the broker and its clients guarantee between loopback peers, in bytes.
const MTU: u16 = 4096;
const UDP_BUFFER_BYTES: usize = 8 << 20;
const WINDOW_BYTES: u32 = 64 << 20;

/// A listening endpoint with a certificate made for the occasion.
pub(crate) struct Listening {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    /// What clients trust.
    pub(crate) ca_pem: String,
}

/// Opens an endpoint on loopback.
pub(crate) fn listen() -> anyhow::Result<Listening> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let key = key.map_err(anyhow::Error::msg)?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    config.alpn_protocols = vec![felix_wire::ALPN.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(config)?));
    config.transport_config(transport());
    let endpoint = endpoint(Some(config))?;
    Ok(Listening {
        address: endpoint.local_addr()?,
        endpoint,
        ca_pem: made.cert.pem(),
    })
}

/// Connects to a [`Listening`] endpoint.
#[derive(Clone)]
pub(crate) struct Dialer(ClientConfig);

impl Dialer {
    /// Trusts the certificate in `ca_pem`.
    pub(crate) fn new(ca_pem: &[u8]) -> anyhow::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem) {
            roots.add(certificate.context("reading a certificate")?)?;
        }
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![felix_wire::ALPN.to_vec()];
        let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(config)?));
        config.transport_config(transport());
        Ok(Self(config))
    }

    /// A connection from an endpoint of its own, as every client has.
    pub(crate) async fn connect(&self, address: SocketAddr) -> anyhow::Result<Connection> {
        let connecting = endpoint(None)?.connect_with(self.0.clone(), address, "localhost")?;
        connecting.await.context("connecting")
    }
}

/// AES-128-GCM first, as Felix clients ask for: another cipher would be another limit.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
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
    let Listening {
        endpoint: server,
        address,
        ca_pem,
    } = listen()?;
    let far = tokio::spawn(async move {
        let connection = server.accept().await.context("nobody came")?.await?;
        let (mut send, mut recv) = connection.accept_bi().await?;
        while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
            send.write_chunk(chunk.bytes).await?;
        }
        anyhow::Ok(())
    });
    let connection = Dialer::new(ca_pem.as_bytes())?.connect(address).await?;
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
