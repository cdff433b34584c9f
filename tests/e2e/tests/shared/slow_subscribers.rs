//! A subscriber that does not read: what it is told and what is counted, through the client Service.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result, ensure};
use felix_client::{Client, Delivery, Gap, Publisher, Receipt, Record, SlowSubscriber, Start, Subscription};
use felix_e2e::{QUICK, Samples, Space, cluster, scenario, stream};
use serde_json::json;

const CLUSTER: &str = "felix";
const STREAM: &str = "orders";
/// Bytes of each record's value.
const RECORD_BYTES: usize = 4096;
/// Bytes that a subscription may lag behind.
const WINDOW_BYTES: u32 = 1 << 20;
/// Bytes that the broker keeps.
const RING_BYTES: u64 = 8 << 20;
/// Records that are published before one looks again.
const ROUND: u64 = 512;
/// What is published against a subscriber that blocks: more than ring, window and QUIC's buffers hold together.
const BLOCKED_BYTES: u64 = 64 << 20;
/// No client buffers more than this many bytes unread: after so much, a policy must have begun to work.
const MOST_BYTES: u64 = 256 << 20;

#[test]
fn drop_new_counts_while_nobody_reads_and_tells_every_loss() -> Result<()> {
    scenario("drop-new", async |space| {
        drops(space, SlowSubscriber::DropNew, "drop_new").await
    })
}

#[test]
fn drop_old_counts_while_nobody_reads_and_tells_every_loss() -> Result<()> {
    scenario("drop-old", async |space| {
        drops(space, SlowSubscriber::DropOld, "drop_old").await
    })
}

#[test]
fn block_paces_the_publisher_and_loses_nothing() -> Result<()> {
    scenario("block", async |space| {
        let client = prepare(space).await?;
        let mut subscription = subscribe(&client, SlowSubscriber::Block).await?;
        let publisher = client.publisher(STREAM).open().await?;
        let acked = Arc::new(AtomicU64::new(0));
        let total = BLOCKED_BYTES / RECORD_BYTES as u64;
        let publishing = tokio::spawn(publish_counted(publisher, total, acked.clone()));

        space
            .await_metric(CLUSTER, "publishing stands still", standing_still())
            .await?;
        ensure!(
            !publishing.is_finished(),
            "all {total} records were acked although nobody reads"
        );

        let heard = read(&mut subscription, total).await?;
        ensure!(
            heard.gaps.is_empty(),
            "block is lossless, yet there were gaps: {:?}",
            heard.gaps
        );
        publishing.await??;
        ensure!(
            acked.load(Ordering::Relaxed) == total,
            "publishing did not resume to its end"
        );
        Ok(())
    })
}

async fn drops(space: &Space, policy: SlowSubscriber, label: &str) -> Result<()> {
    let client = prepare(space).await?;
    let mut subscription = subscribe(&client, policy).await?;
    let before = space
        .await_metric(CLUSTER, "the counter's series", |s| dropped(s, label))
        .await?;
    ensure!(before == 0.0, "{before} drops before anything was published");

    let publisher = client.publisher(STREAM).open().await?;
    let mut published = 0;
    while published * RECORD_BYTES as u64 <= MOST_BYTES {
        published = publish(&publisher, ROUND).await?;
        if space
            .scrape(&broker(), 8080)
            .await
            .map(|s| dropped(&s, label))?
            .is_some_and(|count| count > 0.0)
        {
            break;
        }
    }
    // Once more, so that there are losses at the very end, with no record behind them.
    published = publish(&publisher, ROUND).await?.max(published);
    let while_not_reading = counted(space, label).await?;
    ensure!(
        while_not_reading > 0.0,
        "no drop was counted while {published} records went by unread"
    );

    let heard = read(&mut subscription, published).await?;
    let lost: u64 = heard.gaps.iter().filter_map(Gap::records).sum();
    ensure!(
        lost > 0,
        "the counter says {while_not_reading}, the subscription was told of no gap"
    );
    if policy == SlowSubscriber::DropNew {
        ensure!(
            heard.ends_with_gap,
            "the newest records were dropped, yet the last delivery was a record"
        );
    }
    let after = counted(space, label).await?;
    ensure!(
        after - before == lost as f64,
        "the counter grew by {}, the gaps add up to {lost}",
        after - before
    );

    // It must be alone with its loss, or the other one's would hide what becomes of it.
    drop(subscription);
    nobody_subscribes(space).await?;
    leaves_with_an_open_gap(space, &client, (policy, label), &publisher).await
}

async fn nobody_subscribes(space: &Space) -> Result<()> {
    space
        .await_metric(CLUSTER, "every subscription is gone", |samples| {
            samples
                .value("felix_subscriptions", &[])
                .filter(|open| *open == 0.0)
                .map(drop)
        })
        .await
}

