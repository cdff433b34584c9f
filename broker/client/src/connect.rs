//! One attempt to connect: resolve, socket, QUIC and TLS handshake, hello. Everything is new at each attempt, so that a moved
//! name, a stale connection-tracking entry or a changed route is left behind.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use felix_wire::{AuthMethod, Frame, Hello, MAX_ANSWER_BYTES, VERSION, Welcome};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ConnectionError, ConnectionId, Endpoint, EndpointConfig, SendStream, TransportConfig, VarInt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::time::timeout;

use crate::error::ConnectError;
use crate::frames::{FrameReader, ReadEnd, code_of};
use crate::mtu;

/// How long one attempt at one address may take. A lost first packet is sent again well within it.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Addresses of a name that one attempt tries.
const ADDRESSES_MAX: usize = 8;

/// Size that both socket buffers ask for, in bytes. What is granted depends on the machine; see the broker's settings.
const UDP_BUFFER_BYTES: usize = 8 << 20;

/// Bytes of one stream that may be on the way: no less than the largest credit of a subscription, which bounds what waits
/// unread in this process.
const STREAM_WINDOW: u32 = 8 << 20;

/// Bytes sent and not acknowledged by QUIC on one connection: above it, writers wait.
const SEND_WINDOW: u64 = 16 << 20;

/// Silence after which a connection is given up: twice the time between pings, and QUIC repeats one that is lost. A broker
/// whose machine vanished is noticed within this; one that was restarted says so itself.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between pings on a quiet connection. They keep address translations alive, the shortest of which forget a flow after
/// 30 s (Linux, until packets went both ways for 2 s; then 120 s). Each costs the broker some 150 us on a busy machine, so
/// a thousand quiet clients take about a hundredth of a core there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Peers acknowledge at most every so many packets, at latest after [`ACK_DELAY`].
const ACK_THRESHOLD: u32 = 20;
const ACK_DELAY: Duration = Duration::from_millis(2);

/// Length of the connection id that a first flight is sent to, in bytes: as random as QUIC allows.
const FIRST_ID_BYTES: usize = 20;

/// Everything an attempt needs.
pub(crate) struct Dialer {
    pub(crate) address: String,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) tls: Arc<QuicClientConfig>,
    pub(crate) agent: String,
    /// What connections ask for instead of one thread of the broker after the other.
    pub(crate) wish: Option<u8>,
}

/// A connection that has said hello.
pub(crate) struct Dialed {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: quinn::Connection,
    pub(crate) control_send: SendStream,
    pub(crate) control_recv: FrameReader,
    pub(crate) welcome: Welcome,
}

impl Dialer {
    /// Tries the name's addresses, one after the other.
    pub(crate) async fn dial(&self) -> Result<Dialed, ConnectError> {
        let mut last = ConnectError::Resolve {
            address: self.address.clone(),
            reason: "no address".into(),
        };
        for address in self.resolve().await? {
            match timeout(ATTEMPT_TIMEOUT, self.dial_one(address)).await {
                Ok(Ok(dialed)) => return Ok(dialed),
                Ok(Err(error)) => last = error,
                Err(_) => {
                    last = ConnectError::TimedOut {
                        address: self.address.clone(),
                        waited: ATTEMPT_TIMEOUT,
                    };
                }
            }
        }
        Err(last)
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        let failed = |reason: String| ConnectError::Resolve {
            address: self.address.clone(),
            reason,
        };
        let found = timeout(ATTEMPT_TIMEOUT, tokio::net::lookup_host(&self.address)).await;
        let found = found.map_err(|_| failed("the resolver did not answer".into()))?;
        Ok(found
            .map_err(|error| failed(error.to_string()))?
            .take(ADDRESSES_MAX)
            .collect())
    }

    async fn dial_one(&self, address: SocketAddr) -> Result<Dialed, ConnectError> {
        let endpoint = endpoint(address.ip()).map_err(|error| ConnectError::Socket {
            reason: format!("for {address}: {error}"),
        })?;
        let mut config = quinn::ClientConfig::new(self.tls.clone());
        let wish = self.wish;
        config
            .transport_config(transport(address.ip()))
            .initial_dst_cid_provider(Arc::new(move || first_flight_id(wish)));
        let connecting = endpoint
            .connect_with(config, address, &self.server_name.to_str())
            .map_err(|error| self.lost(error.to_string()))?;
        let connection = connecting.await.map_err(|error| self.explain(error))?;
        let (control_send, control_recv, welcome) = self.greet(&connection).await?;
        Ok(Dialed {
            endpoint,
            connection,
            control_send,
            control_recv,
            welcome,
        })
    }

    async fn greet(
        &self,
        connection: &quinn::Connection,
    ) -> Result<(SendStream, FrameReader, Welcome), ConnectError> {
        let (mut send, recv) = connection.open_bi().await.map_err(|error| self.explain(error))?;
        let hello = Frame::Hello(Hello {
            min_version: VERSION,
            max_version: VERSION,
            features: 0,
            agent: self.agent.clone(),
            auth: AuthMethod::None,
            token: Bytes::new(),
        });
        send.write_chunk(encoded(&hello))
            .await
            .map_err(|error| self.lost(error.to_string()))?;
        let mut reader = FrameReader::new(recv, MAX_ANSWER_BYTES);
        let unexpected = |what: &str| ConnectError::Protocol {
            reason: format!("{what} instead of a welcome"),
        };
        match reader.next().await {
            Ok(Frame::Welcome(welcome)) => Ok((send, reader, welcome)),
            Ok(Frame::Error(error)) => Err(ConnectError::Refused {
                code: error.code,
                message: error.message,
            }),
            Ok(other) => Err(unexpected(&format!("{:?}", other.kind()))),
            Err(ReadEnd::Broken(error)) => Err(unexpected(&error.to_string())),
            Err(ReadEnd::Reset(code)) => Err(ConnectError::Refused {
                code,
                message: String::new(),
            }),
            Err(ReadEnd::Finished) => Err(unexpected("the end of the stream")),
            Err(ReadEnd::Lost(reason)) => Err(connection
                .close_reason()
                .map_or_else(|| self.lost(reason), |error| self.explain(error))),
        }
    }

