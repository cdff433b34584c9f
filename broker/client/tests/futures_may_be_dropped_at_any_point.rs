//! Dropped futures lose nothing that was sent before, wedge nothing, and leave no hole.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use felix_client::{Client, Delivery, Record, Start};
use support::{Broker, STREAM};

/// Polls once and drops.
fn poll_and_drop(future: impl Future) -> bool {
    pin!(future)
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

async fn next_value(subscription: &mut felix_client::Subscription) -> Vec<u8> {
    match subscription.next().await.unwrap().unwrap() {
        Delivery::Record(record) => record.value.to_vec(),
        Delivery::Gap(gap) => panic!("{gap:?}"),
    }
}

#[tokio::test]
async fn a_record_whose_acknowledgement_nobody_awaits_is_stored() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    for n in 0..50_u8 {
        drop(publisher.send(Record::new(&[n])).await.unwrap());
    }
    publisher.close().await.unwrap();
    assert_eq!(broker.stored(0).len(), 50);
}

#[tokio::test]
async fn a_dropped_publisher_still_delivers() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let ack = publisher.send(Record::new("x")).await.unwrap();
    drop(publisher);
    assert_eq!(ack.await.unwrap().offset, 0);
}

#[tokio::test]
async fn senders_that_stop_waiting_for_room_leave_it_to_others() {
    let broker = Broker::start(1).await;
    let publisher = broker
        .client()
        .await
        .publisher(STREAM)
        .buffer_bytes(4000)
        .open()
        .await
        .unwrap();
    broker.silent(true);
    let value = [0; 1000];
    let mut acks = Vec::new();
    while let Ok(ack) = publisher.try_send(&Record::new(&value)) {
        acks.push(ack);
    }
    assert!(!acks.is_empty());
    for _ in 0..10 {
        assert!(
            !poll_and_drop(publisher.send(Record::new(&value))),
            "there is no room"
        );
    }
    let waiting = tokio::spawn({
        let publisher = publisher.clone();
        async move {
            publisher
                .send(Record::new(vec![1; 1000]))
                .await
                .unwrap()
                .await
                .unwrap()
        }
    });
    broker.silent(false);
    broker.drop_connections();
    waiting.await.unwrap();
    for ack in acks {
        ack.await.unwrap();
    }
    publisher.flush().await.unwrap();
    assert!(broker.stored(0).iter().filter(|value| value[0] == 1).count() == 1);
}

#[tokio::test]
async fn next_loses_nothing_when_its_future_is_dropped() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let mut subscription = client
        .subscribe(STREAM)
        .start(Start::Earliest)
        .open()
        .await
        .unwrap();
    let publisher = client.publisher(STREAM).open().await.unwrap();
    for round in 0..200_u32 {
        poll_and_drop(subscription.next());
        if round % 50 == 25 {
            broker.drop_connections();
            poll_and_drop(subscription.next());
        }
        publisher
            .send(Record::new(&round.to_le_bytes()))
            .await
            .unwrap()
            .await
            .unwrap();
        // What a dropped future had seen comes all the same.
        assert_eq!(next_value(&mut subscription).await, round.to_le_bytes());
    }
}

#[tokio::test]
async fn a_dropped_connect_does_not_stop_the_next() {
    let broker = Broker::start(1).await;
    for _ in 0..5 {
        assert!(!poll_and_drop(broker.builder().connect()));
    }
    let client: Client = broker.client().await;
    assert!(!poll_and_drop(client.publisher(STREAM).open()));
    assert!(!poll_and_drop(client.subscribe(STREAM).open()));
    client.metadata(STREAM).await.unwrap();
}

#[tokio::test]
async fn polling_an_ack_after_its_task_moved_still_wakes() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let mut ack = publisher.send(Record::new("x")).await.unwrap();
    let polled = std::pin::Pin::new(&mut ack).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending));
    tokio::spawn(ack).await.unwrap().unwrap();
}
