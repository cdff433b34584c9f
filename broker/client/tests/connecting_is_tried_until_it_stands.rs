//! Refusals and silence are tried again; wrong certificates and wrong names are not. Errors say which.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use felix_client::{
    Client, ConnectError, ErrorCode, ErrorKind, MetadataError, PublishError, Record, SubscribeError,
};
use support::{Broker, STREAM};

#[tokio::test]
async fn a_broker_that_comes_up_later_is_found() {
    let broker = Broker::start(1).await;
    let builder = broker.builder();
    broker.stop().await;
    let connecting = tokio::spawn(builder.connect());
    let broker = broker.restart().await;
    let client = connecting.await.unwrap().unwrap();
    assert_eq!(client.metadata(STREAM).await.unwrap().shards, 1);
    assert_eq!(client.broker().await.unwrap().cluster_id, "test-cluster");
    drop(broker);
}

#[tokio::test]
async fn a_restarted_broker_is_found_again_by_all() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let publisher = client.publisher(STREAM).open().await.unwrap();
    publisher
        .send(Record::new("before"))
        .await
        .unwrap()
        .await
        .unwrap();
    broker.stop().await;
    let during = publisher.send(Record::new("during")).await.unwrap();
    let broker = broker.restart().await;
    assert_eq!(during.await.unwrap().offset, 1);
    assert_eq!(broker.stored(0).len(), 2);
}

#[tokio::test]
async fn nobody_there_is_a_retry_within_the_time_out() {
    let address = {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    let broker = Broker::start(1).await;
    let error = Client::builder(&address.to_string())
        .ca_pem(&broker.ca_pem)
        .connect_timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
}

#[tokio::test]
async fn a_wrong_authority_and_a_wrong_name_are_final() {
    let (broker, other) = (Broker::start(1).await, Broker::start(1).await);
    let address = broker.address.to_string();
    let wrong_ca = Client::builder(&address)
        .ca_pem(&other.ca_pem)
        .server_name("localhost")
        .unwrap();
    let wrong_name = Client::builder(&address)
        .ca_pem(&broker.ca_pem)
        .server_name("elsewhere")
        .unwrap();
    for builder in [wrong_ca, wrong_name] {
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::DoNotRetry);
    }
}

#[tokio::test]
async fn an_unknown_stream_and_a_bad_name_are_told_at_once() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let unknown = client.publisher("nothing").open().await.unwrap_err();
    assert!(
        matches!(
            unknown,
            PublishError::Refused {
                code: ErrorCode::UnknownStream,
                ..
            }
        ),
        "{unknown}"
    );
    let unknown = client.subscribe("nothing").open().await.unwrap_err();
    assert!(
        matches!(
            unknown,
            SubscribeError::Refused {
                code: ErrorCode::UnknownStream,
                ..
            }
        ),
        "{unknown}"
    );
    let unknown = client.metadata("nothing").await.unwrap_err();
    assert!(
        matches!(
            unknown,
            MetadataError::Refused {
                code: ErrorCode::UnknownStream,
                ..
            }
        ),
        "{unknown}"
    );
    assert_eq!(
        client.publisher("not/a/name").open().await.unwrap_err().kind(),
        ErrorKind::DoNotRetry
    );
}

#[tokio::test]
async fn a_record_over_the_limit_is_refused_before_it_leaves() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let error = publisher
        .send(Record::new(vec![0; (1 << 20) + 1]))
        .await
        .unwrap_err();
    assert!(
        matches!(error, PublishError::RecordTooLarge { limit: 1_048_576, .. }),
        "{error}"
    );
    let largest = publisher.send(Record::new(vec![0; 1 << 20])).await.unwrap();
    assert_eq!(largest.await.unwrap().offset, 0);
}

#[tokio::test]
async fn a_closed_publisher_takes_nothing_and_a_closed_client_fails_what_is_open() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let publisher = client.publisher(STREAM).open().await.unwrap();
    broker.silent(true);
    let in_flight = publisher.send(Record::new("x")).await.unwrap();
    client.close().await;
    assert!(in_flight.await.is_err());
    assert_eq!(
        publisher.send(Record::new("y")).await.unwrap_err().kind(),
        ErrorKind::DoNotRetry
    );
    assert!(matches!(
        client.metadata(STREAM).await,
        Err(MetadataError::Connect(ConnectError::Closed))
    ));
}

#[tokio::test]
async fn silence_beyond_the_delivery_time_out_is_an_unknown_outcome() {
    let broker = Broker::start(1).await;
    let client = broker
        .builder()
        .delivery_timeout(Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    let publisher = client.publisher(STREAM).open().await.unwrap();
    broker.silent(true);
    let error = publisher.send(Record::new("x")).await.unwrap().await.unwrap_err();
    assert!(matches!(error, PublishError::TimedOut { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unknown);
    broker.silent(false);
    publisher.send(Record::new("y")).await.unwrap().await.unwrap();
}
