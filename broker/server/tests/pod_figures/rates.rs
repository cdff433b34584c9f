//! What good clients get beside others that are slow, blocked or hostile, in records a second.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use felix_client::{Client, Record, SlowPolicy, Subscription};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    hostile,
    pod::Pod,
    support::{STREAM, next_number, numbered, publish, within},
};

/// The policies under which a slow subscription costs nobody anything.
pub(crate) const DROPPING: [SlowPolicy; 2] = [SlowPolicy::DropNew, SlowPolicy::DropOld];
pub(crate) const ATTACKS: [Attack; 5] = [
    Attack::HalfOpen,
    Attack::Garbage,
    Attack::OutOfOrder,
    Attack::TinyRecords,
    Attack::StreamsLeft,
];
/// Time between two rounds of an attack.
const ROUND: Duration = Duration::from_millis(250);

async fn open(client: &Client, stream: &str, policy: SlowPolicy) -> Subscription {
    within(client.subscribe(stream).policy(policy).open())
        .await
        .unwrap()
}

/// Reads the numbers in their order.
async fn read(mut subscription: Subscription, numbers: Range<u64>) -> Subscription {
    for number in numbers {
        assert_eq!(next_number(&mut subscription).await, number);
    }
    subscription
}

async fn read_all(subscriptions: Vec<Subscription>, numbers: Range<u64>) -> Vec<Subscription> {
    let mut readers = JoinSet::new();
    for subscription in subscriptions {
        readers.spawn(read(subscription, numbers.clone()));
    }
    readers.join_all().await
}

/// Records a second to each of the good subscriptions of one connection, beside others that are not read.
pub(crate) async fn fan_out(good: usize, unread: usize) -> f64 {
    const RECORDS: u64 = 256;
    let pod = Pod::start(&[]).await;
    let slow = json!({ "allowBlock": true });
    pod.create_stream(STREAM, json!({ "ringBytes": 8 << 20, "slowSubscriber": slow }))
        .await;
    let client = pod.client(64 << 20).await;
    let mut left = Vec::new();
    for _ in 0..unread {
        let subscription = client.subscribe(STREAM).window_bytes(1 << 16).open();
        left.push(within(subscription).await.unwrap());
    }
    let mut subscriptions = Vec::new();
    for _ in 0..good {
        subscriptions.push(open(&client, STREAM, SlowPolicy::Block).await);
    }
    let publisher = pod.client(1 << 20).await;
    // What the others are promised is used up first.
    let (_, subscriptions) = tokio::join!(
        publish(&publisher, 0..RECORDS, 4 << 10),
        read_all(subscriptions, 0..RECORDS)
    );
    let begun = Instant::now();
    tokio::join!(
        publish(&publisher, RECORDS..3 * RECORDS, 4 << 10),
        read_all(subscriptions, RECORDS..3 * RECORDS)
    );
    2.0 * RECORDS as f64 / begun.elapsed().as_secs_f64()
}

/// Records a second of nine publishers of one connection, which has a tenth that is blocked or not.
pub(crate) async fn nine_publishers(blocked: bool) -> f64 {
    const RECORDS: u64 = 20_000;
    let pod = Pod::start(&[]).await;
    pod.create_blocking_streams(&["blocked", "free"], 4 << 20).await;
    let holding = pod.client(0).await;
    let _held = open(&holding, "blocked", SlowPolicy::Block).await;
    let client = pod.client(64 << 20).await;
    let tenth = within(client.publisher("blocked").open()).await.unwrap();
    while blocked && tenth.try_send(&Record::new(vec![0; 64 << 10])).is_ok() {
        tokio::task::yield_now().await;
    }
    let mut publishers = Vec::new();
    for _ in 0..9 {
        publishers.push(within(client.publisher("free").open()).await.unwrap());
    }
    let begun = Instant::now();
    let mut good = JoinSet::new();
    for publisher in publishers {
        good.spawn(async move {
            let mut last = None;
            for number in 0..RECORDS {
                let record = Record::new(numbered(number, 1 << 10));
                last = Some(within(publisher.send(record)).await.unwrap());
            }
            within(last.unwrap()).await.unwrap();
        });
    }
    good.join_all().await;
    9.0 * RECORDS as f64 / begun.elapsed().as_secs_f64()
}

