//! Between clients and broker lies a path that loses datagrams, lets others overtake them, or doubles them: what is published is
//! delivered once, in order and unchanged all the same, and every publish is acknowledged.

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

mod support;

use felix_broker::EmbeddedBroker;
use felix_client::{Delivery, Record};
use felix_path::{Counts, Faults, Path};
use support::{STREAM, broker_with_lanes, client_through, next, numbered, within};

/// How often the fault comes, in percent.
const RATES: [f64; 3] = [0.1, 1.0, 5.0];
const RECORD_BYTES: usize = 1000;
/// Records that are published at once.
const ROUND: u64 = 1000;
/// Faults that a path must have had before it is believed.
const FAULTS: u64 = 5;

/// A value whose bytes all hang on its number.
fn value(number: u64) -> Vec<u8> {
    let mut value = numbered(number, RECORD_BYTES);
    for (place, byte) in value[8..].iter_mut().enumerate() {
        *byte = number.wrapping_mul(31).wrapping_add(place as u64) as u8;
    }
    value
}

/// Publishes and subscribes through paths with these faults until enough of them have come.
async fn all_is_delivered(broker: &EmbeddedBroker, faults: Faults, seed: u64, wanted: fn(Counts) -> u64) {
    let path = |seed| Path::before(broker.addr(), faults, seed).unwrap();
    let paths = [path(seed), path(seed + 1000)];
    let publishing = client_through(&paths[0], broker).await;
    let subscribing = client_through(&paths[1], broker).await;
    let mut subscription = within(subscribing.subscribe(STREAM).open()).await.unwrap();
    let publisher = within(publishing.publisher(STREAM).open()).await.unwrap();
    let mut next_number = 0;
    while paths.iter().any(|path| wanted(path.counts()) < FAULTS) {
        let numbers = next_number..next_number + ROUND;
        next_number = numbers.end;
        let publisher = publisher.clone();
        let sending = numbers.clone();
        let publishing = tokio::spawn(async move {
            let mut acks = Vec::new();
            for number in sending {
                acks.push(within(publisher.send(Record::new(value(number)))).await.unwrap());
            }
            let mut offsets = Vec::new();
            for ack in acks {
                offsets.push(within(ack).await.unwrap().offset);
            }
            // Stored once each, in the order in which they were sent.
            assert!(offsets.windows(2).all(|pair| pair[1] == pair[0] + 1));
        });
        for number in numbers {
            let Delivery::Record(record) = next(&mut subscription).await else {
                unreachable!("nothing may be lost before record {number}");
            };
            assert!(record.value == value(number), "record {number} is another");
        }
        within(publishing).await.unwrap();
    }
    within(publisher.close()).await.unwrap();
}

async fn at_every_rate(faults: fn(f64) -> Faults, wanted: fn(Counts) -> u64) {
    let broker = broker_with_lanes(2, |_| {}).await;
    for (seed, percent) in (1..).zip(RATES) {
        all_is_delivered(&broker, faults(percent / 100.0), seed, wanted).await;
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_are_lost() {
    let lost = |lost| Faults { lost, ..Faults::NONE };
    at_every_rate(lost, |counts| counts.lost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_overtake_others() {
    let late = |late| Faults { late, ..Faults::NONE };
    at_every_rate(late, |counts| counts.late).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_come_twice() {
    let twice = |twice| Faults {
        twice,
        ..Faults::NONE
    };
    at_every_rate(twice, |counts| counts.twice).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_it_at_once() {
    let broker = broker_with_lanes(2, |_| {}).await;
    let fewest = |counts: Counts| counts.lost.min(counts.late).min(counts.twice);
    all_is_delivered(&broker, Faults::of_each(5.0), 9, fewest).await;
    broker.shutdown().await;
}
