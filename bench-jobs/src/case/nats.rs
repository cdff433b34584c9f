//! Publishing and subscribing with the NATS client.
//!
//! Core NATS acknowledges nothing, and drops for a subscriber that is slow. What is equal here: TLS, every value stamped
//! and verified, and publishers that stay within the same distance of the slowest subscriber as with every other target,
//! so that nothing is dropped. Where Felix waits for an acknowledgement, NATS waits until its client has flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use async_nats::ConnectOptions;
use bytes::{Bytes, BytesMut};
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;

use super::ends::{Access, RECORDS_PER_CLOCK, counts};
use super::meter::Meter;
use super::pace::Pace;
use super::plan::{Case, Middle, Window};
use crate::clock::shared_ns;
use crate::payload::Pattern;

/// The subject that is measured.
const SUBJECT: &str = "felix.bench";

/// Messages that a subscription's channel holds: more than are ever in flight, so that the client drops none.
const CHANNEL: usize = 1 << 20;

/// Whether this program can measure NATS.
pub(super) const AVAILABLE: bool = true;

/// A publisher's connection.
pub(super) struct Publisher(async_nats::Client);

/// A subscriber's connection and subscription.
pub(super) struct Subscriber {
    _client: async_nats::Client,
    subscription: async_nats::Subscriber,
}

async fn connect(case: &Case, access: &Access) -> anyhow::Result<async_nats::Client> {
    // Another one may be there already; it is the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    let options = ConnectOptions::new().subscription_capacity(CHANNEL);
    let connected = if case.middle == Middle::Nats {
        let options = options.add_root_certificates(access.ca.clone()).require_tls(true);
        options.connect(format!("tls://{}", access.address)).await
    } else {
        options.connect(format!("nats://{}", access.address)).await
    };
    connected.context("connecting to NATS")
}

pub(super) async fn open(case: &Case, access: &Access) -> anyhow::Result<Publisher> {
    Ok(Publisher(connect(case, access).await?))
}

/// A subscription that the server knows of.
pub(super) async fn subscribe(case: &Case, access: &Access) -> anyhow::Result<Subscriber> {
    let client = connect(case, access).await?;
    let mut subscription = client.subscribe(SUBJECT).await?;
    // The server works a connection's commands off in order: a message to itself comes back behind the subscription.
    let probe = client.new_inbox();
    let mut back = client.subscribe(probe.clone()).await?;
    client.publish(probe, Bytes::new()).await?;
    back.next()
        .await
        .context("the NATS server closed the connection")?;
    back.unsubscribe().await?;
    client.flush().await?;
    // Nothing is published before all have subscribed.
    debug_assert!(subscription.next().now_or_never().is_none());
    Ok(Subscriber {
        _client: client,
        subscription,
    })
}

/// Reads until the subscription ends, which is a failure.
pub(super) async fn follow(subscriber: &mut Subscriber, meter: &mut Meter) -> anyhow::Error {
    let subscription = &mut subscriber.subscription;
    loop {
        let Some(mut message) = subscription.next().await else {
            return anyhow::anyhow!("the NATS server closed a subscription");
        };
        let (now, mut taken) = (shared_ns(), 1);
        loop {
            meter.record(&message.payload, now);
            if taken == RECORDS_PER_CLOCK {
                break;
            }
            match subscription.next().now_or_never().flatten() {
                Some(more) => message = more,
                None => break,
            }
            taken += 1;
        }
        meter.tell();
    }
}

/// Publishes until the window ends; says how many messages, by publisher.
pub(super) async fn publish(
    Publisher(client): &mut Publisher,
    pattern: &Arc<Pattern>,
    case: &Case,
    window: Window,
    pace: &Arc<Pace>,
) -> anyhow::Result<Vec<u64>> {
    if case.publishers > 1 {
        return publish_concurrently(client, pattern, case, window, pace).await;
    }
    let mut values = pattern.values(0);
    let (length, mut sent, mut unflushed) = (case.value_bytes(), 0, 0);
    loop {
        let now = shared_ns();
        if now >= window.end_ns {
            break;
        }
        // One buffer for what is sent in one piece; each message is a slice of it.
        let mut buffer = BytesMut::with_capacity(length * case.batch as usize);
        for sequence in sent..sent + case.batch {
            buffer.extend_from_slice(values.write(sequence, now));
        }
        let mut buffer = buffer.freeze();
        pace.room_for(sent + case.batch).await?;
        while !buffer.is_empty() {
            client.publish(SUBJECT, buffer.split_to(length)).await?;
        }
        sent += case.batch;
        unflushed += case.batch;
        if case.acked || case.flush_every > 0 && unflushed >= case.flush_every {
            client.flush().await?;
            unflushed = 0;
        }
        if case.acked {
            pace.room_for(sent + 1).await?;
        }
    }
    client.flush().await?;
    Ok(vec![sent])
}

async fn publish_concurrently(
    client: &async_nats::Client,
    pattern: &Arc<Pattern>,
    case: &Case,
    window: Window,
    pace: &Arc<Pace>,
) -> anyhow::Result<Vec<u64>> {
    let total = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..case.publishers {
        let (client, mut values) = (client.clone(), pattern.values(number as u32));
        let (total, pace) = (total.clone(), pace.clone());
        tasks.spawn(async move {
            let mut sent = 0;
            while shared_ns() < window.end_ns {
                // A count that orders nothing: what one sender sees late, another saw in time.
                pace.room_for(total.fetch_add(1, Ordering::Relaxed) + 1).await?;
                let value = Bytes::copy_from_slice(values.write(sent, shared_ns()));
                client.publish(SUBJECT, value).await?;
                client.flush().await?;
                sent += 1;
            }
            anyhow::Ok((number, sent))
        });
    }
    counts(tasks, case.publishers).await
}
