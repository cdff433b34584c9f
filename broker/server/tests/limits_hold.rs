//! Each limit at its edge: what fits is taken, what is one more is refused by its code and counted, and there is room again
//! when something leaves.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation is how a test fails"
)]

mod support;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use felix_broker::{
    EmbeddedBroker, StreamSpec,
    settings::{Bytes, Settings},
};
use felix_client::{ErrorCode, PublishError, Record};
use felix_wire::{FRAME_HEAD_LEN, Frame, MAX_HEADER_NAME_BYTES, MAX_RECORD_HEADERS, MAX_STREAM_NAME_BYTES};
use quinn::{ConnectionError, Endpoint, ReadExactError, TransportConfig};
use support::{
    broker_of, broker_with, broker_with_lanes, by_lane, client_of, metric, publish, until_metric,
    wire::{
        self, Target, answers, batch, batch_with_headers, encoded, greeted, publisher, publisher_of,
        read_frame, subscribe,
    },
    within,
};
use tokio::net::UdpSocket;

/// The smallest budget: 132 connections, 320 streams beyond two of each connection, 64 handshakes.
fn small(settings: &mut Settings) {
    settings.memory_budget = Some(Bytes(32 << 20));
}

const OWN_STREAMS: usize = 2;
const SHARED_STREAMS: usize = 320;

