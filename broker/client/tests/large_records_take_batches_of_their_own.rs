//! Records that do not fit into one batch together go into several, in their order; one that no batch takes is refused by
//! itself.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use felix_client::{PublishError, PushBatchError, Record};
use support::{Broker, MAX_BATCH_BYTES, MAX_RECORD_BYTES, STREAM};

/// What a batch takes beside the values in it: its header, and of each record the time, the value's length.
const HEADER_BYTES: usize = 140;
const RECORD_BYTES: usize = 5;

const LARGEST: usize = MAX_RECORD_BYTES as usize;

/// Values of this length that differ from one another.
fn value(n: u8, length: usize) -> Vec<u8> {
    let mut value = vec![n; length];
    value[0] = !n;
    value
}

fn record(value: &[u8]) -> Record<'_> {
    // One time for all, so that each record takes the same.
    Record::new(value).timestamp(felix_wire::Nanos(1))
}

#[tokio::test]
async fn sixty_four_of_the_largest_sent_at_once() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let mut acks = Vec::new();
    for n in 0..64 {
        acks.push(publisher.send(record(&value(n, LARGEST))).await.unwrap());
    }
    for (offset, ack) in (0..).zip(acks) {
        assert_eq!(ack.await.unwrap().offset, offset);
    }
    assert_eq!(broker.batch_sizes(0), [1; 64]);
    let stored = broker.stored(0);
    assert!((0..).zip(stored).all(|(n, stored)| stored == value(n, LARGEST)));
}

#[tokio::test]
async fn a_batch_by_hand_goes_on_in_the_next() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let mut batch = publisher.batch();
    let mut acks = Vec::new();
    for n in 0..64 {
        acks.extend(
            publisher
                .fill(&mut batch, &record(&value(n, LARGEST)))
                .await
                .unwrap(),
        );
    }
    acks.push(publisher.send_batch(batch).await.unwrap());
    for (offset, ack) in (0..).step_by(3).zip(acks) {
        assert_eq!(ack.await.unwrap().offset, offset);
    }
    // The broker takes 4 MiB with the header.
    assert_eq!(broker.batch_sizes(0), [[3; 21].as_slice(), &[1]].concat());
    let stored = broker.stored(0);
    assert!((0..).zip(stored).all(|(n, stored)| stored == value(n, LARGEST)));
}

#[tokio::test]
async fn a_batch_is_full_to_the_byte() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let room = MAX_BATCH_BYTES as usize - HEADER_BYTES;
    for (over, expected) in [(0, vec![5]), (1, vec![5, 4, 1])] {
        let mut batch = publisher.batch();
        for n in 0..4 {
            let sent = publisher.fill(&mut batch, &record(&value(n, room / 5))).await;
            assert!(sent.unwrap().is_none());
        }
        let rest = room - 4 * (room / 5 + RECORD_BYTES) - RECORD_BYTES + over;
        let sent = publisher
            .fill(&mut batch, &record(&value(4, rest)))
            .await
            .unwrap();
        assert_eq!(sent.is_some(), over == 1, "one byte more goes into the next");
        publisher.send_batch(batch).await.unwrap().await.unwrap();
        assert_eq!(broker.batch_sizes(0), expected);
    }
}

#[tokio::test]
async fn one_byte_over_the_largest_is_refused_by_itself() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let mut batch = publisher.batch();
    batch.push(&record(b"before")).unwrap();
    let too_large = value(9, LARGEST + 1);
    assert!(matches!(
        batch.push(&record(&too_large)),
        Err(PushBatchError::RecordTooLarge { bytes, limit: LARGEST }) if bytes == LARGEST + 1
    ));
    for refused in [
        publisher.fill(&mut batch, &record(&too_large)).await.map(|_| ()),
        publisher.send(record(&too_large)).await.map(|_| ()),
    ] {
        assert!(matches!(
            refused,
            Err(PublishError::RecordTooLarge { bytes, limit: LARGEST }) if bytes == LARGEST + 1
        ));
    }
    assert_eq!(batch.records(), 1);
    publisher.send_batch(batch).await.unwrap().await.unwrap();
    assert_eq!(broker.stored(0), [b"before"]);
}
