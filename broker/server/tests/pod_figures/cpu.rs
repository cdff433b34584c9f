//! The broker's processor time for a delivered record, with the same batches to one stream and to many.

use felix_client::{Client, Delivery, Record, Subscription};
use tokio::task::JoinSet;

use crate::{
    LONG_PAIRS,
    idle::{name, with_streams},
    pairs,
    support::within,
    table::{Bound, print},
};

const MANY: usize = 10_000;
const BATCHES: usize = 40_000;
/// Records of a batch.
const RECORDS: usize = 16;
/// Connections, of which each has the publishers and the subscriptions of a part of the streams.
const CLIENTS: usize = 8;

pub(crate) async fn figures() {
    let ratios = pairs(LONG_PAIRS, |many| of_a_record(if many { MANY } else { 1 })).await;
    print(
        "streams: CPU for a delivered record with 10000 streams, against 1",
        &ratios,
        Bound::Below(1.2),
    );
}

/// Microseconds.
async fn of_a_record(streams: usize) -> f64 {
    let pod = with_streams(streams, 4 << 30, &["--memory-budget", "3GiB"]).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(pod.client(64 << 20).await);
    }
    let client = |number: usize| -> &Client { &clients[number % CLIENTS] };
    let (mut publishers, mut readers) = (Vec::new(), JoinSet::new());
    for number in 0..streams {
        let stream = name(number);
        let subscription = within(client(number).subscribe(&stream).open()).await.unwrap();
        let publisher = client(number + CLIENTS / 2).publisher(&stream).open();
        publishers.push(within(publisher).await.unwrap());
        readers.spawn(read(subscription, BATCHES / streams * RECORDS));
    }
    let cpu = pod.cpu_ms();
    for _ in 0..BATCHES / streams {
        for publisher in &publishers {
            let mut batch = publisher.batch();
            for _ in 0..RECORDS {
                batch.push(&Record::new(&[7; 256])).unwrap();
            }
            drop(within(publisher.send_batch(batch)).await.unwrap());
        }
    }
    readers.join_all().await;
    (pod.cpu_ms() - cpu) as f64 * 1000.0 / (BATCHES * RECORDS) as f64
}

async fn read(mut subscription: Subscription, records: usize) {
    for _ in 0..records {
        let next = within(subscription.next()).await.unwrap().unwrap();
        assert!(matches!(next, Delivery::Record(_)), "a gap");
    }
}
