//! How QUIC behaves: datagram sizes, windows, time-outs, keys. Each figure has its reason beside it.

use std::{net::IpAddr, sync::Arc, time::Duration};

use quinn::{
    AckFrequencyConfig, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, ServerConfig, TransportConfig,
    crypto::rustls::{NoInitialCipherSuite, QuicServerConfig},
};
use ring::{hkdf, hmac};

use crate::{
    connection::FIRST_STREAMS,
    connections::{FIRST_WINDOW, STREAM_WINDOW},
    data_dir::QuicKeys,
    lanes::{Lane, LaneIds},
    mtu::DatagramSizes,
    settings::{LARGEST_MTU, SAFE_MTU},
    tls::{self, Certificate},
};

/// No acknowledgement comes later than after so long.
const MAX_ACK_DELAY: Duration = Duration::from_millis(2);
/// A peer that is silent for so long is gone. QUIC repeats a ping that is lost, so one fits well.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Keeps quiet connections of clients that do not ping. Ours does, more often: its address translations must last.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// First packets that wait to be looked at, and what they may hold: they are looked at as they come.
const MAX_INCOMING: usize = 1024;
const INCOMING_BYTES: u64 = 64 << 10;
/// A burst of clients of a former process is told at this rate that their connections are gone.
const MIN_RESET_INTERVAL: Duration = Duration::from_micros(200);
/// Length of a stateless reset token in bytes (RFC 9000, section 10.3).
const RESET_TOKEN_BYTES: usize = 16;

/// The endpoint's side: keys that outlive the process and are those of all lanes, and the largest datagram that is received.
pub(crate) fn endpoint_config(keys: &QuicKeys, lane: Lane) -> EndpointConfig {
    let reset_key = reset_key(keys);
    // A process answers packets of a connection it does not know only if it could have given out the connection's id.
    let id_key = hmac::sign(&reset_key, b"connection ids");
    let id_key = hmac::Key::new(hmac::HMAC_SHA256, id_key.as_ref());
    let mut config = EndpointConfig::new(Arc::new(reset_key));
    config.cid_generator(move || Box::new(LaneIds::new(id_key.clone(), lane)));
    config.min_reset_interval(MIN_RESET_INTERVAL);
    // The bound is below what the type allows.
    config.max_udp_payload_size(LARGEST_MTU).ok();
    config
}

/// The key of the tokens by which a client knows that a packet without a connection comes from its broker.
pub(crate) fn reset_key(keys: &QuicKeys) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &keys.reset)
}

/// The token that QUIC gave the client for a connection id when it made the id.
pub(crate) fn reset_token(key: &hmac::Key, id: &[u8]) -> [u8; RESET_TOKEN_BYTES] {
    let mut token = [0; RESET_TOKEN_BYTES];
    token.copy_from_slice(&hmac::sign(key, id).as_ref()[..RESET_TOKEN_BYTES]);
    token
}

/// Server configurations for peers on this machine and elsewhere.
#[derive(Clone)]
pub(crate) struct ServerConfigs {
    loopback: Arc<ServerConfig>,
    elsewhere: Arc<ServerConfig>,
}

impl ServerConfigs {
    /// `ack_threshold` is how many packets a peer may receive before it must acknowledge at once.
    pub(crate) fn new(
        certificate: Arc<Certificate>,
        keys: &QuicKeys,
        sizes: DatagramSizes,
        ack_threshold: u32,
    ) -> Result<Self, ConfigError> {
        let mut tls = tls::server_config(certificate, felix_wire::ALPN)?;
        tls.send_tls13_tickets = 0;
        let crypto = Arc::new(QuicServerConfig::try_from(tls)?);
        let token_key = Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&keys.token));
        let make = |smallest: u16, initial: u16, largest: u16| {
            let mut transport = transport(ack_threshold);
            let mut discovery = MtuDiscoveryConfig::default();
            discovery.upper_bound(largest);
            transport
                .initial_mtu(initial)
                .min_mtu(smallest)
                .mtu_discovery_config(Some(discovery));
            let mut config = ServerConfig::new(crypto.clone(), token_key.clone());
            config
                .transport_config(Arc::new(transport))
                .max_incoming(MAX_INCOMING)
                .incoming_buffer_size(INCOMING_BYTES)
                .incoming_buffer_size_total(MAX_INCOMING as u64 * INCOMING_BYTES / 16);
            Arc::new(config)
        };
        Ok(Self {
            loopback: make(sizes.loopback, sizes.loopback, sizes.loopback),
            elsewhere: make(SAFE_MTU, sizes.initial, sizes.largest),
        })
    }

    /// The configuration for a peer.
    pub(crate) fn for_peer(&self, peer: IpAddr) -> Arc<ServerConfig> {
        if peer.to_canonical().is_loopback() {
            self.loopback.clone()
        } else {
            self.elsewhere.clone()
        }
    }

    /// The configuration that the endpoint begins with; each connection gets the one of its peer.
    pub(crate) fn any(&self) -> ServerConfig {
        ServerConfig::clone(&self.elsewhere)
    }
}

/// Why there is no server configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// TLS does not take the certificate or the protocol versions.
    #[error("TLS configuration: {0}")]
    Tls(#[from] rustls::Error),
    /// TLS lacks the cipher suite that QUIC begins with.
    #[error("TLS configuration: {0}")]
    InitialSuite(#[from] NoInitialCipherSuite),
}

fn transport(ack_threshold: u32) -> TransportConfig {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(ack_threshold.into())
        .max_ack_delay(Some(MAX_ACK_DELAY));
    let mut transport = TransportConfig::default();
    transport
        .ack_frequency_config(Some(acks))
        .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_bidi_streams(FIRST_STREAMS.into())
        .max_concurrent_uni_streams(0u32.into())
        .datagram_receive_buffer_size(None)
        .stream_receive_window(STREAM_WINDOW.into())
        // They grow when a connection begins to use them.
        .receive_window(FIRST_WINDOW.into())
        .send_window(FIRST_WINDOW.into());
    transport
}
