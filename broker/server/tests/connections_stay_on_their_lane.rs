//! A connection lands on the lane that it asks for and stays there; limits and the end hold over all lanes together.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation is how a test fails"
)]

mod support;

use std::net::UdpSocket;

use felix_client::{Client, ErrorCode};
use quinn::ConnectionError;
use support::{STREAM, broker_with_lanes, by_lane, client_of, process::start_with, raw::RawClient, within};

const LANES: u8 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lands_where_it_asks_and_stays_when_its_address_changes() {
    let broker = broker_with_lanes(LANES, |_| {}).await;
    let mut clients = Vec::new();
    let mut expected = vec![0; usize::from(LANES)];
    for first in [0, 1, 2, 3, 3, 2, 250, 255] {
        let client = RawClient::connect(broker.addr(), broker.ca_pem(), first)
            .await
            .unwrap();
        client.greet().await;
        clients.push(client);
        expected[usize::from(first % LANES)] += 1;
        assert_eq!(
            by_lane(&broker.metrics_text(), "felix_lane_connections"),
            expected
        );
    }
    for client in &clients {
        // The hash of the new address would lead to any lane, and the others do not know the connection.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.endpoint.rebind(socket).unwrap();
        let (mut send, mut recv) = within(client.connection.open_bi()).await.unwrap();
        within(send.write_all(&[0xff; 64])).await.unwrap();
        // The broker answers what makes no sense, so it has received it.
        assert!(!within(recv.read_to_end(1000)).await.unwrap().is_empty());
    }
    assert_eq!(
        by_lane(&broker.metrics_text(), "felix_lane_connections"),
        expected
    );
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_of_one_process_spread_over_the_lanes() {
    let broker = broker_with_lanes(LANES, |_| {}).await;
    let mut clients = Vec::new();
    // Twice as many as lanes: an attempt that is made again asks for the next lane.
    for _ in 0..2 * LANES {
        clients.push(client_of(&broker).await);
    }
    let connections = by_lane(&broker.metrics_text(), "felix_lane_connections");
    assert!(connections.iter().all(|count| *count > 0), "{connections:?}");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_one_shard_meet_and_those_of_its_neighbour_are_elsewhere() {
    let broker = broker_with_lanes(LANES, |_| {}).await;
    let near = async |shard| {
        let builder = Client::builder(&broker.addr().to_string()).ca_pem(broker.ca_pem());
        let builder = builder.server_name("localhost").unwrap();
        within(builder.near_shard(STREAM, shard).connect()).await.unwrap()
    };
    let lanes_used = || {
        let connections = by_lane(&broker.metrics_text(), "felix_lane_connections");
        connections.into_iter().filter(|count| *count > 0).count()
    };
    let _two = [near(0).await, near(0).await];
    assert_eq!(lanes_used(), 1);
    let _neighbour = near(1).await;
    assert_eq!(lanes_used(), 2);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_connections_holds_over_all_lanes() {
    let broker = broker_with_lanes(LANES, |settings| settings.max_connections = 3).await;
    let mut clients = Vec::new();
    for lane in 0..3 {
        let client = RawClient::connect(broker.addr(), broker.ca_pem(), lane).await;
        clients.push(client.unwrap());
    }
    let refused = RawClient::connect(broker.addr(), broker.ca_pem(), 3).await;
    assert!(
        matches!(refused, Err(ConnectionError::ConnectionClosed(_))),
        "taken"
    );
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_lanes_close_their_connections_when_the_broker_stops() {
    let directory = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let process = start_with(directory.path(), [any; 3], &["--lanes", "4"]).await;
    let mut clients = Vec::new();
    for lane in 0..LANES {
        let client = RawClient::connect(process.quic, &process.ca_pem(), lane)
            .await
            .unwrap();
        client.greet().await;
        clients.push(client);
    }
    assert!(process.terminate().await.success());
    for client in clients {
        let ConnectionError::ApplicationClosed(close) = within(client.connection.closed()).await else {
            panic!("not told that the broker stops")
        };
        assert_eq!(
            u64::from(close.error_code),
            u64::from(ErrorCode::ShuttingDown.to_wire())
        );
    }
}
