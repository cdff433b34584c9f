//! What stands in for a broker to measure our own clients: it speaks as much of the protocol as they insist on, stamps
//! each batch, and hands it on. It has no ring, no cursor, no policy, no permits, and looks at no record.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use felix_wire::{
    AckEntry, Acks, Deliver, FRAME_HEAD_LEN, Frame, FrameHead, FrameKind, Incarnation, IncomingBatch,
    MAX_BATCH_BYTES, MAX_FRAME_BYTES, Metadata, Offset, PublishOpened, Reached, Selection, SlowPolicy, Stamp,
    StreamClass, Subscribe, Subscribed, VERSION, Welcome, take_frame,
};
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use tokio::io::AsyncReadExt;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinSet;

/// Reads' worth of batches that wait for one subscriber; then publishers are not read.
const QUEUE: usize = 64;

/// Room for reading, in bytes: many batches for one look into QUIC.
const ROOM: usize = 256 << 10;

/// Batches below this many bytes are joined into one write: QUIC makes more of one chunk than of many small ones.
const JOINED_BELOW: usize = 4 << 10;

/// The stream's one life.
const INCARNATION: Incarnation = Incarnation(1);

/// Batches on their way behind the heads of their frames, ready to be written; the same for every subscriber.
type Forwarded = Arc<[Bytes]>;

/// What publishers and subscribers share.
struct Shared {
    next: Offset,
    queues: Vec<mpsc::Sender<Forwarded>>,
}

type Middle = Arc<Mutex<Shared>>;

/// Serves until the endpoint is closed.
pub(super) async fn serve(endpoint: Endpoint) {
    let middle = Arc::new(Mutex::new(Shared {
        next: Offset::ZERO,
        queues: Vec::new(),
    }));
    let mut connections = JoinSet::new();
    while let Some(incoming) = endpoint.accept().await {
        let middle = middle.clone();
        connections.spawn(async move {
            match incoming.await {
                Ok(connection) => serve_connection(connection, middle).await,
                Err(error) => tracing::warn!(%error, "a handshake failed"),
            }
        });
    }
}

async fn serve_connection(connection: Connection, middle: Middle) {
    let mut streams = JoinSet::new();
    while let Ok((send, recv)) = connection.accept_bi().await {
        let middle = middle.clone();
        streams.spawn(async move {
            if let Err(error) = serve_stream(send, recv, middle).await {
                tracing::debug!(%error, "a stream ended");
            }
        });
    }
}

async fn serve_stream(mut send: SendStream, mut recv: RecvStream, middle: Middle) -> anyhow::Result<()> {
    let mut buffer = BytesMut::new();
    match next(&mut recv, &mut buffer).await? {
        Some(Frame::Hello(_)) => control(send, recv, buffer).await,
        Some(Frame::OpenPublish(_)) => {
            let opened = Frame::PublishOpened(PublishOpened {
                incarnation: INCARNATION,
                max_batch_bytes: MAX_BATCH_BYTES as u32,
                max_record_bytes: MAX_BATCH_BYTES as u32 / 2,
            });
            send.write_chunk(encode(&opened)).await?;
            publisher(send, recv, buffer, middle).await
        }
        Some(Frame::Subscribe(subscribe)) => {
            // The other half stays open, and nothing on it matters here.
            let served = subscriber(send, subscribe, middle).await;
            drop(recv);
            served
        }
        _ => bail!("not a first frame"),
    }
}

/// Answers what a client asks before it begins.
async fn control(mut send: SendStream, mut recv: RecvStream, mut buffer: BytesMut) -> anyhow::Result<()> {
    let welcome = Frame::Welcome(Welcome {
        version: VERSION,
        features: 0,
        cluster_id: "felix-bench".into(),
        broker_id: "relay".into(),
    });
    send.write_chunk(encode(&welcome)).await?;
    while let Some(frame) = next(&mut recv, &mut buffer).await? {
        let Frame::MetadataRequest(request) = frame else {
            bail!("only metadata is answered here");
        };
        let metadata = Frame::Metadata(Metadata {
            stream: request.stream,
            incarnation: INCARNATION,
            class: StreamClass::Memory,
            shards: 1,
        });
        send.write_chunk(encode(&metadata)).await?;
    }
    Ok(())
}

