//! A broker that does what a test tells it: it speaks the protocol truly, keeps everything, and refuses, forgets, stays
//! silent or drops connections on command. The real broker would do so rarely and never when asked.

#![allow(dead_code, reason = "each test uses its own part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "in a test, what must not happen fails it"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use felix_client::{Builder, Client};
use felix_wire::{
    Ack, Acks, Batch, Deliver, ErrorCode, ErrorFrame, Frame, Gap, GapReason, Incarnation, IncomingBatch,
    Lost, Metadata, Offset, OpenPublish, ProducerEpoch, ProducerId, PublishOpened, Reached, Refusal,
    Selection, Sequence, SlowPolicy, Stamp, Start, StreamClass, Subscribe, Subscribed, VERSION, Welcome,
    take_frame,
};
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use tokio::sync::watch;

pub(crate) const STREAM: &str = "orders";
pub(crate) const MAX_RECORD_BYTES: u32 = 1 << 20;
pub(crate) const MAX_BATCH_BYTES: u32 = 4 << 20;

/// The broker. Dropping it closes it.
pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    pub(crate) ca_pem: String,
    certificate: rustls::pki_types::CertificateDer<'static>,
    key: Vec<u8>,
    world: Arc<Mutex<World>>,
    changed: watch::Sender<u64>,
    endpoint: Endpoint,
}

type Shared = Arc<Mutex<World>>;

/// What it knows and what it was told to do.
struct World {
    incarnation: Incarnation,
    shards: Vec<Shard>,
    connections: Vec<Connection>,
    /// Refuse so many batches with this code.
    refuse: Option<(ErrorCode, usize)>,
    /// Take batches and say nothing.
    silent: bool,
    /// Number of batches received, duplicates and refused ones included.
    received: usize,
    /// Number of publish streams opened.
    opened: usize,
    /// Answer to every new subscription.
    closed_door: Option<ErrorCode>,
}

#[derive(Default)]
struct Shard {
    log: Vec<Batch>,
    next: u64,
    producers: HashMap<ProducerId, (ProducerEpoch, Sequence)>,
    stored: HashMap<(ProducerId, ProducerEpoch, Sequence), Offset>,
}

