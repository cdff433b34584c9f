//! The ends of the raw relay: bytes without any meaning, at what QUIC gives.

use anyhow::Context;
use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream};

use super::ends::Access;
use super::meter::Meter;
use super::pace::Pace;
use super::plan::{Case, Window};
use crate::clock::shared_ns;
use crate::limits::quic::Dialer;
use crate::limits::relay;

/// A message of the latency case begins with the time it left.
const STAMP_BYTES: usize = 8;

/// A subscriber's connection and stream.
pub(super) struct Subscriber {
    connection: Connection,
    stream: RecvStream,
}

/// A publisher's connection and streams.
pub(super) struct Publisher {
    connection: Connection,
    send: SendStream,
    acks: RecvStream,
}

pub(super) async fn subscribe(access: &Access) -> anyhow::Result<Subscriber> {
    let dialer = Dialer::new(&access.ca_pem()?)?;
    let (connection, stream) = relay::subscriber(&dialer, access.address).await?;
    Ok(Subscriber { connection, stream })
}

pub(super) async fn open(access: &Access) -> anyhow::Result<Publisher> {
    let connection = Dialer::new(&access.ca_pem()?)?.connect(access.address).await?;
    let (send, acks) = connection.open_bi().await?;
    Ok(Publisher {
        connection,
        send,
        acks,
    })
}

/// Reads until the publisher has finished.
pub(super) async fn follow(
    subscriber: &mut Subscriber,
    case: &Case,
    meter: &mut Meter,
) -> anyhow::Result<()> {
    if case.acked {
        return follow_messages(subscriber, case.value_bytes(), meter).await;
    }
    while let Some(chunk) = subscriber.stream.read_chunk(usize::MAX, true).await? {
        meter.bytes(chunk.bytes.len() as u64, shared_ns());
        meter.tell();
    }
    Ok(())
}

async fn follow_messages(
    subscriber: &mut Subscriber,
    length: usize,
    meter: &mut Meter,
) -> anyhow::Result<()> {
    let (mut waiting, mut sent) = (length, 0);
    while let Some(chunk) = subscriber.stream.read_chunk(waiting, true).await? {
        if waiting == length {
            let stamp = chunk
                .bytes
                .first_chunk()
                .context("a message was split in its first bytes")?;
            sent = u64::from_le_bytes(*stamp);
        }
        waiting -= chunk.bytes.len();
        let now = shared_ns();
        meter.bytes(chunk.bytes.len() as u64, now);
        if waiting == 0 {
            meter.latency(sent, now);
            meter.tell();
            waiting = length;
        }
    }
    Ok(())
}

/// Writes until the window ends; says how many records' worth.
pub(super) async fn publish(
    publisher: &mut Publisher,
    case: &Case,
    window: Window,
    pace: &Pace,
) -> anyhow::Result<u64> {
    let sent = if case.acked {
        publish_messages(publisher, case, window, pace).await?
    } else {
        publish_chunks(publisher, case, window, pace).await?
    };
    publisher.send.finish()?;
    Ok(sent)
}

async fn publish_chunks(
    publisher: &mut Publisher,
    case: &Case,
    window: Window,
    pace: &Pace,
) -> anyhow::Result<u64> {
    let chunk = Bytes::from(vec![7; case.value_bytes() * case.batch as usize]);
    let mut sent = 0;
    while shared_ns() < window.end_ns {
        pace.room_for(sent + case.batch).await?;
        publisher.send.write_chunk(chunk.clone()).await?;
        sent += case.batch;
    }
    Ok(sent)
}

async fn publish_messages(
    publisher: &mut Publisher,
    case: &Case,
    window: Window,
    pace: &Pace,
) -> anyhow::Result<u64> {
    let mut message = vec![7; case.value_bytes()];
    let mut sent = 0;
    while shared_ns() < window.end_ns {
        message[..STAMP_BYTES].copy_from_slice(&shared_ns().to_le_bytes());
        publisher.send.write_all(&message).await?;
        publisher.acks.read_exact(&mut [0]).await?;
        sent += 1;
        pace.room_for(sent + 1).await?;
    }
    Ok(sent)
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.connection.close(0_u32.into(), b"done");
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.connection.close(0_u32.into(), b"done");
    }
}
