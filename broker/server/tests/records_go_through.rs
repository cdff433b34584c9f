//! What is published is delivered: in order, byte for byte, to every subscription, from the start that it asked for.

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

mod support;

use felix_client::{Delivery, ErrorCode, MetadataError, PublishError, Reached, Record, Start};
use support::{STREAM, broker_with, client_of, metric, next, next_number, publish, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_keep_order_bytes_key_and_headers() {
    let broker = broker_with(|_| {}).await;
    let client = client_of(&broker).await;
    let mut subscription = within(client.subscribe(STREAM).open()).await.unwrap();
    let publisher = within(client.publisher(STREAM).open()).await.unwrap();
    let record = Record::new("two beers").key("table-4").header("waiter", "7");
    let receipt = within(within(publisher.send(record)).await.unwrap())
        .await
        .unwrap();
    assert_eq!(
        (receipt.shard, receipt.offset, receipt.reached),
        (0, 0, Reached::Stored)
    );
    let Delivery::Record(received) = next(&mut subscription).await else {
        panic!("a gap")
    };
    assert_eq!(&received.value[..], b"two beers");
    assert_eq!(received.key.as_deref(), Some(&b"table-4"[..]));
    assert_eq!(received.headers.len(), 1);
    // A record with nothing in it is a record.
    let empty = within(within(publisher.send(Record::new(b""))).await.unwrap())
        .await
        .unwrap();
    assert_eq!(empty.offset, 1);
    let Delivery::Record(received) = next(&mut subscription).await else {
        panic!("a gap")
    };
    assert!(received.value.is_empty() && !received.deletes);
    // One without a value is another: it deletes its key.
    let deletion = Record::deletion("table-4").header("waiter", "7");
    within(within(publisher.send(deletion)).await.unwrap())
        .await
        .unwrap();
    let mut batch = publisher.batch();
    batch.push(&Record::deletion("table-5")).unwrap();
    within(within(publisher.send_batch(batch)).await.unwrap())
        .await
        .unwrap();
    for (key, headers) in [("table-4", 1), ("table-5", 0)] {
        let Delivery::Record(received) = next(&mut subscription).await else {
            panic!("a gap")
        };
        assert!(received.deletes && received.value.is_empty());
        assert_eq!(received.key.as_deref(), Some(key.as_bytes()));
        assert_eq!(received.headers.len(), headers);
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_subscriptions_get_every_record_of_many() {
    const RECORDS: u64 = 20_000;
    let broker = broker_with(|_| {}).await;
    let client = client_of(&broker).await;
    let mut readers = Vec::new();
    for _ in 0..10 {
        let mut subscription = within(client.subscribe(STREAM).open()).await.unwrap();
        readers.push(tokio::spawn(async move {
            for expected in 0..RECORDS {
                assert_eq!(next_number(&mut subscription).await, expected);
            }
        }));
    }
    publish(&client, 0..RECORDS, 100).await;
    for reader in readers {
        within(reader).await.unwrap();
    }
    let text = broker.metrics_text();
    assert_eq!(metric(&text, "felix_publish_records_total"), Some(RECORDS));
    assert_eq!(metric(&text, "felix_subscribe_records_total"), Some(10 * RECORDS));
    assert!(metric(&text, "felix_publish_ack_seconds_count").unwrap() > 0);
    assert!(metric(&text, "felix_delivery_seconds_count").unwrap() > 0);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_begins_where_it_asks() {
    let broker = broker_with(|_| {}).await;
    let client = client_of(&broker).await;
    publish(&client, 0..10, 100).await;
    for (start, first) in [
        (Start::Earliest, 0),
        (Start::Offset(felix_client::Offset(7)), 7),
        (Start::Time(felix_client::Nanos(0)), 0),
    ] {
        let mut subscription = within(client.subscribe(STREAM).start(start).open())
            .await
            .unwrap();
        assert_eq!(next_number(&mut subscription).await, first, "{start:?}");
    }
    let mut latest = within(client.subscribe(STREAM).start(Start::Latest).open())
        .await
        .unwrap();
    publish(&client, 10..11, 100).await;
    assert_eq!(next_number(&mut latest).await, 10);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_stream_and_a_record_over_the_limit_are_refused_by_name() {
    let broker = broker_with(|_| {}).await;
    let client = client_of(&broker).await;
    let unknown = within(client.metadata("nobody")).await.unwrap_err();
    assert!(
        matches!(
            unknown,
            MetadataError::Refused {
                code: ErrorCode::UnknownStream,
                ..
            }
        ),
        "{unknown:?}"
    );
    assert!(within(client.publisher("nobody").open()).await.is_err());
    let publisher = within(client.publisher(STREAM).open()).await.unwrap();
    let limit = 1 << 20;
    let exact = within(publisher.send(Record::new(vec![1; limit]))).await.unwrap();
    within(exact).await.unwrap();
    let refused: Result<_, PublishError> = within(publisher.send(Record::new(vec![1; limit + 1]))).await;
    assert!(refused.is_err());
    // The publisher goes on.
    within(within(publisher.send(Record::new("after"))).await.unwrap())
        .await
        .unwrap();
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_stream_ends_its_subscriptions_and_publishers() {
    let broker = broker_with(|_| {}).await;
    let client = client_of(&broker).await;
    let mut subscription = within(client.subscribe(STREAM).open()).await.unwrap();
    let publisher = within(client.publisher(STREAM).open()).await.unwrap();
    within(within(publisher.send(Record::new("a"))).await.unwrap())
        .await
        .unwrap();
    next(&mut subscription).await;
    broker.delete_stream(STREAM).await.unwrap();
    let ended = within(subscription.next()).await;
    assert!(ended.is_err(), "{ended:?}");
    broker.shutdown().await;
}