impl Broker {
    pub(crate) async fn start(shards: usize) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
        let endpoint = endpoint("127.0.0.1:0".parse().unwrap(), &certificate, &key).unwrap();
        let world = World {
            incarnation: Incarnation(rand::random()),
            shards: (0..shards).map(|_| Shard::default()).collect(),
            connections: Vec::new(),
            refuse: None,
            silent: false,
            received: 0,
            opened: 0,
            closed_door: None,
        };
        let broker = Self {
            address: endpoint.local_addr().unwrap(),
            ca_pem: made.cert.pem(),
            certificate,
            key,
            world: Arc::new(Mutex::new(world)),
            changed: watch::Sender::new(0),
            endpoint,
        };
        broker.accept();
        broker
    }

    fn accept(&self) {
        let (endpoint, world, changed) = (self.endpoint.clone(), self.world.clone(), self.changed.clone());
        tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let Ok(connection) = incoming.await else { continue };
                world.lock().unwrap().connections.push(connection.clone());
                tokio::spawn(serve(connection, world.clone(), changed.clone()));
            }
        });
    }

    pub(crate) fn builder(&self) -> Builder {
        Client::builder(&self.address.to_string())
            .ca_pem(&self.ca_pem)
            .server_name("localhost")
            .unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        self.builder().connect().await.unwrap()
    }

    fn change(&self, what: impl FnOnce(&mut World)) {
        what(&mut self.world.lock().unwrap());
        self.changed.send_modify(|n| *n += 1);
    }

    /// Breaks every connection as a network would: without a word that ends streams.
    pub(crate) fn drop_connections(&self) {
        for connection in self.world.lock().unwrap().connections.drain(..) {
            connection.close(0_u32.into(), b"dropped by the test");
        }
    }

    /// Stops listening; the address stays known.
    pub(crate) async fn stop(&self) {
        self.drop_connections();
        self.endpoint.close(0_u32.into(), b"stopped by the test");
        self.endpoint.wait_idle().await;
    }

    /// Listens again at the same address, with everything it knew, as soon as the old socket is gone.
    pub(crate) async fn restart(self) -> Self {
        let Self {
            address,
            ca_pem,
            certificate,
            key,
            world,
            changed,
            endpoint,
        } = self;
        drop(endpoint);
        let endpoint = loop {
            match self::endpoint(address, &certificate, &key) {
                Ok(endpoint) => break endpoint,
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let broker = Self {
            address,
            ca_pem,
            certificate,
            key,
            world,
            changed,
            endpoint,
        };
        broker.accept();
        broker
    }

    /// The stream begins a new life: empty, nobody known.
    pub(crate) fn new_life(&self) {
        self.change(|world| {
            world.incarnation = Incarnation(rand::random());
            world
                .shards
                .iter_mut()
                .for_each(|shard| *shard = Shard::default());
        });
    }

    /// Forgets all producers but keeps the records.
    pub(crate) fn forget_producers(&self) {
        self.change(|world| world.shards.iter_mut().for_each(|shard| shard.producers.clear()));
    }

    pub(crate) fn refuse(&self, code: ErrorCode, batches: usize) {
        self.change(|world| world.refuse = Some((code, batches)));
    }

    pub(crate) fn silent(&self, silent: bool) {
        self.change(|world| world.silent = silent);
    }

    pub(crate) fn close_door(&self, code: Option<ErrorCode>) {
        self.change(|world| world.closed_door = code);
    }

    /// Keeps only the newest so many batches of each shard.
    pub(crate) fn trim(&self, keep: usize) {
        self.change(|world| {
            for shard in &mut world.shards {
                let surplus = shard.log.len().saturating_sub(keep);
                shard.log.drain(..surplus);
            }
        });
    }

    /// Waits until so many batches have been received in all.
    pub(crate) async fn received(&self, batches: usize) {
        let mut changed = self.changed.subscribe();
        while self.world.lock().unwrap().received < batches {
            changed.changed().await.unwrap();
        }
    }

    pub(crate) fn publish_streams(&self) -> usize {
        self.world.lock().unwrap().opened
    }

    /// Values of all stored records of a shard, in order.
    pub(crate) fn stored(&self, shard: usize) -> Vec<Vec<u8>> {
        let world = self.world.lock().unwrap();
        let batches = world.shards[shard].log.iter();
        batches
            .flat_map(|batch| {
                batch
                    .records()
                    .map(|record| record.unwrap().value.to_vec())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Record counts of all stored batches of a shard.
    pub(crate) fn batch_sizes(&self, shard: usize) -> Vec<u32> {
        self.world.lock().unwrap().shards[shard]
            .log
            .iter()
            .map(Batch::record_count)
            .collect()
    }
}

fn endpoint(
    address: SocketAddr,
    certificate: &rustls::pki_types::CertificateDer<'static>,
    key: &[u8],
) -> std::io::Result<Endpoint> {
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.to_vec()).unwrap();
    let mut tls =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
    tls.alpn_protocols = vec![felix_wire::ALPN.to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    Endpoint::server(quinn::ServerConfig::with_crypto(Arc::new(crypto)), address)
}

async fn serve(connection: Connection, world: Shared, changed: watch::Sender<u64>) {
    while let Ok((send, recv)) = connection.accept_bi().await {
        tokio::spawn(serve_stream(
            send,
            Frames::new(recv),
            world.clone(),
            changed.clone(),
        ));
    }
}

/// The connection may break at any point: then the stream is simply over.
async fn serve_stream(
    mut send: SendStream,
    mut frames: Frames,
    world: Shared,
    changed: watch::Sender<u64>,
) -> Option<()> {
    match frames.next().await? {
        Frame::Hello(_) => {
            let (cluster_id, broker_id) = ("test-cluster".into(), "test-broker".into());
            write(
                &mut send,
                &Frame::Welcome(Welcome {
                    version: VERSION,
                    features: 0,
                    cluster_id,
                    broker_id,
                }),
            )
            .await?;
            while let Frame::MetadataRequest(request) = frames.next().await? {
                let answer = if request.stream.as_str() == STREAM {
                    let world = world.lock().unwrap();
                    let shards = world.shards.len() as u32;
                    let (incarnation, class) = (world.incarnation, StreamClass::Memory);
                    Frame::Metadata(Metadata {
                        stream: request.stream,
                        incarnation,
                        class,
                        shards,
                    })
                } else {
                    error(ErrorCode::UnknownStream)
                };
                write(&mut send, &answer).await?;
            }
        }
        Frame::OpenPublish(open) => publisher(open, &mut send, &mut frames, &world, &changed).await?,
        Frame::Subscribe(subscribe) => subscriber(subscribe, &mut send, &world, &changed).await?,
        other => panic!("{:?} as the first frame", other.kind()),
    }
    Some(())
}

async fn publisher(
    open: OpenPublish,
    send: &mut SendStream,
    frames: &mut Frames,
    world: &Shared,
    changed: &watch::Sender<u64>,
) -> Option<()> {
    let answer = {
        let mut world = world.lock().unwrap();
        world.opened += 1;
        Frame::PublishOpened(PublishOpened {
            incarnation: world.incarnation,
            max_batch_bytes: MAX_BATCH_BYTES,
            max_record_bytes: MAX_RECORD_BYTES,
        })
    };
    write(send, &answer).await?;
    while let Frame::Publish(batch) = frames.next().await? {
        let entry = {
            let mut world = world.lock().unwrap();
            world.received += 1;
            let silent = world.silent;
            let entry = world.take(&open, batch);
            (!silent).then_some(entry)
        };
        changed.send_modify(|n| *n += 1);
        if let Some(entry) = entry {
            write(send, &Frame::Acks(Acks::take_from(&mut vec![entry]))).await?;
        }
    }
    Some(())
}

impl World {
    fn take(&mut self, open: &OpenPublish, batch: Bytes) -> Result<Ack, Refusal> {
        if let Some((code, left)) = &mut self.refuse
            && *left > 0
        {
            *left -= 1;
            return Err((*code).into());
        }
        let batch = IncomingBatch::check(BytesMut::from(&batch[..]), MAX_RECORD_BYTES as usize).unwrap();
        let origin = batch.header().origin;
        assert_eq!((origin.producer, origin.epoch), (open.producer, open.epoch));
        let shard = &mut self.shards[open.shard.0 as usize];
        let identity = (origin.producer, origin.epoch, origin.sequence);
        if let Some(base_offset) = shard.stored.get(&identity) {
            return Ok(Ack {
                base_offset: *base_offset,
                reached: Reached::Stored,
            });
        }
        let known = shard.producers.get(&origin.producer);
        let expected = match known {
            None if origin.sequence != Sequence(0) => return Err(ErrorCode::UnknownProducer.into()),
            Some((epoch, _)) if *epoch > origin.epoch => return Err(ErrorCode::Fenced.into()),
            Some((epoch, next)) if *epoch == origin.epoch => *next,
            None | Some(_) => Sequence(0),
        };
        if origin.sequence != expected {
            return Err(Refusal {
                code: ErrorCode::SequenceGap,
                detail: expected.0,
            });
        }
        let (offsets, base_offset) = (batch.header().offsets(), Offset(shard.next));
        let stamp = Stamp {
            incarnation: self.incarnation,
            shard: open.shard,
            base_offset,
            ..Stamp::default()
        };
        shard.log.push(batch.stamp(&stamp));
        shard.next += offsets;
        shard
            .producers
            .insert(origin.producer, (origin.epoch, expected.plus(offsets)));
        shard.stored.insert(identity, base_offset);
        Ok(Ack {
            base_offset,
            reached: Reached::Stored,
        })
    }
}

#[allow(
    clippy::too_many_lines,
    reason = "the whole life of a subscription, told once in order"
)]
async fn subscriber(
    subscribe: Subscribe,
    send: &mut SendStream,
    world: &Shared,
    changed: &watch::Sender<u64>,
) -> Option<()> {
    let mut changes = changed.subscribe();
    let shard = subscribe.shard.0 as usize;
    let closed = world.lock().unwrap().closed_door;
    if let Some(code) = closed {
        return write(send, &error(code)).await;
    }
    let (life, mut next, first) = {
        let world = world.lock().unwrap();
        let former = subscribe.incarnation != Incarnation(0) && subscribe.incarnation != world.incarnation;
        let next = match subscribe.start {
            Start::Latest => world.shards[shard].next,
            Start::Offset(offset) if !former => offset.0,
            Start::Earliest | Start::Offset(_) | Start::Time(_) => 0,
        };
        let from = if let (true, Start::Offset(offset)) = (former, subscribe.start) {
            Some(offset)
        } else {
            None
        };
        let gap = from.map(|from| Gap {
            from,
            to: None,
            reason: GapReason::FormerIncarnation,
            lost: Lost::Unknown,
        });
        (world.incarnation, next, gap)
    };
    let (policy, window) = (SlowPolicy::DropNew, 1 << 20);
    write(
        send,
        &Frame::Subscribed(Subscribed {
            incarnation: life,
            from: Offset(next),
            policy: Some(policy),
            window,
        }),
    )
    .await?;
    if let Some(gap) = first {
        write(send, &Frame::Gap(gap)).await?;
    }
    loop {
        let (present, due) = {
            let world = world.lock().unwrap();
            let due = world.shards[shard]
                .log
                .iter()
                .find(|batch| batch.next_offset().0 > next)
                .cloned();
            (world.incarnation, due)
        };
        if present != life {
            return write(send, &error(ErrorCode::StreamEnded)).await;
        }
        let Some(batch) = due else {
            changes.changed().await.ok()?;
            continue;
        };
        if batch.base_offset().0 > next {
            let (from, to) = (Offset(next), Some(batch.base_offset()));
            let lost = Lost::Exactly(batch.base_offset().0 - next);
            write(
                send,
                &Frame::Gap(Gap {
                    from,
                    to,
                    reason: GapReason::NotKept,
                    lost,
                }),
            )
            .await?;
            next = batch.base_offset().0;
        }
        let to = batch.next_offset();
        let deliver = Deliver {
            from: Offset(next),
            to,
            selection: Selection::All,
            batch: batch.into_bytes(),
        };
        write(send, &Frame::Deliver(deliver)).await?;
        next = to.0;
    }
}

fn error(code: ErrorCode) -> Frame {
    Frame::Error(ErrorFrame {
        code,
        detail: 0,
        message: "told to by the test".into(),
    })
}

async fn write(send: &mut SendStream, frame: &Frame) -> Option<()> {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    send.write_chunk(bytes.freeze()).await.ok()
}

struct Frames {
    recv: RecvStream,
    buffer: BytesMut,
}

impl Frames {
    fn new(recv: RecvStream) -> Self {
        Self {
            recv,
            buffer: BytesMut::new(),
        }
    }

    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((kind, body)) = take_frame(&mut self.buffer, felix_wire::MAX_FRAME_BYTES).unwrap() {
                return Some(Frame::decode(kind, body).unwrap());
            }
            let chunk = self.recv.read_chunk(usize::MAX, true).await.ok()??;
            self.buffer.extend_from_slice(&chunk.bytes);
        }
    }
}