/// Records a second from a publisher to a good subscription, with a slow one beside it that does not read at all.
pub(crate) async fn past(slow: Option<SlowPolicy>) -> f64 {
    const RECORDS: u64 = 32 << 10;
    const RECORD: usize = 16 << 10;
    let pod = Pod::start(&[]).await;
    let windows = json!({ "windowBytes": 8 << 20, "allowBlock": true });
    pod.create_stream(
        STREAM,
        json!({ "ringBytes": 16 << 20, "slowSubscriber": windows }),
    )
    .await;
    let unread = pod.client(0).await;
    let _slow = match slow {
        Some(policy) => Some(open(&unread, STREAM, policy).await),
        None => None,
    };
    flow(&pod, STREAM, RECORDS, RECORD).await
}

/// A thing that hostile clients do again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attack {
    HalfOpen,
    Garbage,
    OutOfOrder,
    TinyRecords,
    StreamsLeft,
}

impl Attack {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HalfOpen => "800 half-open handshakes a second",
            Self::Garbage => "20000 datagrams of garbage a second",
            Self::OutOfOrder => "12 connections a second with frames out of order",
            Self::TinyRecords => "tiny records whose answers are never read",
            Self::StreamsLeft => "3000 streams that are opened and left",
        }
    }

    /// Attacks until this is dropped.
    async fn go_on(self, pod: &Pod) {
        let mut rounds = tokio::time::interval(ROUND);
        let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
        loop {
            rounds.tick().await;
            match self {
                Self::HalfOpen => held.push(Box::new(hostile::half_open_handshakes(pod, 200).await)),
                Self::Garbage => hostile::garbage(pod.broker.quic, 5000).await,
                Self::OutOfOrder => hostile::out_of_order(pod).await,
                Self::TinyRecords => held.push(hostile::tiny_records(pod, 1_000_000).await),
                Self::StreamsLeft => {
                    held.push(Box::new(hostile::streams_left(pod).await));
                    std::future::pending().await
                }
            }
        }
    }
}

/// Records a second from a good publisher to a good subscription, beside a hostile client or not.
pub(crate) async fn good_client(attack: Option<Attack>) -> f64 {
    const RECORDS: u64 = 200_000;
    let pod = Pod::start(&[]).await;
    pod.create_blocking_streams(&[STREAM, "good"], 8 << 20).await;
    let attacking = async {
        match attack {
            Some(attack) => attack.go_on(&pod).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        rate = flow(&pod, "good", RECORDS, 1 << 10) => rate,
        () = attacking => unreachable!("attacks do not end"),
    }
}

/// Records a second from one publisher to one subscription under `block`, a connection for each.
async fn flow(pod: &Pod, stream: &str, records: u64, bytes: usize) -> f64 {
    let (from, to) = (pod.client(1 << 20).await, pod.client(64 << 20).await);
    let subscription = open(&to, stream, SlowPolicy::Block).await;
    let publisher = within(from.publisher(stream).open()).await.unwrap();
    let begun = Instant::now();
    let reading = tokio::spawn(read(subscription, 0..records));
    let publishing = tokio::spawn(async move {
        let mut value = numbered(0, bytes);
        let mut last = None;
        for number in 0..records {
            value[..8].copy_from_slice(&number.to_le_bytes());
            last = Some(within(publisher.send(Record::new(&value))).await.unwrap());
        }
        within(last.unwrap()).await.unwrap();
    });
    publishing.await.unwrap();
    reading.await.unwrap();
    records as f64 / begun.elapsed().as_secs_f64()
}
