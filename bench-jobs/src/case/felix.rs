//! Publishing and subscribing with the Felix client, to a broker or to the forwarder that stands in for one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use felix_client::{Ack, Client, Delivery, Publisher, Record, SlowPolicy, Subscription};
use tokio::task::JoinSet;

use super::ends::{Access, RECORDS_PER_CLOCK};
use super::meter::Meter;
use super::pace::Pace;
use super::plan::{Case, Window};
use crate::clock::shared_ns;
use crate::payload::Pattern;

/// The stream that is measured.
pub(super) const STREAM: &str = "felix-bench";

/// Batches that the publisher leaves unanswered before it looks at the oldest answer.
const UNANSWERED_BATCHES: usize = 512;

async fn connect(case: &Case, access: &Access) -> anyhow::Result<Client> {
    let mut client = Client::builder(&access.address.to_string())
        .ca_pem(&access.ca_pem()?)
        .server_name("localhost")?
        .agent(concat!("felix-bench/", env!("CARGO_PKG_VERSION")));
    if case.near_shard {
        client = client.near_shard(STREAM, 0);
    }
    client.connect().await.context("connecting")
}

/// A subscription on a connection of its own.
pub(super) async fn subscribe(case: &Case, access: &Access) -> anyhow::Result<Subscription> {
    let builder = connect(case, access).await?.subscribe(STREAM);
    builder
        .policy(SlowPolicy::Block)
        .open()
        .await
        .context("subscribing")
}

/// Reads until the subscription ends, which is a failure.
pub(super) async fn follow(subscription: &mut Subscription, meter: &mut Meter) -> anyhow::Error {
    loop {
        let mut delivery = match subscription.next().await {
            Ok(Some(delivery)) => delivery,
            Ok(None) => return anyhow::anyhow!("a subscription was closed"),
            Err(error) => return anyhow::Error::new(error).context("a subscription failed"),
        };
        let (mut now, mut age) = (shared_ns(), 0);
        loop {
            match delivery {
                Delivery::Record(record) => meter.record(&record.value, now),
                Delivery::Gap(gap) => meter.gap(gap.records().unwrap_or(0)),
            }
            match subscription.next_buffered() {
                Some(more) => delivery = more,
                None => break,
            }
            age += 1;
            if age == RECORDS_PER_CLOCK {
                (now, age) = (shared_ns(), 0);
            }
        }
        meter.tell();
    }
}

/// A publisher on a connection of its own.
pub(super) async fn open(case: &Case, access: &Access) -> anyhow::Result<Publisher> {
    let builder = connect(case, access).await?.publisher(STREAM);
    builder.open().await.context("opening the publisher")
}

/// Publishes until the window ends; says how many records, by publisher. All of them are acknowledged.
pub(super) async fn publish(
    publisher: &Publisher,
    pattern: &Arc<Pattern>,
    case: &Case,
    window: Window,
    pace: &Arc<Pace>,
) -> anyhow::Result<Vec<u64>> {
    if case.publishers > 1 {
        return publish_concurrently(publisher, pattern, case, window, pace).await;
    }
    let sent = if case.acked {
        publish_singly(publisher, pattern, window, pace).await?
    } else {
        publish_batches(publisher, pattern, case, window, pace).await?
    };
    Ok(vec![sent])
}

async fn publish_batches(
    publisher: &Publisher,
    pattern: &Arc<Pattern>,
    case: &Case,
    window: Window,
    pace: &Pace,
) -> anyhow::Result<u64> {
    let mut values = pattern.values(0);
    let mut unanswered: VecDeque<Ack> = VecDeque::with_capacity(UNANSWERED_BATCHES);
    let mut sent = 0;
    loop {
        let now = shared_ns();
        if now >= window.end_ns {
            break;
        }
        pace.room_for(sent + case.batch).await?;
        let mut batch = publisher.batch();
        for sequence in sent..sent + case.batch {
            batch.push(&Record::new(values.write(sequence, now)))?;
        }
        sent += case.batch;
        if unanswered.len() == UNANSWERED_BATCHES
            && let Some(oldest) = unanswered.pop_front()
        {
            oldest.await?;
        }
        unanswered.push_back(publisher.send_batch(batch).await?);
    }
    for ack in unanswered {
        ack.await?;
    }
    Ok(sent)
}

async fn publish_singly(
    publisher: &Publisher,
    pattern: &Arc<Pattern>,
    window: Window,
    pace: &Pace,
) -> anyhow::Result<u64> {
    let mut values = pattern.values(0);
    let mut sent = 0;
    while shared_ns() < window.end_ns {
        let value = values.write(sent, shared_ns());
        publisher.send(Record::new(value)).await?.await?;
        sent += 1;
        pace.room_for(sent + 1).await?;
    }
    Ok(sent)
}

async fn publish_concurrently(
    publisher: &Publisher,
    pattern: &Arc<Pattern>,
    case: &Case,
    window: Window,
    pace: &Arc<Pace>,
) -> anyhow::Result<Vec<u64>> {
    let total = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..case.publishers {
        let (publisher, mut values) = (publisher.clone(), pattern.values(number as u32));
        let (total, pace) = (total.clone(), pace.clone());
        tasks.spawn(async move {
            let mut sent = 0;
            while shared_ns() < window.end_ns {
                // A count that orders nothing: what one sender sees late, another saw in time.
                pace.room_for(total.fetch_add(1, Ordering::Relaxed) + 1).await?;
                let value = values.write(sent, shared_ns());
                publisher.send(Record::new(value)).await?.await?;
                sent += 1;
            }
            anyhow::Ok((number, sent))
        });
    }
    super::ends::counts(tasks, case.publishers).await
}
