//! A subscription survives lost connections and restarts, and says what it was not given.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use felix_client::{
    Client, Delivery, ErrorCode, ErrorKind, GapReason, Lost, Record, SubscribeError, Subscription,
};
use support::{Broker, STREAM};

async fn publish(client: &Client, values: std::ops::Range<u8>) {
    let publisher = client.publisher(STREAM).open().await.unwrap();
    for n in values {
        publisher.send(Record::new(&[n])).await.unwrap().await.unwrap();
    }
}

async fn read(subscription: &mut Subscription, count: usize) -> Vec<u8> {
    let mut values = Vec::new();
    while values.len() < count {
        match subscription.next().await.unwrap().unwrap() {
            Delivery::Record(record) => values.push(record.value[0]),
            Delivery::Gap(gap) => panic!("{gap:?} after {values:?}"),
        }
    }
    values
}

#[tokio::test]
async fn a_lost_connection_is_not_noticed() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let mut subscription = client.subscribe(STREAM).open().await.unwrap();
    publish(&client, 0..3).await;
    assert_eq!(read(&mut subscription, 2).await, [0, 1]);
    broker.drop_connections();
    publish(&client, 3..6).await;
    assert_eq!(read(&mut subscription, 4).await, [2, 3, 4, 5]);
}

#[tokio::test]
async fn what_is_no_longer_kept_is_an_exact_gap() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let mut subscription = client.subscribe(STREAM).open().await.unwrap();
    publish(&client, 0..1).await;
    assert_eq!(read(&mut subscription, 1).await, [0]);
    broker.close_door(Some(ErrorCode::Overloaded));
    broker.drop_connections();
    publish(&client, 1..10).await;
    broker.trim(2);
    broker.close_door(None);
    let Delivery::Gap(gap) = subscription.next().await.unwrap().unwrap() else {
        panic!("no gap")
    };
    assert_eq!((gap.reason, gap.from, gap.to), (GapReason::NotKept, 1, Some(8)));
    assert_eq!(gap.lost, Lost::Exactly(7));
    assert_eq!(read(&mut subscription, 2).await, [8, 9]);
}

#[tokio::test]
async fn a_new_life_is_a_gap_and_then_its_records() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let mut subscription = client.subscribe(STREAM).open().await.unwrap();
    publish(&client, 0..2).await;
    assert_eq!(read(&mut subscription, 2).await, [0, 1]);
    broker.new_life();
    publish(&client, 7..9).await;
    let Some(Delivery::Gap(gap)) = subscription.next().await.unwrap() else {
        panic!("no gap")
    };
    assert_eq!(
        (gap.reason, gap.from, gap.to),
        (GapReason::FormerIncarnation, 2, None)
    );
    assert_eq!(read(&mut subscription, 2).await, [7, 8]);
}

#[tokio::test]
async fn a_refusal_that_passes_is_waited_out_and_a_final_one_is_told() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let mut subscription = client.subscribe(STREAM).open().await.unwrap();
    broker.close_door(Some(ErrorCode::TooManySubscriptions));
    let refused = client.subscribe(STREAM).open().await.unwrap_err();
    assert_eq!(
        refused.kind(),
        ErrorKind::Retry,
        "the first opening is the user's to repeat"
    );
    broker.drop_connections();
    let waiting = tokio::spawn(async move { (read(&mut subscription, 1).await, subscription) });
    broker.close_door(None);
    publish(&client, 5..6).await;
    let (values, mut subscription) = waiting.await.unwrap();
    assert_eq!(values, [5]);
    broker.close_door(Some(ErrorCode::Forbidden));
    broker.drop_connections();
    let error = subscription.next().await.unwrap_err();
    assert!(
        matches!(
            error,
            SubscribeError::Refused {
                code: ErrorCode::Forbidden,
                ..
            }
        ),
        "{error}"
    );
    assert!(subscription.next().await.unwrap().is_none(), "it is over");
}

#[tokio::test]
async fn shards_are_merged_and_keys_keep_their_order() {
    let broker = Broker::start(4).await;
    let client = broker.client().await;
    let mut subscription = client.subscribe(STREAM).open().await.unwrap();
    let publisher = client.publisher(STREAM).open().await.unwrap();
    for n in 0..200_u8 {
        let key = [n % 10];
        drop(
            publisher
                .send(Record::new(&[n]).key(&key).header("n", &key))
                .await
                .unwrap(),
        );
    }
    let mut last = [None; 10];
    let mut shards = std::collections::HashSet::new();
    for _ in 0..200 {
        let Some(Delivery::Record(record)) = subscription.next().await.unwrap() else {
            panic!("no record")
        };
        let key = record.key.as_ref().unwrap()[0] as usize;
        assert!(last[key] < Some(record.value[0]), "key {key}");
        assert_eq!(record.headers.get("n"), Some(&[key as u8][..]));
        last[key] = Some(record.value[0]);
        shards.insert(record.shard);
    }
    assert!(shards.len() > 1);
}

#[tokio::test]
async fn a_closed_client_ends_its_subscriptions() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let mut subscription = client.subscribe(STREAM).open().await.unwrap();
    client.close().await;
    assert!(subscription.next().await.unwrap().is_none());
}
