//! The honest relay: what a publisher writes is handed to every subscriber as it comes, through one short queue each, with
//! no framing, no parsing and no storage. A broker that does more work cannot be faster on the same transport.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::quic::{Dialer, Listening, listen};
use super::{Found, Load, WARMUP_ROUNDS};
use crate::cpu;
use crate::measure::latency_histogram;

/// Chunks that wait for one subscriber; then the publisher is not read.
const QUEUE: usize = 16;

/// First byte on a subscriber's stream, so that it exists before anything is published.
const READY: &[u8] = b"r";

/// Publisher's streams, subscribers' streams, and the relay behind them.
struct Ends {
    send: SendStream,
    acks: RecvStream,
    subscribers: Vec<(Connection, RecvStream)>,
    publisher: Connection,
    relay: JoinHandle<anyhow::Result<()>>,
}

impl Ends {
    async fn new(fanout: usize, acknowledge: bool) -> anyhow::Result<Self> {
        let Listening {
            endpoint,
            address,
            ca_pem,
        } = listen()?;
        let dialer = Dialer::new(ca_pem.as_bytes())?;
        let relay = tokio::spawn(relay(endpoint, fanout, acknowledge));
        let mut subscribers = Vec::with_capacity(fanout);
        for _ in 0..fanout {
            subscribers.push(subscriber(&dialer, address).await?);
        }
        let publisher = dialer.connect(address).await?;
        let (send, acks) = publisher.open_bi().await?;
        Ok(Self {
            send,
            acks,
            subscribers,
            publisher,
            relay,
        })
    }
}

/// A subscriber's connection and stream, known to the relay.
pub(crate) async fn subscriber(
    dialer: &Dialer,
    address: SocketAddr,
) -> anyhow::Result<(Connection, RecvStream)> {
    let connection = dialer.connect(address).await?;
    let mut recv = connection.accept_uni().await?;
    let mut ready = [0; READY.len()];
    recv.read_exact(&mut ready).await?;
    Ok((connection, recv))
}

/// Accepts the subscribers, then the publisher, and relays until the publisher ends.
pub(crate) async fn relay(server: Endpoint, fanout: usize, acknowledge: bool) -> anyhow::Result<()> {
    let mut queues = Vec::with_capacity(fanout);
    let mut writers = JoinSet::new();
    for _ in 0..fanout {
        let connection = server.accept().await.context("no subscriber")?.await?;
        let mut send = connection.open_uni().await?;
        send.write_all(READY).await?;
        let (queue, chunks) = mpsc::channel(QUEUE);
        queues.push(queue);
        writers.spawn(write(connection, send, chunks));
    }
    let publisher = server.accept().await.context("no publisher")?.await?;
    let (mut acks, mut recv) = publisher.accept_bi().await?;
    while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
        for queue in &queues {
            queue
                .send(chunk.bytes.clone())
                .await
                .context("a subscriber left")?;
        }
        if acknowledge {
            acks.write_all(&[1]).await?;
        }
    }
    drop(queues);
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}

async fn write(
    connection: Connection,
    mut send: SendStream,
    mut chunks: mpsc::Receiver<Bytes>,
) -> anyhow::Result<()> {
    while let Some(chunk) = chunks.recv().await {
        send.write_chunk(chunk).await?;
    }
    send.finish()?;
    connection.closed().await;
    Ok(())
}

/// One message in flight: the next leaves when all subscribers have the last and it is acknowledged.
pub(super) async fn latency(load: Load, fanout: usize) -> anyhow::Result<Found> {
    let mut ends = Ends::new(fanout, true).await?;
    let message = Bytes::from(vec![7; load.message.max(1)]);
    let (tell, mut arrivals) = mpsc::channel(fanout * 2);
    let mut readers = JoinSet::new();
    for (connection, recv) in ends.subscribers {
        readers.spawn(tell_arrivals(connection, recv, message.len(), tell.clone()));
    }
    let mut histogram = latency_histogram();
    let (begin, mut round) = (Instant::now(), 0);
    while begin.elapsed() < load.time || histogram.is_empty() {
        let sent = Instant::now();
        ends.send.write_chunk(message.clone()).await?;
        round += 1;
        for _ in 0..fanout {
            let arrived: Instant = arrivals.recv().await.context("a subscriber left")?;
            if round > WARMUP_ROUNDS {
                histogram.saturating_record(arrived.duration_since(sent).as_nanos() as u64);
            }
        }
        ends.acks.read_exact(&mut [0]).await?;
    }
    ends.send.finish()?;
    while let Some(reader) = readers.join_next().await {
        reader??;
    }
    ends.relay.await??;
    ends.publisher.close(0_u32.into(), b"done");
    Ok(Found::Latency(histogram))
}

async fn tell_arrivals(
    connection: Connection,
    mut recv: RecvStream,
    length: usize,
    tell: mpsc::Sender<Instant>,
) -> anyhow::Result<()> {
    let mut waiting = length;
    while let Some(chunk) = recv.read_chunk(waiting, true).await? {
        waiting -= chunk.bytes.len();
        if waiting == 0 {
            tell.send(Instant::now()).await?;
            waiting = length;
        }
    }
    connection.close(0_u32.into(), b"done");
    Ok(())
}

/// As much as goes through in the time, lossless.
pub(super) async fn bulk(load: Load, fanout: usize) -> anyhow::Result<Found> {
    let mut ends = Ends::new(fanout, false).await?;
    let chunk = Bytes::from(vec![7; load.chunk.max(1)]);
    let cpu_before = cpu::time();
    let begin = Instant::now();
    let mut readers = JoinSet::new();
    for (connection, recv) in ends.subscribers {
        readers.spawn(count(connection, recv, begin));
    }
    while begin.elapsed() < load.time {
        ends.send.write_chunk(chunk.clone()).await?;
    }
    ends.send.finish()?;
    let (mut bytes, mut time) = (0, Duration::ZERO);
    while let Some(counted) = readers.join_next().await {
        let (read, last) = counted??;
        bytes += read;
        time = time.max(last);
    }
    let cpu = cpu::time() - cpu_before;
    ends.relay.await??;
    ends.publisher.close(0_u32.into(), b"done");
    Ok(Found::Rate { bytes, time, cpu })
}

/// Bytes read, and when the last of them came.
async fn count(
    connection: Connection,
    mut recv: RecvStream,
    begin: Instant,
) -> anyhow::Result<(u64, Duration)> {
    let (mut bytes, mut last) = (0, Duration::ZERO);
    while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
        bytes += chunk.bytes.len() as u64;
        last = begin.elapsed();
    }
    connection.close(0_u32.into(), b"done");
    Ok((bytes, last))
}