fn refusals(limit: &str) -> String {
    format!("felix_limit_refusals_total{{limit=\"{limit}\"}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections() {
    let broker = broker_of(|settings| settings.max_connections = 2, |_| {}).await;
    let first = greeted(&broker).await;
    let _second = greeted(&broker).await;
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let config = wire::config(&Target::ca_pem(&broker));
    let third = endpoint.connect_with(config, broker.addr(), "localhost").unwrap();
    let refused = within(third).await.unwrap_err();
    assert!(
        matches!(refused, ConnectionError::ConnectionClosed(_)),
        "{refused}"
    );
    assert_eq!(metric(&broker.metrics_text(), &refusals("connections")), Some(1));
    first.1.close(0u32.into(), b"");
    until_metric(&broker, "felix_connections", |present| present < 2).await;
    greeted(&broker).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_streams() {
    let broker = broker_of(small, |_| {}).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let mut streams = Vec::new();
    for _ in 0..OWN_STREAMS + SHARED_STREAMS {
        let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
        within(send.write_all(&encoded(&subscribe(None, 1))))
            .await
            .unwrap();
        assert!(matches!(read_frame(&mut recv).await, Frame::Subscribed(_)));
        streams.push((send, recv));
    }
    let used = "felix_memory_used_bytes{share=\"connections\"}";
    let budget = "felix_memory_budget_bytes{share=\"connections\"}";
    let text = broker.metrics_text();
    assert!(metric(&text, used).unwrap() <= metric(&text, budget).unwrap());
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&subscribe(None, 1)))).await.ok();
    let refused = within(recv.read_exact(&mut [0; 6])).await.unwrap_err();
    let ReadExactError::ReadError(quinn::ReadError::Reset(code)) = refused else {
        panic!("{refused}")
    };
    assert_eq!(code.into_inner(), u64::from(ErrorCode::Overloaded.to_wire()));
    assert_eq!(metric(&broker.metrics_text(), &refusals("streams")), Some(1));
    // Who comes when one connection has taken all can still publish and subscribe.
    let newcomer = client_of(&broker).await;
    let _reading = within(newcomer.subscribe(support::STREAM).open()).await.unwrap();
    publish(&newcomer, 0..1, 100).await;
    // The control stream is not among them, and there is room again when one ends.
    let held = metric(&broker.metrics_text(), "felix_subscriptions").unwrap();
    streams.pop();
    until_metric(&broker, "felix_subscriptions", |present| present < held).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&subscribe(None, 1))))
        .await
        .unwrap();
    assert!(matches!(read_frame(&mut recv).await, Frame::Subscribed(_)));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_and_subscriptions_of_a_connection() {
    /// The control stream is one of them.
    const STREAMS: u128 = 4096;
    let broker = broker_of(|settings| settings.memory_budget = Some(Bytes(1 << 30)), |_| {}).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let mut open = Vec::new();
    for number in 1..STREAMS {
        if number % 2 == 0 {
            let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
            within(send.write_all(&encoded(&subscribe(None, 1))))
                .await
                .unwrap();
            assert!(matches!(read_frame(&mut recv).await, Frame::Subscribed(_)));
            open.push((send, recv));
        } else {
            open.push(publisher_of(&connection, number).await);
        }
    }
    // Twice as many were allowed whenever half were in use: had they been once more, it would have arrived long ago.
    let mut further = pin!(connection.open_bi());
    let waits = poll_fn(|context| Poll::Ready(further.as_mut().poll(context).is_pending())).await;
    assert!(waits, "there are as many as there may be");
    // QUIC tells a client of new places once an eighth of them are free.
    open.truncate(open.len() - STREAMS as usize / 7);
    let (mut send, mut recv) = within(further).await.unwrap();
    within(send.write_all(&encoded(&wire::open_publish(STREAMS))))
        .await
        .unwrap();
    assert!(matches!(read_frame(&mut recv).await, Frame::PublishOpened(_)));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers() {
    const PRODUCERS: u64 = 1024;
    let broker = broker_with(|_| {}).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    // One more than the shard remembers.
    for producer in 0..=PRODUCERS {
        let (mut send, mut recv) = publisher_of(&connection, producer.into()).await;
        within(send.write_all(&batch(producer.into(), 0, b"first")))
            .await
            .unwrap();
        assert_eq!(answers(&mut recv, 1).await, [Ok(producer)]);
    }
    for (producer, answer) in [
        (0, Err(ErrorCode::UnknownProducer)),
        (1, Ok(PRODUCERS + 1)),
        (PRODUCERS, Ok(PRODUCERS + 2)),
    ] {
        let (mut send, mut recv) = publisher_of(&connection, producer.into()).await;
        within(send.write_all(&batch(producer.into(), 1, b"second")))
            .await
            .unwrap();
        assert_eq!(answers(&mut recv, 1).await, [answer]);
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_and_their_names() {
    let broker = broker_with(|_| {}).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let (mut send, mut recv) = publisher(&connection).await;
    let longest = "n".repeat(MAX_HEADER_NAME_BYTES);
    let too_long = "n".repeat(MAX_HEADER_NAME_BYTES + 1);
    for (sequence, names, answer) in [
        (
            0,
            &["h"; MAX_RECORD_HEADERS + 1][..],
            Err(ErrorCode::InvalidBatch),
        ),
        (0, &["h"; MAX_RECORD_HEADERS][..], Ok(0)),
        (1, &[too_long.as_str()][..], Err(ErrorCode::InvalidBatch)),
        (1, &[longest.as_str()][..], Ok(1)),
    ] {
        let batch = batch_with_headers(7, sequence, names);
        within(send.write_all(&batch)).await.unwrap();
        assert_eq!(answers(&mut recv, 1).await, [answer], "{} names", names.len());
    }
    // Our own client does not even send them.
    let client = client_of(&broker).await;
    let own = within(client.publisher(support::STREAM).open()).await.unwrap();
    let of = |name, count| {
        let record = Record::new("v");
        (0..count).fold(record, |record, _| record.header(name, "v"))
    };
    for record in [of("h", MAX_RECORD_HEADERS + 1), of(&too_long, 1)] {
        let refused = within(own.send(record)).await.unwrap_err();
        assert!(matches!(refused, PublishError::Record { .. }), "{refused}");
    }
    let sent = within(own.send(of(&longest, MAX_RECORD_HEADERS))).await.unwrap();
    assert_eq!(within(sent).await.unwrap().offset, 2);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_streams() {
    let broker = broker_with(|_| {}).await;
    let client = client_of(&broker).await;
    let longest = "n".repeat(MAX_STREAM_NAME_BYTES);
    let too_long = "n".repeat(MAX_STREAM_NAME_BYTES + 1);
    broker
        .create_stream(&longest, StreamSpec::default())
        .await
        .unwrap();
    assert!(
        broker
            .create_stream(&too_long, StreamSpec::default())
            .await
            .is_err()
    );
    let publisher = within(client.publisher(&longest).open()).await.unwrap();
    let sent = within(publisher.send(Record::new("fits"))).await.unwrap();
    assert_eq!(within(sent).await.unwrap().offset, 0);
    assert!(within(client.publisher(&too_long).open()).await.is_err());
    assert!(within(client.subscribe(&too_long).open()).await.is_err());
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_under_way_are_counted_over_all_lanes() {
    const LANES: u8 = 4;
    const EIGHTH: u64 = 8;
    let broker = broker_with_lanes(LANES, small).await;
    let bytes = metric(
        &broker.metrics_text(),
        "felix_memory_budget_bytes{share=\"handshakes\"}",
    );
    let each = bytes.unwrap() / (8 * EIGHTH);
    let (hole, pending) = half_open(&broker, 64).await;
    // Each lane by itself would have let an eighth begin. One may look while others let one in.
    let text = broker.metrics_text();
    let used = metric(&text, "felix_memory_used_bytes{share=\"handshakes\"}").unwrap();
    assert!(
        used <= (EIGHTH + u64::from(LANES)) * each,
        "{used} of {each} each"
    );
    assert_eq!(
        by_lane(&text, "felix_lane_received_bytes_total").len(),
        usize::from(LANES)
    );
    publish(&client_of(&broker).await, 0..1, 100).await;
    drop((hole, pending));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_under_way() {
    let broker = broker_of(small, |_| {}).await;
    let (hole, pending) = half_open(&broker, 64).await;
    // Above an eighth of them, clients have to show first that they receive at their address: a good one can.
    assert!(metric(&broker.metrics_text(), &refusals("retry")).unwrap() > 0);
    let good = client_of(&broker).await;
    publish(&good, 0..1, 100).await;
    drop((hole, pending));
    broker.shutdown().await;
}

/// Handshakes whose answers are lost on the way.
async fn half_open(broker: &EmbeddedBroker, count: usize) -> (UdpSocket, Vec<quinn::Connecting>) {
    let hole = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let config = wire::config(&Target::ca_pem(broker));
    let to = hole.local_addr().unwrap();
    let connecting = |_| endpoint.connect_with(config.clone(), to, "localhost").unwrap();
    let pending = (0..count).map(connecting).collect();
    let mut datagram = vec![0; 2048];
    while metric(&broker.metrics_text(), &refusals("retry")) == Some(0) {
        let (length, _) = within(hole.recv_from(&mut datagram)).await.unwrap();
        hole.send_to(&datagram[..length], broker.addr()).await.unwrap();
    }
    (hole, pending)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_size() {
    let broker = broker_of(|settings| settings.max_record_bytes = Bytes(1000), |_| {}).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let (mut send, mut recv) = publisher(&connection).await;
    within(send.write_all(&batch(7, 0, &[1; 1001]))).await.unwrap();
    within(send.write_all(&batch(7, 0, &[1; 1000]))).await.unwrap();
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let Frame::Acks(acks) = read_frame(&mut recv).await else {
            panic!("no acks")
        };
        answers.extend(acks.into_entries());
    }
    let refusal = answers[0].unwrap_err();
    assert_eq!((refusal.code, refusal.detail), (ErrorCode::RecordTooLarge, 1000));
    assert_eq!(answers[1].unwrap().base_offset.0, 0);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_size() {
    let broker = broker_with(|spec| {
        spec.ring_bytes = 64 << 10;
        spec.slow_subscriber.window_bytes = 4 << 10;
    })
    .await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&wire::open_publish(7))))
        .await
        .unwrap();
    let Frame::PublishOpened(opened) = read_frame(&mut recv).await else {
        panic!("not opened")
    };
    let largest = opened.max_batch_bytes as usize;
    let overhead = batch(7, 0, &[1; 60_000]).len() - 60_000;
    let value = FRAME_HEAD_LEN + largest - overhead;
    let fits = batch(7, 0, &vec![1; value]);
    assert_eq!(fits.len(), FRAME_HEAD_LEN + largest);
    within(send.write_all(&batch(7, 0, &vec![1; value + 1])))
        .await
        .unwrap();
    within(send.write_all(&fits)).await.unwrap();
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let Frame::Acks(acks) = read_frame(&mut recv).await else {
            panic!("no acks")
        };
        answers.extend(acks.into_entries());
    }
    let refusal = answers[0].unwrap_err();
    assert_eq!(
        (refusal.code, refusal.detail),
        (ErrorCode::BatchTooLarge, largest as u64)
    );
    assert_eq!(answers[1].unwrap().base_offset.0, 0);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_time() {
    let broker = broker_with(|_| {}).await;
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let mut config = wire::config(&Target::ca_pem(&broker));
    let mut transport = TransportConfig::default();
    // The shorter of both sides' counts, and the broker's own is too long for a test.
    transport.max_idle_timeout(Some(Duration::from_millis(500).try_into().unwrap()));
    config.transport_config(Arc::new(transport));
    let connecting = endpoint.connect_with(config, broker.addr(), "localhost").unwrap();
    let connection = within(connecting).await.unwrap();
    until_metric(&broker, "felix_connections", |present| present == 1).await;
    // It says nothing, not even that it leaves.
    let ended = within(connection.closed()).await;
    assert!(matches!(ended, ConnectionError::TimedOut), "{ended}");
    until_metric(&broker, "felix_connections", |present| present == 0).await;
    broker.shutdown().await;
}
