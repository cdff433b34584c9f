//! A client that does what a test tells it, with nothing between it and QUIC but the frames.

use std::{net::SocketAddr, sync::Arc};

use bytes::{Bytes, BytesMut};
use felix_broker::EmbeddedBroker;
use felix_wire::{
    ALPN, AuthMethod, BatchBuilder, ErrorCode, FRAME_HEAD_LEN, Frame, FrameHead, FrameKind, HEADER_LEN,
    Hello, Incarnation, MAX_FRAME_BYTES, Nanos, OpenPublish, Origin, ProducerEpoch, ProducerId, Sequence,
    ShardId, SlowPolicy, Start, StreamName, Subscribe, VERSION,
};
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{STREAM, process::Process, within};

/// A broker to connect to.
pub(crate) trait Target {
    fn address(&self) -> SocketAddr;
    fn ca_pem(&self) -> Vec<u8>;
}

impl Target for EmbeddedBroker {
    fn address(&self) -> SocketAddr {
        self.addr()
    }

    fn ca_pem(&self) -> Vec<u8> {
        Self::ca_pem(self).to_vec()
    }
}

impl Target for Process {
    fn address(&self) -> SocketAddr {
        self.quic
    }

    fn ca_pem(&self) -> Vec<u8> {
        Self::ca_pem(self)
    }
}

/// A frame's bytes.
pub(crate) fn encoded(frame: &Frame) -> Bytes {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    bytes.freeze()
}

/// A connection that has not said hello.
pub(crate) async fn connect(broker: &impl Target) -> (Endpoint, Connection) {
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let connecting = endpoint
        .connect_with(config(&broker.ca_pem()), broker.address(), "localhost")
        .unwrap();
    let connection = within(connecting).await.unwrap();
    (endpoint, connection)
}

/// How quinn connects to a broker.
pub(crate) fn config(ca_pem: &[u8]) -> quinn::ClientConfig {
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
    quinn::ClientConfig::new(Arc::new(crypto))
}

/// The first frame of a client.
pub(crate) fn hello() -> Frame {
    Frame::Hello(Hello {
        min_version: VERSION,
        max_version: VERSION,
        features: 0,
        agent: "hostile".into(),
        auth: AuthMethod::None,
        token: Bytes::new(),
    })
}

/// A connection that has said hello, and its control stream.
pub(crate) async fn greeted(broker: &impl Target) -> (Endpoint, Connection, SendStream, RecvStream) {
    let (endpoint, connection) = connect(broker).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&hello()))).await.unwrap();
    assert!(matches!(read_frame(&mut recv).await, Frame::Welcome(_)));
    (endpoint, connection, send, recv)
}

/// The next frame.
pub(crate) async fn read_frame(recv: &mut RecvStream) -> Frame {
    let mut head = [0; 6];
    within(recv.read_exact(&mut head)).await.unwrap();
    let head = FrameHead::decode(head, MAX_FRAME_BYTES).unwrap();
    let mut body = vec![0; head.length as usize];
    within(recv.read_exact(&mut body)).await.unwrap();
    Frame::decode(head.kind, body.into()).unwrap()
}

/// The first frame of a producer.
pub(crate) fn open_publish(producer: u128) -> Frame {
    Frame::OpenPublish(OpenPublish {
        stream: StreamName::new(STREAM).unwrap(),
        shard: ShardId(0),
        producer: ProducerId(producer),
        epoch: ProducerEpoch(0),
    })
}

/// A sealed publish frame with one record.
pub(crate) fn batch(producer: u128, sequence: u64, value: &[u8]) -> BytesMut {
    let mut builder = BatchBuilder::new(BytesMut::new(), 1 << 20);
    builder.push(Nanos(1), None, [].into_iter(), value).unwrap();
    let origin = Origin {
        producer: ProducerId(producer),
        epoch: ProducerEpoch(0),
        sequence: Sequence(sequence),
    };
    BytesMut::from(&builder.seal(origin).unwrap().frame()[..])
}

/// Opens a publisher of producer 7 and gives its stream, ready for batches.
pub(crate) async fn publisher(connection: &Connection) -> (SendStream, RecvStream) {
    publisher_of(connection, 7).await
}

/// Opens a publisher of a producer and gives its stream, ready for batches.
pub(crate) async fn publisher_of(connection: &Connection, producer: u128) -> (SendStream, RecvStream) {
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&open_publish(producer))))
        .await
        .unwrap();
    assert!(matches!(read_frame(&mut recv).await, Frame::PublishOpened(_)));
    (send, recv)
}

/// So many answers of a publisher's stream: offsets or codes.
pub(crate) async fn answers(recv: &mut RecvStream, count: usize) -> Vec<Result<u64, ErrorCode>> {
    let mut answers = Vec::new();
    while answers.len() < count {
        let Frame::Acks(acks) = read_frame(recv).await else {
            panic!("no acks")
        };
        let entries = acks.into_entries().into_iter();
        answers
            .extend(entries.map(|entry| entry.map(|ack| ack.base_offset.0).map_err(|refusal| refusal.code)));
    }
    answers
}

/// A sealed publish frame with one record whose headers have these names, written by hand: the builder refuses what the broker
/// is to refuse.
pub(crate) fn batch_with_headers(producer: u128, sequence: u64, names: &[&str]) -> Vec<u8> {
    /// Of a record's head: it has headers; its length begins three bits up.
    const HAS_HEADERS: u8 = 2;
    let mut records = vec![0, 1 << 3 | HAS_HEADERS];
    put_number(&mut records, names.len());
    for name in names {
        put_number(&mut records, name.len());
        records.extend_from_slice(name.as_bytes());
        records.push(0);
    }
    records.push(b'v');
    let whole = batch(producer, sequence, b"v");
    let mut bytes = whole[FRAME_HEAD_LEN..FRAME_HEAD_LEN + HEADER_LEN].to_vec();
    let length = u32::try_from(records.len()).unwrap().to_le_bytes();
    bytes[16..20].copy_from_slice(&length);
    bytes[20..24].copy_from_slice(&length);
    let sum = crc32c::crc32c_append(u32::from_be_bytes(*b"flxp"), &bytes[..68]);
    let sum = crc32c::crc32c_append(sum, &records);
    bytes[68..72].copy_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&records);
    let head = FrameHead {
        kind: FrameKind::Publish,
        length: u32::try_from(bytes.len()).unwrap(),
    };
    [&head.to_bytes()[..], &bytes].concat()
}

/// A number as the wire has it in records: seven bits a byte, the lowest first.
fn put_number(bytes: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A subscription of [`STREAM`] from now on.
pub(crate) fn subscribe(policy: Option<SlowPolicy>, credit: u64) -> Frame {
    Frame::Subscribe(Subscribe {
        stream: StreamName::new(STREAM).unwrap(),
        shard: ShardId(0),
        start: Start::Latest,
        incarnation: Incarnation(0),
        policy,
        window: 0,
        credit,
    })
}
