//! Many connections, many subscriptions on one, and a blocked publisher beside good ones.

use felix_client::{Delivery, Lost, Record, SlowPolicy};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    pod::Pod,
    support::{STREAM, next, next_number, numbered, publish, within},
};

const MANY: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_with_one_subscription_each() {
    let pod = Pod::start(&[]).await;
    pod.create_stream(STREAM, json!({})).await;
    let before = pod.resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..MANY {
        clients.push(pod.client(1 << 20).await);
    }
    let connected = pod.resident_bytes();
    let mut subscriptions = Vec::new();
    for client in &clients {
        subscriptions.push(within(client.subscribe(STREAM).open()).await.unwrap());
    }
    let subscribed = pod.resident_bytes();
    eprintln!(
        "a connection takes {} bytes, its only subscription {} more",
        connected.saturating_sub(before) / MANY as u64,
        subscribed.saturating_sub(connected) / MANY as u64,
    );
    let mut readers = JoinSet::new();
    for mut subscription in subscriptions {
        readers.spawn(async move {
            for number in 0..100 {
                assert_eq!(next_number(&mut subscription).await, number);
            }
        });
    }
    publish(&clients[0], 0..100, 1 << 10).await;
    while let Some(read) = within(readers.join_next()).await {
        read.unwrap();
    }
    pod.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_with_a_thousand_subscriptions_of_which_a_hundred_are_not_read() {
    const UNREAD: usize = 100;
    const RECORDS: u64 = 512;
    let pod = Pod::start(&[]).await;
    let window = json!({ "ringBytes": 1 << 20, "slowSubscriber": { "windowBytes": 1 << 16 } });
    pod.create_stream(STREAM, window).await;
    let client = pod.client(64 << 20).await;
    let before = pod.resident_bytes();
    let mut subscriptions = Vec::new();
    for _ in 0..MANY {
        subscriptions.push(within(client.subscribe(STREAM).open()).await.unwrap());
    }
    let each = pod.resident_bytes().saturating_sub(before) / MANY as u64;
    eprintln!("a subscription takes {each} bytes");
    let unread = subscriptions.split_off(MANY - UNREAD);
    let publisher = pod.client(1 << 20).await;
    // Half a window is read by all good ones before the next comes, so none of them may lose any. The others are sent their
    // credit, fill their windows and lose the rest.
    for first in (0..RECORDS).step_by(4) {
        publish(&publisher, first..first + 4, 8 << 10).await;
        for subscription in &mut subscriptions {
            for number in first..first + 4 {
                assert_eq!(next_number(subscription).await, number);
            }
        }
    }
    let mut lost = 0;
    for mut subscription in unread {
        let mut told = 0;
        while told < RECORDS {
            match next(&mut subscription).await {
                Delivery::Record(_) => told += 1,
                Delivery::Gap(gap) => {
                    let Lost::Exactly(records) = gap.lost else {
                        panic!("{gap:?}")
                    };
                    (told, lost) = (told + records, lost + records);
                }
            }
        }
    }
    let counter = format!("felix_subscribe_dropped_total{{stream=\"{STREAM}\",policy=\"drop_new\"}}");
    assert_eq!(pod.metric(&counter).await, lost);
    pod.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_blocked_publisher_beside_nine_good_ones_on_a_connection() {
    let pod = Pod::start(&[]).await;
    pod.create_blocking_streams(&["blocked", "free"], 4 << 20).await;
    let holding = pod.client(0).await;
    let held = within(holding.subscribe("blocked").policy(SlowPolicy::Block).open())
        .await
        .unwrap();
    let client = pod.client(64 << 20).await;
    let blocked = within(client.publisher("blocked").open()).await.unwrap();
    let mut waiting = Vec::new();
    while let Ok(ack) = blocked.try_send(&Record::new(vec![0; 64 << 10])) {
        waiting.push(ack);
        tokio::task::yield_now().await;
    }
    let mut good = JoinSet::new();
    for _ in 0..9 {
        let publisher = within(client.publisher("free").open()).await.unwrap();
        good.spawn(async move {
            let mut last = None;
            for number in 0..1000 {
                let record = Record::new(numbered(number, 8 << 10));
                last = Some(within(publisher.send(record)).await.unwrap());
            }
            within(last.unwrap()).await.unwrap();
        });
    }
    while let Some(published) = within(good.join_next()).await {
        published.unwrap();
    }
    drop(held);
    for ack in waiting {
        within(ack).await.unwrap();
    }
    pod.check().await;
}
