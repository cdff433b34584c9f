//! What a small pod takes and gives, as figures: run by hand with dev/pod-figures on a machine that does nothing else. Nothing
//! is bounded here, because a busy machine would break the bounds; that memory and records are right, the tests say.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "without a figure there is nothing to print"
)]

#[allow(dead_code, reason = "the figures use a part")]
#[path = "../small_pod/pod.rs"]
mod pod;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use felix_client::{Client, Delivery, Record, SlowPolicy, Subscription};
use pod::Pod;
use serde_json::{Value, json};
use support::{STREAM, next_number, numbered, publish, within};
use tokio::task::JoinSet;

const ROUNDS: usize = 5;

fn name(number: usize) -> String {
    format!("stream-{number}")
}

/// A broker with many streams: one is made, the catalogue is given more like it, and the broker is started again.
async fn with_streams(count: usize, limit: u64, arguments: &[&str]) -> Pod {
    let pod = Pod::start_on(tempfile::tempdir().unwrap(), limit, arguments).await;
    pod.create_stream(
        STREAM,
        json!({ "ringBytes": 1 << 20, "slowSubscriber": { "windowBytes": 1 << 20 } }),
    )
    .await;
    let data_dir = pod.stop().await;
    let path = data_dir.path().join("catalogue.json");
    let mut catalogue: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let model = catalogue["streams"][STREAM].clone();
    for number in 0..count {
        let mut stream = model.clone();
        stream["incarnation"] = format!("{:032x}", number + 1).into();
        catalogue["streams"][name(number)] = stream;
    }
    std::fs::write(&path, serde_json::to_vec(&catalogue).unwrap()).unwrap();
    Pod::start_on(data_dir, limit, arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle() {
    const CONNECTIONS: usize = 1000;
    let pod = with_streams(10_000, 512 << 20, &[]).await;
    let before = pod.resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(pod.client(1 << 20).await);
    }
    let each = pod.resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
    let (begun, cpu) = (Instant::now(), pod.cpu_ms());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let share = (pod.cpu_ms() - cpu) as f64 / begun.elapsed().as_millis() as f64;
    println!(
        "10000 idle streams take {} MiB, an idle connection {each} bytes; with 1000 of these the broker uses {:.2} % of a core",
        before >> 20,
        share * 100.0
    );
}

/// Records a second to each of the good subscriptions of one connection, beside others that are not read.
async fn fan_out_rate(good: usize, unread: usize) -> f64 {
    const RECORDS: u64 = 256;
    let pod = Pod::start(&[]).await;
    pod.create_stream(
        STREAM,
        json!({ "ringBytes": 8 << 20, "slowSubscriber": { "allowBlock": true } }),
    )
    .await;
    let client = pod.client(64 << 20).await;
    let mut left = Vec::new();
    for _ in 0..unread {
        left.push(
            within(client.subscribe(STREAM).window_bytes(1 << 16).open())
                .await
                .unwrap(),
        );
    }
    let mut subscriptions = Vec::new();
    for _ in 0..good {
        let subscription = client.subscribe(STREAM).policy(SlowPolicy::Block).open();
        subscriptions.push(within(subscription).await.unwrap());
    }
    let publisher = pod.client(1 << 20).await;
    // What the others are promised is used up first.
    let read = |subscriptions: Vec<Subscription>, numbers: std::ops::Range<u64>| async move {
        let mut readers = JoinSet::new();
        for mut subscription in subscriptions {
            let numbers = numbers.clone();
            readers.spawn(async move {
                for number in numbers {
                    assert_eq!(next_number(&mut subscription).await, number);
                }
                subscription
            });
        }
        readers.join_all().await
    };
    let (_, subscriptions) = tokio::join!(
        publish(&publisher, 0..RECORDS, 4 << 10),
        read(subscriptions, 0..RECORDS)
    );
    let begun = Instant::now();
    tokio::join!(
        publish(&publisher, RECORDS..3 * RECORDS, 4 << 10),
        read(subscriptions, RECORDS..3 * RECORDS)
    );
    2.0 * RECORDS as f64 / begun.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_that_are_not_read_beside_900_good_ones() {
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (alone, beside) = (fan_out_rate(900, 0).await, fan_out_rate(900, 100).await);
        ratios.push(beside / alone);
    }
    println!(
        "900 subscriptions beside 100 that are not read, against alone: {}",
        median(ratios)
    );
}

/// Records a second of nine publishers of one connection, which has a tenth that is blocked or not.
async fn publish_rate(blocked: bool) -> f64 {
    const RECORDS: u64 = 20_000;
    let pod = Pod::start(&[]).await;
    for name in ["blocked", "free"] {
        let slow = json!({ "windowBytes": 1 << 20, "allowBlock": true });
        pod.create_stream(name, json!({ "ringBytes": 4 << 20, "slowSubscriber": slow }))
            .await;
    }
    let holding = pod.client(0).await;
    let _held = within(holding.subscribe("blocked").policy(SlowPolicy::Block).open())
        .await
        .unwrap();
    let client = pod.client(64 << 20).await;
    let tenth = within(client.publisher("blocked").open()).await.unwrap();
    while blocked && tenth.try_send(&Record::new(vec![0; 64 << 10])).is_ok() {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    let mut good = JoinSet::new();
    for _ in 0..9 {
        let publisher = within(client.publisher("free").open()).await.unwrap();
        good.spawn(async move {
            let mut last = None;
            for number in 0..RECORDS {
                last = Some(
                    within(publisher.send(Record::new(numbered(number, 1 << 10))))
                        .await
                        .unwrap(),
                );
            }
            within(last.unwrap()).await.unwrap();
        });
    }
    good.join_all().await;
    9.0 * RECORDS as f64 / begun.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nine_publishers_beside_a_blocked_one() {
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let (alone, beside) = (publish_rate(false).await, publish_rate(true).await);
        ratios.push(beside / alone);
    }
    println!(
        "nine publishers beside a blocked one, against alone: {}",
        median(ratios)
    );
}

/// The broker's time for a delivered record, in microseconds, with the same batches to so many streams.
async fn cpu_per_record(streams: usize) -> f64 {
    const BATCHES: usize = 20_000;
    const RECORDS: usize = 16;
    let pod = with_streams(streams, 4 << 30, &["--memory-budget", "3GiB"]).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(pod.client(64 << 20).await);
    }
    let client = |number: usize| -> &Client { &clients[number % 8] };
    let (mut publishers, mut readers) = (Vec::new(), JoinSet::new());
    let (start, started) = tokio::sync::watch::channel(false);
    for number in 0..streams {
        let stream = name(number);
        let subscription = within(client(number).subscribe(&stream).open()).await.unwrap();
        publishers.push(
            within(client(number + 4).publisher(&stream).open())
                .await
                .unwrap(),
        );
        readers.spawn(read(subscription, BATCHES / streams * RECORDS, started.clone()));
    }
    let cpu = pod.cpu_ms();
    start.send_replace(true);
    for _ in 0..BATCHES / streams {
        for publisher in &publishers {
            let mut batch = publisher.batch();
            for _ in 0..RECORDS {
                batch.push(&Record::new(&[7; 256])).unwrap();
            }
            drop(within(publisher.send_batch(batch)).await.unwrap());
        }
    }
    readers.join_all().await;
    (pod.cpu_ms() - cpu) as f64 * 1000.0 / (BATCHES * RECORDS) as f64
}

async fn read(
    mut subscription: Subscription,
    records: usize,
    mut started: tokio::sync::watch::Receiver<bool>,
) {
    started.wait_for(|started| *started).await.unwrap();
    for _ in 0..records {
        let next = within(subscription.next()).await.unwrap().unwrap();
        assert!(matches!(next, Delivery::Record(_)), "a gap");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_and_ten_thousand() {
    let (mut ratios, mut figures) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (one, many) = (cpu_per_record(1).await, cpu_per_record(10_000).await);
        figures.push((one, many));
        ratios.push(many / one);
    }
    println!(
        "CPU microseconds for a delivered record, 1 and 10000 streams: {figures:.3?}; ratio {}",
        median(ratios)
    );
}

fn median(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    format!("{:.2} (median of {ratios:.2?})", ratios[ratios.len() / 2])
}
