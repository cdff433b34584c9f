//! A broker that is killed or told to stop comes back as itself, and its clients find out at once.

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

mod support;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use felix_client::{Delivery, ErrorKind, GapReason, Record};
use hyper::Method;
use quinn::ConnectionError;
use serde_json::json;
use support::{
    STREAM,
    http::Api,
    next, next_number, number_of, numbered,
    process::{Process, start, start_at, start_with},
    publish,
    raw::RawClient,
    within,
};

fn api(process: &Process, directory: &Path) -> Api {
    let token = fs::read_to_string(directory.join("admin/token")).unwrap();
    Api {
        address: process.admin,
        ca_pem: process.ca_pem(),
        token: token.trim().to_owned(),
    }
}

async fn create_stream(api: &Api) {
    let (status, answer) = api
        .call(
            Method::PUT,
            &format!("/api/v1/streams/{STREAM}"),
            Some(json!({"owner": "test"})),
        )
        .await;
    assert_eq!(status, 201, "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_streams_are_there_and_a_subscription_sees_a_new_life() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(directory.path(), None).await;
    let first_api = api(&first, directory.path());
    create_stream(&first_api).await;
    let (_, identity) = first_api.call(Method::GET, "/api/v1/broker", None).await;
    let client = first.client().await;
    let mut subscription = within(client.subscribe(STREAM).open()).await.unwrap();
    publish(&client, 0..3, 100).await;
    for expected in 0..3 {
        assert_eq!(next_number(&mut subscription).await, expected);
    }
    let addresses = first.addresses();
    first.kill().await;

    let second = start_at(directory.path(), addresses).await;
    let second_api = api(&second, directory.path());
    let (_, again) = second_api.call(Method::GET, "/api/v1/broker", None).await;
    assert_eq!(again["clusterId"], identity["clusterId"]);
    assert_eq!(again["brokerId"], identity["brokerId"]);
    let Delivery::Gap(gap) = next(&mut subscription).await else {
        panic!("the new life is not told")
    };
    assert_eq!(
        (gap.reason, gap.from, gap.to),
        (GapReason::FormerIncarnation, 3, None)
    );
    publish(&client, 10..11, 100).await;
    let Delivery::Record(record) = next(&mut subscription).await else {
        panic!("a second gap")
    };
    assert_eq!((record.offset, number_of(&record.value)), (0, 10));
    second.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_clients_of_every_lane_are_told_at_once() {
    const LANES: u8 = 4;
    let directory = tempfile::tempdir().unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let first = start_with(directory.path(), [any; 3], &["--lanes", "4"]).await;
    create_stream(&api(&first, directory.path())).await;
    let (mut raw, mut subscriptions) = (Vec::new(), Vec::new());
    for lane in 0..LANES {
        let client = RawClient::connect(first.quic, &first.ca_pem(), lane)
            .await
            .unwrap();
        client.greet().await;
        raw.push(client);
        // One after the other these ask for one lane each.
        let client = first.client().await;
        subscriptions.push(within(client.subscribe(STREAM).open()).await.unwrap());
    }
    let addresses = first.addresses();
    first.kill().await;

    // A process with other lanes knows the connections as well.
    let second = start_with(directory.path(), addresses, &["--lanes", "3"]).await;
    for client in raw {
        // Whatever it sends is answered; a packet that was still to be sent may have been already.
        if let Ok((mut send, _recv)) = client.connection.open_bi().await {
            send.write_all(&[0; 1000]).await.ok();
        }
        // A stateless reset, not a silence that has lasted too long.
        let error = within(client.connection.closed()).await;
        assert!(matches!(error, ConnectionError::Reset), "{error}");
    }
    for subscription in &mut subscriptions {
        let Delivery::Gap(gap) = next(subscription).await else {
            panic!("the new life is not told")
        };
        assert_eq!(gap.reason, GapReason::FormerIncarnation);
    }
    publish(&second.client().await, 0..1, 100).await;
    for subscription in &mut subscriptions {
        assert_eq!(next_number(subscription).await, 0);
    }
    second.kill().await;
}

/// How long a slot of the file of peers is, in bytes.
const SLOT_BYTES: u64 = 64;

fn peers_file(directory: &Path) -> PathBuf {
    directory.join("peers")
}

/// Waits until a broker has written down so many clients.
async fn until_remembered(directory: &Path, clients: u64) {
    let path = peers_file(directory);
    within(async {
        while fs::metadata(&path).map_or(0, |file| file.len()) < clients * SLOT_BYTES {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_clients_that_say_nothing_are_told_on_every_lane() {
    let directory = tempfile::tempdir().unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let first = start_with(directory.path(), [any; 3], &["--lanes", "2"]).await;
    create_stream(&api(&first, directory.path())).await;
    let mut silent = Vec::new();
    for wish in 0..4 {
        // These never ping, so nothing but an unasked reset ends them; a silence that has lasted too long is another error.
        let client = RawClient::connect(first.quic, &first.ca_pem(), wish)
            .await
            .unwrap();
        client.greet().await;
        silent.push(client);
    }
    let client = first.client().await;
    let mut subscription = within(client.subscribe(STREAM).open()).await.unwrap();
    until_remembered(directory.path(), 5).await;
    let addresses = first.addresses();
    first.kill().await;

    let second = start_with(directory.path(), addresses, &["--lanes", "3"]).await;
    for client in silent {
        let error = within(client.connection.closed()).await;
        assert!(matches!(error, ConnectionError::Reset), "{error}");
    }
    let Delivery::Gap(gap) = next(&mut subscription).await else {
        panic!("the new life is not told")
    };
    assert_eq!(gap.reason, GapReason::FormerIncarnation);
    publish(&second.client().await, 0..1, 100).await;
    assert_eq!(next_number(&mut subscription).await, 0);
    // It remembers its own clients from then on, and nobody once it has stopped in order.
    until_remembered(directory.path(), 1).await;
    assert!(second.terminate().await.success());
    assert_eq!(fs::metadata(peers_file(directory.path())).unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_peers_that_is_damaged_or_cannot_be_written_stops_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let path = peers_file(directory.path());
    fs::write(&path, "damaged").unwrap();
    let process = start(directory.path(), None).await;
    create_stream(&api(&process, directory.path())).await;
    publish(&process.client().await, 0..1, 100).await;
    until_remembered(directory.path(), 1).await;
    process.kill().await;
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let process = start(directory.path(), None).await;
    publish(&process.client().await, 0..1, 100).await;
    assert!(process.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_delivers_what_is_stored_and_ends_with_success() {
    let directory = tempfile::tempdir().unwrap();
    let process = start(directory.path(), None).await;
    create_stream(&api(&process, directory.path())).await;
    let client = process.client().await;
    let mut subscription = within(client.subscribe(STREAM).open()).await.unwrap();
    publish(&client, 0..1000, 1000).await;
    let reading = tokio::spawn(async move {
        for expected in 0..1000 {
            assert_eq!(next_number(&mut subscription).await, expected);
        }
    });
    let status = process.terminate().await;
    assert!(status.success(), "{status}");
    within(reading).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_goes_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(directory.path(), None).await;
    create_stream(&api(&first, directory.path())).await;
    let client = first.client().await;
    let publisher = within(client.publisher(STREAM).open()).await.unwrap();
    within(within(publisher.send(Record::new("before"))).await.unwrap())
        .await
        .unwrap();
    let addresses = first.addresses();
    assert!(first.terminate().await.success());
    let second = start_at(directory.path(), addresses).await;
    within(async {
        loop {
            // A record that is under way when the broker goes may be unknown, never silently lost.
            let outcome = match publisher.send(Record::new("after")).await {
                Ok(ack) => ack.await,
                Err(error) => Err(error),
            };
            match outcome {
                Ok(_) => return,
                Err(error) => assert_ne!(error.kind(), ErrorKind::DoNotRetry, "{error}"),
            }
        }
    })
    .await;
    assert!(second.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_to_a_busy_publisher_before_sigterm_is_delivered() {
    let directory = tempfile::tempdir().unwrap();
    let process = start(directory.path(), None).await;
    create_stream(&api(&process, directory.path())).await;
    let reading = process.client().await;
    let mut subscription = within(reading.subscribe(STREAM).open()).await.unwrap();
    let client = process.client().await;
    let publisher = within(client.publisher(STREAM).open()).await.unwrap();
    let (busy, mut is_busy) = tokio::sync::watch::channel(0);
    let publishing = tokio::spawn(async move {
        for number in 0.. {
            let Ok(ack) = publisher.send(Record::new(numbered(number, 1000))).await else {
                return number;
            };
            if ack.await.is_err() {
                return number;
            }
            busy.send_replace(number);
        }
        unreachable!("the numbers do not end")
    });
    within(is_busy.wait_for(|number| *number >= 100)).await.unwrap();
    assert!(process.terminate().await.success());
    client.close().await;
    let acknowledged = within(publishing).await.unwrap();
    for expected in 0..acknowledged {
        assert_eq!(next_number(&mut subscription).await, expected);
    }
}
