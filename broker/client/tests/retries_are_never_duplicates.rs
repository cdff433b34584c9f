//! Connections break at every point of publishing: every record is stored once, in order, and acknowledged.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use felix_client::{ErrorCode, ErrorKind, PublishError, Record};
use support::{Broker, STREAM};

#[tokio::test]
async fn lost_acknowledgements_are_had_again_without_storing_twice() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    broker.silent(true);
    let mut acks = Vec::new();
    for n in 0..5_u8 {
        acks.push(publisher.send(Record::new(&[n])).await.unwrap());
    }
    broker.received(1).await;
    broker.silent(false);
    broker.drop_connections();
    for (n, ack) in acks.into_iter().enumerate() {
        assert_eq!(ack.await.unwrap().offset, n as u64);
    }
    assert_eq!(broker.stored(0), [[0], [1], [2], [3], [4]]);
}

#[tokio::test]
async fn connections_that_break_again_and_again_lose_nothing() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let mut acks = Vec::new();
    for n in 0..400_u32 {
        acks.push(publisher.send(Record::new(&n.to_le_bytes())).await.unwrap());
        if n % 40 == 20 {
            broker.drop_connections();
        }
    }
    for (n, ack) in acks.into_iter().enumerate() {
        assert_eq!(ack.await.unwrap().offset, n as u64);
    }
    let expected: Vec<_> = (0..400_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    assert_eq!(broker.stored(0), expected);
}

#[tokio::test]
async fn a_new_life_makes_what_is_in_flight_unknown_and_goes_on() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    publisher
        .send(Record::new("stored"))
        .await
        .unwrap()
        .await
        .unwrap();
    broker.silent(true);
    let in_flight = publisher.send(Record::new("in flight")).await.unwrap();
    broker.received(2).await;
    broker.new_life();
    broker.silent(false);
    broker.drop_connections();
    let error = in_flight.await.unwrap_err();
    assert!(matches!(error, PublishError::NewIncarnation), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unknown);
    let receipt = publisher.send(Record::new("next")).await.unwrap().await.unwrap();
    assert_eq!(receipt.offset, 0);
    assert_eq!(broker.stored(0), [b"next"]);
}

#[tokio::test]
async fn a_producer_that_was_forgotten_is_told_and_begins_anew() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    publisher.send(Record::new("a")).await.unwrap().await.unwrap();
    broker.forget_producers();
    let error = publisher.send(Record::new("b")).await.unwrap().await.unwrap_err();
    assert!(
        matches!(
            error,
            PublishError::Refused {
                code: ErrorCode::UnknownProducer,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert_eq!(
        publisher
            .send(Record::new("c"))
            .await
            .unwrap()
            .await
            .unwrap()
            .offset,
        1
    );
}

#[tokio::test]
async fn a_refused_batch_is_told_and_later_ones_are_stored_in_order() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    publisher.send(Record::new("first")).await.unwrap().await.unwrap();
    broker.refuse(ErrorCode::Overloaded, 1);
    let error = publisher
        .send(Record::new("refused"))
        .await
        .unwrap()
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            PublishError::Refused {
                code: ErrorCode::Overloaded,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert_eq!(
        publisher
            .send(Record::new("again"))
            .await
            .unwrap()
            .await
            .unwrap()
            .offset,
        1
    );
    assert_eq!(broker.stored(0), [b"first".to_vec(), b"again".to_vec()]);
}
