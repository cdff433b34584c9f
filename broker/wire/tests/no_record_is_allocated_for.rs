//! Writing and reading records allocates nothing, however many there are.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use allocation_counter::measure;
use bytes::BytesMut;
use felix_wire::{Batch, BatchBuilder, Header, IncomingBatch, Nanos, Origin, Stamp};

const RECORDS: u64 = 1000;

fn fill(builder: &mut BatchBuilder) {
    for n in 0..RECORDS {
        let headers = [Header {
            name: "trace",
            value: &[1; 16],
        }];
        let headers = headers.into_iter().take((n % 2) as usize);
        builder
            .push(Nanos(n), (n % 3 == 0).then_some(b"key"), headers, &[7; 100])
            .unwrap();
    }
}

fn builder() -> BatchBuilder {
    BatchBuilder::new(BytesMut::with_capacity(1 << 18), 1 << 18)
}

#[test]
fn writing() {
    let mut open = builder();
    assert_eq!(measure(|| fill(&mut open)).count_total, 0);
    let mut sealed = None;
    let sealing = measure(|| sealed = open.seal(Origin::default()));
    assert!(
        sealing.count_total <= 1,
        "the buffer becomes shared, no more: {sealing:?}"
    );
    assert_eq!(u64::from(sealed.unwrap().records()), RECORDS);
}

#[test]
fn checking_and_reading() {
    let mut open = builder();
    fill(&mut open);
    let bytes = BytesMut::from(&open.seal(Origin::default()).unwrap().batch()[..]);
    let mut incoming = None;
    let checking = measure(|| incoming = Some(IncomingBatch::check(bytes, 1 << 20).unwrap()));
    assert_eq!(checking.count_total, 0);
    let incoming = incoming.unwrap();
    let mut batch = None;
    let stamping = measure(|| batch = Some(incoming.stamp(&Stamp::default())));
    assert!(
        stamping.count_total <= 1,
        "the buffer becomes shared, no more: {stamping:?}"
    );
    let bytes = batch.unwrap().into_bytes();
    let mut read = 0;
    let reading = measure(|| {
        let batch = Batch::check(bytes).unwrap();
        for record in batch.records() {
            let record = record.unwrap();
            read += record.value.len() + record.key.map_or(0, <[u8]>::len) + record.headers.count();
        }
    });
    assert_eq!(reading.count_total, 0);
    assert!(read > 100 * RECORDS as usize);
}