/// Takes batches, hands them on, acknowledges them.
async fn publisher(
    mut send: SendStream,
    mut recv: RecvStream,
    mut buffer: BytesMut,
    middle: Middle,
) -> anyhow::Result<()> {
    let mut acks: Vec<AckEntry> = Vec::new();
    loop {
        forward(&mut buffer, &middle, &mut acks).await?;
        while !acks.is_empty() {
            send.write_chunk(encode(&Frame::Acks(Acks::take_from(&mut acks))))
                .await?;
        }
        if !fill(&mut recv, &mut buffer).await? {
            send.finish()?;
            return Ok(());
        }
    }
}

/// Gives the batches that are there their places and hands them to every subscriber.
async fn forward(buffer: &mut BytesMut, middle: &Middle, acks: &mut Vec<AckEntry>) -> anyhow::Result<()> {
    let mut shared = middle.lock().await;
    let (mut chunks, mut joined) = (Vec::new(), BytesMut::new());
    while let Some(batch) = take_batch(buffer)? {
        let stamp = Stamp {
            incarnation: INCARNATION,
            base_offset: shared.next,
            ..Stamp::default()
        };
        let batch = IncomingBatch::trust(batch)?.stamp(&stamp);
        let (from, to) = (batch.base_offset(), batch.next_offset());
        Deliver::encode_head(from, to, &Selection::All, batch.len(), &mut joined);
        if batch.len() < JOINED_BELOW {
            joined.extend_from_slice(batch.bytes());
        } else {
            chunks.push(joined.split().freeze());
            chunks.push(batch.into_bytes());
        }
        shared.next = to;
        acks.push(Ok(felix_wire::Ack {
            base_offset: from,
            reached: Reached::Stored,
        }));
    }
    if !joined.is_empty() {
        chunks.push(joined.freeze());
    }
    if chunks.is_empty() {
        return Ok(());
    }
    let chunks: Forwarded = chunks.into();
    for queue in &shared.queues {
        // Without waiting where there is room: a wait would let other tasks run, and they would write too little at once.
        if let Err(TrySendError::Full(chunks)) = queue.try_send(chunks.clone()) {
            // A subscriber that left is the bench's to notice.
            queue.send(chunks).await.ok();
        }
    }
    Ok(())
}

/// Writes what is queued, all of it at once.
async fn subscriber(mut send: SendStream, subscribe: Subscribe, middle: Middle) -> anyhow::Result<()> {
    let (queue, mut queued) = mpsc::channel(QUEUE);
    let from = {
        let mut shared = middle.lock().await;
        shared.queues.push(queue);
        shared.next
    };
    let subscribed = Frame::Subscribed(Subscribed {
        incarnation: INCARNATION,
        from,
        policy: subscribe.policy.or(Some(SlowPolicy::Block)),
        window: subscribe.window,
    });
    send.write_chunk(encode(&subscribed)).await?;
    let mut taken: Vec<Forwarded> = Vec::with_capacity(QUEUE);
    while queued.recv_many(&mut taken, QUEUE).await > 0 {
        let mut chunks: Vec<Bytes> = taken.drain(..).flat_map(|chunks| chunks.to_vec()).collect();
        send.write_all_chunks(&mut chunks).await?;
    }
    Ok(())
}

/// Cuts a publisher's next batch from the buffer, if all of it is there.
fn take_batch(buffer: &mut BytesMut) -> anyhow::Result<Option<BytesMut>> {
    let Some(head) = buffer.first_chunk() else {
        return Ok(None);
    };
    let head = FrameHead::decode(*head, MAX_FRAME_BYTES)?;
    if head.kind != FrameKind::Publish {
        bail!("only batches are taken here");
    }
    let length = FRAME_HEAD_LEN + head.length as usize;
    if buffer.len() < length {
        let missing = length - buffer.len();
        buffer.reserve(missing);
        return Ok(None);
    }
    let mut frame = buffer.split_to(length);
    Ok(Some(frame.split_off(FRAME_HEAD_LEN)))
}

/// The next frame; `None` at the end of the stream.
async fn next(recv: &mut RecvStream, buffer: &mut BytesMut) -> anyhow::Result<Option<Frame>> {
    loop {
        if let Some((kind, body)) = take_frame(buffer, MAX_FRAME_BYTES)? {
            return Ok(Some(Frame::decode(kind, body)?));
        }
        if !fill(recv, buffer).await? {
            return Ok(None);
        }
    }
}

/// Reads what is there; `false` at the end of the stream.
async fn fill(recv: &mut RecvStream, buffer: &mut BytesMut) -> anyhow::Result<bool> {
    if buffer.capacity() - buffer.len() < ROOM / 4 {
        buffer.reserve(ROOM);
    }
    Ok(recv.read_buf(buffer).await.context("reading")? > 0)
}

fn encode(frame: &Frame) -> Bytes {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    bytes.freeze()
}
