//! Clients that break the protocol are refused by code, cost what is bounded, and do not disturb the good ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation is how a test fails"
)]

mod support;

use bytes::{Bytes, BytesMut};
use felix_client::{Client, ErrorCode};
use felix_wire::{
    AuthMethod, Frame, FrameHead, FrameKind, Hello, Incarnation, ShardId, Start, StreamName, Subscribe,
};
use quinn::{Connection, ConnectionError};
use support::{
    STREAM, broker_with, client_of, metric, next_number, publish,
    wire::{batch, connect, encoded, greeted, hello, open_publish, read_frame},
    within,
};

async fn closed_with(connection: &Connection, code: ErrorCode) {
    let error = within(connection.closed()).await;
    let ConnectionError::ApplicationClosed(close) = &error else {
        panic!("closed by {error}")
    };
    assert_eq!(u64::from(close.error_code), u64::from(code.to_wire()), "{close}");
}

/// The broker still serves a good client.
async fn serves(client: &Client, number: u64) {
    let mut subscription = within(client.subscribe(STREAM).open()).await.unwrap();
    publish(client, number..number + 1, 100).await;
    assert_eq!(next_number(&mut subscription).await, number);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_hello_closes_the_connection() {
    let broker = broker_with(|_| {}).await;
    let good = client_of(&broker).await;
    let too_new = Frame::Hello(Hello {
        min_version: 9000,
        max_version: 9001,
        features: 0,
        agent: String::new(),
        auth: AuthMethod::None,
        token: Bytes::new(),
    });
    let huge = FrameHead {
        kind: FrameKind::Hello,
        length: u32::MAX,
    }
    .to_bytes();
    for (first, code) in [
        (Bytes::from_static(&[0xff; 64]), ErrorCode::FrameTooLarge),
        (
            Bytes::from_static(&[0x7f, 0x7f, 0, 0, 0, 0]),
            ErrorCode::UnknownFrame,
        ),
        (Bytes::copy_from_slice(&huge), ErrorCode::FrameTooLarge),
        (encoded(&open_publish(7)), ErrorCode::ProtocolViolation),
        (encoded(&too_new), ErrorCode::UnsupportedVersion),
    ] {
        let (_endpoint, connection) = connect(&broker).await;
        let (mut send, _recv) = within(connection.open_bi()).await.unwrap();
        within(send.write_all(&first)).await.unwrap();
        closed_with(&connection, code).await;
    }
    // Cut inside the frame.
    let (_endpoint, connection) = connect(&broker).await;
    let (mut send, _recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&hello())[..9])).await.unwrap();
    send.finish().unwrap();
    closed_with(&connection, ErrorCode::ProtocolViolation).await;
    serves(&good, 1).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_begins_with_nonsense_closes_the_connection() {
    let broker = broker_with(|_| {}).await;
    let good = client_of(&broker).await;
    for first in [
        hello(),
        Frame::Acks(felix_wire::Acks::take_from(&mut Vec::new())),
        Frame::Publish(Bytes::from_static(b"x")),
    ] {
        let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
        let (mut send, _recv) = within(connection.open_bi()).await.unwrap();
        within(send.write_all(&encoded(&first))).await.unwrap();
        closed_with(&connection, ErrorCode::ProtocolViolation).await;
    }
    serves(&good, 2).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_batches_are_refused_one_by_one_and_good_ones_between_them_are_stored() {
    let broker = broker_with(|spec| {
        spec.ring_bytes = 1 << 20;
        spec.slow_subscriber.window_bytes = 1 << 20;
    })
    .await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&open_publish(7)))).await.unwrap();
    let Frame::PublishOpened(opened) = read_frame(&mut recv).await else {
        panic!("not opened")
    };

    let mut damaged = batch(7, 0, b"damaged");
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    let mut too_large = BytesMut::new();
    too_large.extend_from_slice(
        &FrameHead {
            kind: FrameKind::Publish,
            length: opened.max_batch_bytes + 1,
        }
        .to_bytes(),
    );
    too_large.resize(too_large.len() + opened.max_batch_bytes as usize + 1, 0);
    let optional = Frame::Optional {
        kind: 0x9999,
        body: Bytes::from_static(b"to be skipped"),
    };
    let frames = [
        (batch(7, 0, b"first"), Ok(0)),
        (damaged, Err(ErrorCode::InvalidBatch)),
        (batch(8, 1, b"of another producer"), Err(ErrorCode::InvalidBatch)),
        (
            BytesMut::from(&encoded(&Frame::Publish(Bytes::from_static(b"no batch")))[..]),
            Err(ErrorCode::InvalidBatch),
        ),
        (too_large, Err(ErrorCode::BatchTooLarge)),
        (batch(7, 5, b"too early"), Err(ErrorCode::SequenceGap)),
        (batch(7, 0, b"first"), Ok(0)),
        (batch(7, 1, b"second"), Ok(1)),
    ];
    let mut answers = Vec::new();
    for (bytes, _) in &frames {
        within(send.write_all(&encoded(&optional))).await.unwrap();
        within(send.write_all(bytes)).await.unwrap();
    }
    while answers.len() < frames.len() {
        let Frame::Acks(acks) = read_frame(&mut recv).await else {
            panic!("no acks")
        };
        answers.extend(acks.into_entries());
    }
    for (answer, (_, expected)) in answers.iter().zip(&frames) {
        let answer = answer
            .as_ref()
            .map(|ack| ack.base_offset.0)
            .map_err(|refusal| refusal.code);
        assert_eq!(answer, *expected);
    }
    let text = broker.metrics_text();
    assert_eq!(
        metric(&text, "felix_publish_requests_total{result=\"InvalidBatch\"}"),
        Some(3)
    );
    assert_eq!(
        metric(&text, "felix_memory_used_bytes{share=\"in_flight\"}"),
        Some(0)
    );
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_breaks_off_gives_its_memory_back() {
    let broker = broker_with(|_| {}).await;
    let good = client_of(&broker).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&open_publish(7)))).await.unwrap();
    read_frame(&mut recv).await;
    let head = FrameHead {
        kind: FrameKind::Publish,
        length: 1 << 20,
    };
    within(send.write_all(&head.to_bytes())).await.unwrap();
    within(send.write_all(&[0; 1000])).await.unwrap();
    let used = "felix_memory_used_bytes{share=\"in_flight\"}";
    within(async {
        while metric(&broker.metrics_text(), used) != Some(1 << 20) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    serves(&good, 3).await;
    connection.close(0u32.into(), b"gone");
    within(async {
        while metric(&broker.metrics_text(), used) != Some(0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_shard_and_a_start_beyond_the_end_are_refused_on_their_stream() {
    let broker = broker_with(|_| {}).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let subscribe = |shard, start| {
        Frame::Subscribe(Subscribe {
            stream: StreamName::new(STREAM).unwrap(),
            shard: ShardId(shard),
            start,
            incarnation: Incarnation(0),
            policy: None,
            window: 0,
            credit: 0,
        })
    };
    for (frame, code) in [
        (subscribe(5, Start::Latest), ErrorCode::UnknownShard),
        (
            subscribe(0, Start::Offset(felix_wire::Offset(1))),
            ErrorCode::StartBeyondEnd,
        ),
    ] {
        let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
        within(send.write_all(&encoded(&frame))).await.unwrap();
        let Frame::Error(error) = read_frame(&mut recv).await else {
            panic!("taken")
        };
        assert_eq!(error.code, code);
    }
    // The connection is as good as before.
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&subscribe(0, Start::Latest))))
        .await
        .unwrap();
    assert!(matches!(read_frame(&mut recv).await, Frame::Subscribed(_)));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_bounds_what_is_sent_and_more_credit_resumes() {
    let broker = broker_with(|_| {}).await;
    let good = client_of(&broker).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    let subscribe = Frame::Subscribe(Subscribe {
        stream: StreamName::new(STREAM).unwrap(),
        shard: ShardId(0),
        start: Start::Latest,
        incarnation: Incarnation(0),
        policy: None,
        window: 0,
        credit: 1,
    });
    within(send.write_all(&encoded(&subscribe))).await.unwrap();
    read_frame(&mut recv).await;
    publish(&good, 0..1, 100).await;
    publish(&good, 1..2, 100).await;
    // One byte of credit lets one batch through.
    assert!(matches!(read_frame(&mut recv).await, Frame::Deliver(_)));
    assert_eq!(
        metric(&broker.metrics_text(), "felix_subscribe_records_total"),
        Some(1)
    );
    within(send.write_all(&encoded(&Frame::Credit(felix_wire::Credit { limit: 1 << 20 }))))
        .await
        .unwrap();
    assert!(matches!(read_frame(&mut recv).await, Frame::Deliver(_)));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_the_wrong_ca_is_told_so_at_once() {
    let broker = broker_with(|_| {}).await;
    let other = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let builder = Client::builder(&broker.addr().to_string()).ca_pem(other.cert.pem());
    let error = within(builder.server_name("localhost").unwrap().connect())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), felix_client::ErrorKind::DoNotRetry, "{error}");
    broker.shutdown().await;
}
