//! What the tests of a whole broker share: an embedded broker with one stream, a client of it, a metric's value.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test uses a part, and fails by panicking"
)]

pub(crate) mod http;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod wire;

use std::{future::Future, time::Duration};

use felix_broker::{EmbeddedBroker, EmbeddedConfig, StreamSpec, embedded, settings::Settings};
use felix_client::{Client, Delivery, Gap, Record, Subscription};
use felix_path::Path;

/// Longest wait for anything that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The stream that the tests use.
pub(crate) const STREAM: &str = "orders";

/// A broker with [`STREAM`], whose spec differs from the default by `change`.
pub(crate) async fn broker_with(change: impl FnOnce(&mut StreamSpec)) -> EmbeddedBroker {
    broker_of(|_| {}, change).await
}

/// A broker whose settings differ from the default by `set`, with [`STREAM`], whose spec does by `change`.
pub(crate) async fn broker_of(
    set: impl FnOnce(&mut Settings),
    change: impl FnOnce(&mut StreamSpec),
) -> EmbeddedBroker {
    let mut config = EmbeddedConfig::default();
    set(&mut config.settings);
    let broker = embedded(config).await.unwrap();
    let mut spec = StreamSpec::default();
    change(&mut spec);
    broker.create_stream(STREAM, spec).await.unwrap();
    broker
}

/// A broker with so many lanes and with [`STREAM`].
pub(crate) async fn broker_with_lanes(lanes: u8, change: impl FnOnce(&mut Settings)) -> EmbeddedBroker {
    let mut config = EmbeddedConfig::default();
    config.settings.lanes = Some(u32::from(lanes));
    change(&mut config.settings);
    let broker = embedded(config).await.unwrap();
    broker.create_stream(STREAM, StreamSpec::default()).await.unwrap();
    broker
}

/// A metric's value for each lane.
pub(crate) fn by_lane(text: &str, name: &str) -> Vec<u64> {
    let of = |lane| metric(text, &format!("{name}{{lane=\"{lane}\"}}"));
    (0..).map_while(of).collect()
}

/// A connected client.
pub(crate) async fn client_of(broker: &EmbeddedBroker) -> Client {
    let builder = Client::builder(&broker.addr().to_string()).ca_pem(broker.ca_pem());
    within(builder.server_name("localhost").unwrap().connect())
        .await
        .unwrap()
}

/// A connected client of a broker that it reaches by a path.
pub(crate) async fn client_through(path: &Path, broker: &EmbeddedBroker) -> Client {
    let builder = Client::builder(&path.address().to_string()).ca_pem(broker.ca_pem());
    within(builder.server_name("localhost").unwrap().connect())
        .await
        .unwrap()
}

/// Waits for something that is expected to happen.
pub(crate) async fn within<T>(expected: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, expected).await.unwrap()
}

/// Publishes records of `bytes` bytes with the numbers of a range, one ack each, and waits for all acks.
pub(crate) async fn publish(client: &Client, numbers: std::ops::Range<u64>, bytes: usize) {
    let publisher = within(client.publisher(STREAM).open()).await.unwrap();
    let mut acks = Vec::new();
    for number in numbers {
        let ack = within(publisher.send(Record::new(numbered(number, bytes))))
            .await
            .unwrap();
        acks.push(ack);
    }
    for ack in acks {
        within(ack).await.unwrap();
    }
    within(publisher.close()).await.unwrap();
}

/// A value of `bytes` bytes that begins with a number.
pub(crate) fn numbered(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![b'.'; bytes.max(8)];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// The number of a value.
pub(crate) fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// What a subscription gives next.
pub(crate) async fn next(subscription: &mut Subscription) -> Delivery {
    within(subscription.next()).await.unwrap().unwrap()
}

/// The number of the next record; a gap is a failure.
pub(crate) async fn next_number(subscription: &mut Subscription) -> u64 {
    match next(subscription).await {
        Delivery::Record(record) => number_of(&record.value),
        Delivery::Gap(gap) => panic!("a gap where a record is expected: {gap:?}"),
    }
}

/// Numbers of records in a row, and the gap that ends the row, if any comes before `last` does.
pub(crate) async fn read_until(subscription: &mut Subscription, last: u64) -> (Vec<u64>, Option<Gap>) {
    let mut numbers = Vec::new();
    while numbers.last() != Some(&last) {
        match next(subscription).await {
            Delivery::Record(record) => numbers.push(number_of(&record.value)),
            Delivery::Gap(gap) => return (numbers, Some(gap)),
        }
    }
    (numbers, None)
}

/// Waits until a series has a value that is `wanted`.
pub(crate) async fn until_metric(broker: &EmbeddedBroker, series: &str, wanted: impl Fn(u64) -> bool) {
    within(async {
        while !metric(&broker.metrics_text(), series).is_some_and(&wanted) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The value of a series, or `None` if there is no such series.
pub(crate) fn metric(text: &str, series: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse::<f64>().unwrap() as u64)
}
