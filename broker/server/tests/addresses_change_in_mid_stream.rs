//! Routers on the way give clients other addresses while records flow: nothing is lost, order is kept, nobody connects anew.

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

mod support;

use felix_broker::EmbeddedBroker;
use felix_client::Record;
use felix_path::{Faults, Path};
use support::{STREAM, broker_with_lanes, by_lane, client_through, next_number, numbered, within};

const RECORDS: u64 = 20_000;
const RECORD_BYTES: usize = 1000;
/// Records from one change of addresses to the next.
const STEP: u64 = 2000;

/// The lanes that have had a connection.
fn lanes_used(broker: &EmbeddedBroker) -> Vec<bool> {
    let bytes = by_lane(&broker.metrics_text(), "felix_lane_received_bytes_total");
    bytes.into_iter().map(|bytes| bytes > 0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_no_connection_is_made_anew() {
    let broker = broker_with_lanes(4, |_| {}).await;
    let path = |seed| Path::before(broker.addr(), Faults::NONE, seed).unwrap();
    let paths = [path(1), path(2)];
    let publishing = client_through(&paths[0], &broker).await;
    let subscribing = client_through(&paths[1], &broker).await;
    let used = lanes_used(&broker);
    assert_eq!(used.iter().filter(|used| **used).count(), 2);
    let mut subscription = within(subscribing.subscribe(STREAM).open()).await.unwrap();
    let publisher = within(publishing.publisher(STREAM).open()).await.unwrap();
    let writing = tokio::spawn(async move {
        let mut acks = Vec::new();
        for number in 0..RECORDS {
            let record = Record::new(numbered(number, RECORD_BYTES));
            acks.push(within(publisher.send(record)).await.unwrap());
        }
        for ack in acks {
            within(ack).await.unwrap();
        }
    });
    for number in 0..RECORDS {
        assert_eq!(next_number(&mut subscription).await, number);
        if number % STEP == STEP / 2 {
            // In turn, so that also the loss on one side alone is seen.
            paths[usize::from((number / STEP).is_multiple_of(2))]
                .rebind()
                .unwrap();
        }
    }
    within(writing).await.unwrap();
    // The next connection of this process would ask for another lane.
    assert_eq!(lanes_used(&broker), used);
    broker.shutdown().await;
}
