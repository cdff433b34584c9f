//! Hostile clients beside a good one: half-open handshakes, garbage, frames out of order, a million tiny records whose
//! answers are never read, thousands of streams opened and left.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use felix_client::SlowPolicy;
use felix_wire::Frame;
use quinn::Endpoint;
use serde_json::json;
use tokio::{net::UdpSocket, task::JoinSet};

use crate::{
    pod::Pod,
    support::{
        STREAM, next_number, publish,
        wire::{self, Target, batch, encoded, greeted, publisher, read_frame, subscribe},
        within,
    },
};

const RECORDS: u64 = 5000;
/// How long a hostile client tries what it may not be given.
const PAUSE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_clients_do_not_keep_a_good_one_from_its_records() {
    let pod = Pod::start(&[]).await;
    for name in [STREAM, "good"] {
        let slow = json!({ "windowBytes": 1 << 20, "allowBlock": true });
        pod.create_stream(name, json!({ "ringBytes": 8 << 20, "slowSubscriber": slow }))
            .await;
    }
    let client = pod.client(64 << 20).await;
    let mut reading = within(client.subscribe("good").policy(SlowPolicy::Block).open())
        .await
        .unwrap();
    let publisher = within(client.publisher("good").open()).await.unwrap();
    let good = tokio::spawn(async move {
        for number in 0..RECORDS {
            let record = felix_client::Record::new(crate::support::numbered(number, 1 << 10));
            // Acknowledged by the record that comes back.
            drop(within(publisher.send(record)).await.unwrap());
            assert_eq!(next_number(&mut reading).await, number);
        }
    });
    let _half_open = half_open_handshakes(&pod, 2000).await;
    garbage(pod.broker.quic, 20_000).await;
    out_of_order(&pod).await;
    let _unread = tiny_records(&pod, 1_000_000).await;
    let _left = streams_left(&pod).await;
    good.await.unwrap();
    // And newcomers are served, if need be after they have shown where they are.
    let newcomer = pod.client(1 << 20).await;
    publish(&newcomer, 0..1, 100).await;
    pod.check().await;
}

/// Handshakes whose answers nobody reads: first packets pass through a socket that drops what comes back.
pub(crate) async fn half_open_handshakes(pod: &Pod, count: usize) -> Vec<(Endpoint, quinn::Connecting)> {
    let config = wire::config(&Target::ca_pem(&pod.broker));
    let mut pending = Vec::new();
    for _ in 0..count.div_ceil(100) {
        let hole = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        for _ in 0..100 {
            let connecting = endpoint.connect_with(config.clone(), hole.local_addr().unwrap(), "localhost");
            pending.push((endpoint.clone(), connecting.unwrap()));
        }
        let broker = pod.broker.quic;
        let mut datagram = vec![0; 2048];
        for _ in 0..100 {
            let (length, _) = within(hole.recv_from(&mut datagram)).await.unwrap();
            hole.send_to(&datagram[..length], broker).await.unwrap();
        }
    }
    pending
}

pub(crate) async fn garbage(broker: SocketAddr, datagrams: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut bytes = [0_u8; 1200];
    for number in 0..datagrams {
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = (number * 31 + index * 7) as u8;
        }
        // Half of them look like first packets.
        bytes[0] = if number % 2 == 0 { 0xc0 } else { bytes[0] };
        socket.send_to(&bytes[..1 + number % 1200], broker).await.unwrap();
    }
}

pub(crate) async fn out_of_order(pod: &Pod) {
    for frame in [
        Frame::Publish(Bytes::from_static(b"no batch")),
        Frame::Credit(felix_wire::Credit { limit: 1 }),
        wire::hello(),
    ] {
        let (_endpoint, connection, _control, _answers) = greeted(&pod.broker).await;
        let (mut send, _recv) = within(connection.open_bi()).await.unwrap();
        within(send.write_all(&encoded(&frame))).await.unwrap();
        within(connection.closed()).await;
    }
}

/// Batches of one tiny record each, as fast as they are taken, whose answers stay unread beside a subscription that does
/// not read either.
pub(crate) async fn tiny_records(pod: &Pod, count: u64) -> Box<dyn std::any::Any> {
    let (endpoint, connection, control, answers) = greeted(&pod.broker).await;
    let (mut listen, mut listened) = within(connection.open_bi()).await.unwrap();
    within(listen.write_all(&encoded(&subscribe(None, 0))))
        .await
        .unwrap();
    assert!(matches!(read_frame(&mut listened).await, Frame::Subscribed(_)));
    let (mut send, recv) = publisher(&connection).await;
    let mut sent = 0;
    while sent < count {
        let mut bytes = Vec::with_capacity(64 << 10);
        while bytes.len() < 60 << 10 && sent < count {
            bytes.extend_from_slice(&batch(7, sent, b"tiny"));
            sent += 1;
        }
        // Answers that nobody reads stop the broker from reading on: so many are taken and no more.
        let written = tokio::time::timeout(PAUSE, send.write_all(&bytes)).await;
        if written.is_err() {
            break;
        }
    }
    Box::new((
        endpoint, connection, control, answers, listen, listened, send, recv,
    ))
}

/// Streams that are opened and left, more than the broker has places for: their first frame is a subscription that never has
/// credit again, or never comes.
pub(crate) async fn streams_left(pod: &Pod) -> JoinSet<()> {
    let mut left = JoinSet::new();
    let subscription = encoded(&subscribe(None, 1));
    for first in [
        &subscription[..],
        &subscription,
        &subscription,
        &subscription,
        &[0],
    ] {
        let (endpoint, connection, control, answers) = greeted(&pod.broker).await;
        let mut streams = Vec::new();
        for _ in 0..600 {
            // A connection that breaks the protocol for too long is closed, and one that keeps refused streams gets no more.
            let opened = tokio::time::timeout(PAUSE, connection.open_bi()).await;
            let Ok(Ok((mut send, recv))) = opened else { break };
            within(send.write_all(first)).await.ok();
            streams.push((send, recv));
        }
        left.spawn(async move {
            let _held = (endpoint, control, answers, streams);
            connection.closed().await;
        });
    }
    pod.until_metric("felix_limit_refusals_total{limit=\"streams\"}", |refused| {
        refused > 0
    })
    .await;
    left
}
