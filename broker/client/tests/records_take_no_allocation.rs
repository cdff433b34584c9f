//! Sending and reading records allocates per batch at most, not per record.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use allocation_counter::measure;
use felix_client::{Delivery, Header, Record};
use support::{Broker, STREAM};

const RECORDS: u64 = 1000;

const HEADERS: &[Header<'_>] = &[Header {
    name: "trace",
    value: &[1; 16],
}];

/// A batch costs its buffer (which grows while it fills), its shared acknowledgement and what QUIC takes for the write.
const PER_BATCH: u64 = 40;

#[tokio::test]
async fn sending() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let value = [7; 100];
    // The first leaves at once; what follows gathers behind it, because nothing else runs on this thread meanwhile.
    let mut acks = Vec::with_capacity(RECORDS as usize + 1);
    acks.push(publisher.try_send(&Record::new(&value)).unwrap());
    let sending = measure(|| {
        for _ in 0..RECORDS {
            let record = Record::new(&value).key(b"key").headers(HEADERS);
            acks.push(publisher.try_send(&record).unwrap());
        }
    });
    assert!(sending.count_total <= PER_BATCH, "{sending:?}");
    publisher.flush().await.unwrap();
    let answers = measure(|| {
        for ack in &acks {
            ack.try_take().unwrap().unwrap();
        }
    });
    assert_eq!(answers.count_total, 0, "{answers:?}");
    assert!(broker.batch_sizes(0).len() < 20, "{:?}", broker.batch_sizes(0));
}

#[tokio::test]
async fn reading() {
    let broker = Broker::start(1).await;
    let client = broker.client().await;
    let mut subscription = client.subscribe(STREAM).open().await.unwrap();
    let publisher = client.publisher(STREAM).open().await.unwrap();
    let mut batch = publisher.batch();
    for _ in 0..RECORDS {
        let record = Record::new(&[7; 100]).key(b"key").headers(HEADERS);
        batch.push(&record).unwrap();
    }
    publisher.send_batch(batch).await.unwrap().await.unwrap();
    let first = subscription.next().await.unwrap();
    assert!(matches!(first, Some(Delivery::Record(_))));
    let mut read = 1;
    let reading = measure(|| {
        while let Some(Delivery::Record(record)) = subscription.next_buffered() {
            assert_eq!(
                (record.value.len(), record.key.as_deref()),
                (100, Some(&b"key"[..]))
            );
            assert_eq!(record.headers.get("trace"), Some(&[1; 16][..]));
            read += 1;
        }
    });
    assert_eq!(read, RECORDS, "they came in one piece");
    assert_eq!(reading.count_total, 0, "{reading:?}");
}