    fn lost(&self, reason: String) -> ConnectError {
        ConnectError::Lost {
            address: self.address.clone(),
            reason,
        }
    }

    /// Which of our errors a failed connection is: only TLS and typed refusals are final.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other way to lose a connection is alike"
    )]
    pub(crate) fn explain(&self, error: ConnectionError) -> ConnectError {
        /// TLS alerts are carried in codes 0x100 to 0x1ff (RFC 9001 section 4.8).
        const CRYPTO: std::ops::RangeInclusive<u64> = 0x100..=0x1ff;
        let address = self.address.clone();
        match error {
            ConnectionError::TransportError(error) if CRYPTO.contains(&error.code.into()) => {
                ConnectError::Tls {
                    address,
                    reason: error.to_string(),
                }
            }
            ConnectionError::ConnectionClosed(close) if CRYPTO.contains(&close.error_code.into()) => {
                ConnectError::Tls {
                    address,
                    reason: close.to_string(),
                }
            }
            ConnectionError::ApplicationClosed(close) => ConnectError::Refused {
                code: code_of(close.error_code),
                message: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            other => self.lost(other.to_string()),
        }
    }
}

/// Where a first flight is sent to. A broker serves connections on as many threads as it likes and takes the first byte of the
/// id, modulo their number, for a wish; others take the id for the random one that it is but for that byte. Without a wish,
/// the connections of one process ask for one thread after the other, and different processes begin with different ones.
fn first_flight_id(wish: Option<u8>) -> ConnectionId {
    static NEXT: LazyLock<AtomicU8> = LazyLock::new(|| AtomicU8::new(rand::random()));
    let mut id: [u8; FIRST_ID_BYTES] = rand::random();
    id[0] = wish.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
    ConnectionId::new(&id)
}

/// A control frame's bytes.
pub(crate) fn encoded(frame: &Frame) -> Bytes {
    let mut bytes = BytesMut::with_capacity(256);
    frame.encode(&mut bytes);
    bytes.freeze()
}

/// TLS 1.3 alone, our protocol alone, AES-128-GCM first: it is the fastest where the processor has AES.
pub(crate) fn tls_config(ca_pem: &[u8]) -> Result<Arc<QuicClientConfig>, ConnectError> {
    let unusable = |reason: String| ConnectError::Ca { reason };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("no certificate in it".into()));
    }
    let mut provider = rustls::crypto::ring::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| unusable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![felix_wire::ALPN.to_vec()];
    let config = QuicClientConfig::try_from(config).map_err(|error| unusable(error.to_string()))?;
    Ok(Arc::new(config))
}

/// A socket of its own for each attempt, with the largest buffers that the system grants.
fn endpoint(peer: IpAddr) -> std::io::Result<Endpoint> {
    let any: SocketAddr = match peer {
        IpAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = socket2::Socket::from(UdpSocket::bind(any)?);
    socket.set_recv_buffer_size(UDP_BUFFER_BYTES)?;
    socket.set_send_buffer_size(UDP_BUFFER_BYTES)?;
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(mtu::LARGEST)
        .map_err(std::io::Error::other)?;
    Endpoint::new(config, None, socket.into(), Arc::new(quinn::TokioRuntime))
}

/// How QUIC behaves. Guarantees about the path are made for loopback peers alone.
fn transport(peer: IpAddr) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let mut discovery = quinn::MtuDiscoveryConfig::default();
    if peer.to_canonical().is_loopback() {
        let size = mtu::loopback();
        config
            .initial_mtu(size)
            .min_mtu(size)
            .initial_rtt(Duration::from_millis(5));
        discovery.upper_bound(size);
    } else {
        let (first, largest) = mtu::elsewhere();
        config.initial_mtu(first).initial_rtt(Duration::from_millis(50));
        discovery.upper_bound(largest);
    }
    let mut acks = quinn::AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(ACK_THRESHOLD))
        .max_ack_delay(Some(ACK_DELAY));
    config
        .mtu_discovery_config(Some(discovery))
        .ack_frequency_config(Some(acks))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        // Credit bounds the sum of all subscriptions. A window of the connection's would be taken by those that are not read.
        .receive_window(VarInt::MAX)
        .send_window(SEND_WINDOW)
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(quinn::IdleTimeout::try_from(IDLE_TIMEOUT).ok())
        .keep_alive_interval(Some(KEEP_ALIVE));
    Arc::new(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_flights_ask_for_one_thread_after_the_other_and_are_random_otherwise() {
        let ids: Vec<_> = (0..=u8::MAX).map(|_| first_flight_id(None)).collect();
        for pair in ids.windows(2) {
            assert_eq!(pair[1][0], pair[0][0].wrapping_add(1));
            assert_ne!(pair[1][1..], pair[0][1..]);
        }
        assert_eq!(first_flight_id(Some(77))[0], 77);
    }
}