/// A subscriber that leaves instead of reading on: what it was not given stays counted.
async fn leaves_with_an_open_gap(
    space: &Space,
    client: &Client,
    (policy, label): (SlowSubscriber, &str),
    publisher: &Publisher,
) -> Result<()> {
    let before = counted(space, label).await?;
    let subscription = subscribe(client, policy).await?;
    let most = MOST_BYTES / RECORD_BYTES as u64;
    let mut sent = 0;
    while counted(space, label).await? == before && sent < most {
        publish(publisher, ROUND).await?;
        sent += ROUND;
    }
    let open = counted(space, label).await?;
    ensure!(open > before, "no drop was counted for the second subscription");
    drop(subscription);
    nobody_subscribes(space).await?;
    let after = counted(space, label).await?;
    ensure!(
        after == open,
        "the counter was {open} before the subscriber left and {after} afterwards"
    );
    Ok(())
}

/// Finds that more than the window was acked and then, over ten looks, nothing, although more waits to be sent.
fn standing_still() -> impl FnMut(&Samples) -> Option<()> {
    const LOOKS: usize = 10;
    let (mut before, mut same) = (0.0, 0);
    move |samples| {
        let now = samples.value("felix_publish_records_total", &[])?;
        same = if now == before { same + 1 } else { 0 };
        before = now;
        (same >= LOOKS && now * RECORD_BYTES as f64 >= f64::from(WINDOW_BYTES)).then_some(())
    }
}

async fn prepare(space: &Space) -> Result<Client> {
    space.install_operator(&[]).await?;
    let orders = json!({
        "shards": 1,
        "ringBytes": RING_BYTES,
        "slowSubscriber": { "policy": "drop_new", "windowBytes": WINDOW_BYTES, "allowBlock": true },
    });
    space
        .ready_cluster(&cluster(CLUSTER, &json!({})), &[stream(STREAM, CLUSTER, &orders)])
        .await?;
    space.connect(CLUSTER).await
}

async fn subscribe(client: &Client, policy: SlowSubscriber) -> Result<Subscription> {
    let builder = client
        .subscribe(STREAM)
        .start(Start::Latest)
        .policy(policy)
        .window_bytes(WINDOW_BYTES.into());
    Ok(builder.open().await?)
}

fn broker() -> String {
    format!("{CLUSTER}-broker-0")
}

fn dropped(samples: &Samples, policy: &str) -> Option<f64> {
    samples.value(
        "felix_subscribe_dropped_total",
        &[("stream", STREAM), ("policy", policy)],
    )
}

async fn counted(space: &Space, policy: &str) -> Result<f64> {
    dropped(&space.scrape(&broker(), 8080).await?, policy).context("the counter's series is gone")
}

/// Publishes so many records and returns how many offsets the shard has given out when the last was acked.
async fn publish(publisher: &Publisher, records: u64) -> Result<u64> {
    let value = vec![7; RECORD_BYTES];
    let mut acks = Vec::new();
    for _ in 0..records {
        acks.push(publisher.send(Record::new(&value)).await?);
    }
    let mut last: Option<Receipt> = None;
    for ack in acks {
        last = Some(ack.await?);
    }
    Ok(last.context("nothing was published")?.offset + 1)
}

async fn publish_counted(publisher: Publisher, records: u64, acked: Arc<AtomicU64>) -> Result<()> {
    let value = vec![7; RECORD_BYTES];
    let mut acks = VecDeque::new();
    for _ in 0..records {
        acks.push_back(publisher.send(Record::new(&value)).await?);
        if acks.len() > 64
            && let Some(ack) = acks.pop_front()
        {
            ack.await?;
            acked.fetch_add(1, Ordering::Relaxed);
        }
    }
    for ack in acks {
        ack.await?;
        acked.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// What a subscription yielded.
#[derive(Default)]
struct Heard {
    gaps: Vec<Gap>,
    ends_with_gap: bool,
}

/// Reads until records and gaps account for every offset below `end`, in order and without a hole that no gap tells.
async fn read(subscription: &mut Subscription, end: u64) -> Result<Heard> {
    let mut heard = Heard::default();
    let mut next = 0;
    while next < end {
        let delivery = tokio::time::timeout(QUICK, subscription.next())
            .await
            .with_context(|| format!("nothing more was told at offset {next} of {end}"))??
            .context("the subscription ended")?;
        match delivery {
            Delivery::Record(record) => {
                ensure!(
                    record.offset == next,
                    "expected offset {next}, got {}",
                    record.offset
                );
                next += 1;
                heard.ends_with_gap = false;
            }
            Delivery::Gap(gap) => {
                ensure!(gap.from == next, "expected a gap from {next}, got {gap:?}");
                next = gap.to.context("a gap without an end")?;
                ensure!(
                    Some(next - gap.from) == gap.records(),
                    "the gap's count is not its range: {gap:?}"
                );
                heard.gaps.push(gap);
                heard.ends_with_gap = true;
            }
        }
    }
    ensure!(next == end, "told of offset {next}, but only {end} exist");
    Ok(heard)
}
