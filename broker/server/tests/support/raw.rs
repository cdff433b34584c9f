//! A client of bare QUIC that asks for a lane, and says hello.

use std::{net::SocketAddr, sync::Arc};

use bytes::{Bytes, BytesMut};
use felix_wire::{ALPN, AuthMethod, Frame, FrameHead, Hello, MAX_FRAME_BYTES, VERSION};
use quinn::{Connection, ConnectionError, ConnectionId, Endpoint};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::within;

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
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(ca_pem).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
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
        let hello = Frame::Hello(Hello {
            min_version: VERSION,
            max_version: VERSION,
            features: 0,
            agent: "raw".into(),
            auth: AuthMethod::None,
            token: Bytes::new(),
        });
        let mut bytes = BytesMut::new();
        hello.encode(&mut bytes);
        let (mut send, mut recv) = within(self.connection.open_bi()).await.unwrap();
        within(send.write_all(&bytes)).await.unwrap();
        let mut head = [0; 6];
        within(recv.read_exact(&mut head)).await.unwrap();
        let head = FrameHead::decode(head, MAX_FRAME_BYTES).unwrap();
        let mut body = vec![0; head.length as usize];
        within(recv.read_exact(&mut body)).await.unwrap();
        let answer = Frame::decode(head.kind, body.into()).unwrap();
        assert!(matches!(answer, Frame::Welcome(_)), "{answer:?}");
    }
}
