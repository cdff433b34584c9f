//! What is put into a batch comes out of it, before and after its stamp; what was damaged is noticed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use bytes::BytesMut;
use felix_wire::{
    Batch, BatchBuilder, BatchError, HEADER_LEN, Header, Incarnation, IncomingBatch, Nanos, Offset, Origin,
    ProducerEpoch, ProducerId, PushError, RecordError, SealedBatch, Sequence, ShardId, Stamp, Term,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq)]
struct Made {
    timestamp: u64,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Vec<u8>)>,
    /// None where the record deletes its key.
    value: Option<Vec<u8>>,
}

fn made() -> impl Strategy<Value = Made> {
    let bytes = || vec(any::<u8>(), 0..40);
    let headers = prop_oneof![3 => Just(Vec::new()), 1 => vec(("[a-zä]{1,8}", bytes()), 1..4)];
    let value = option::weighted(0.8, bytes());
    (any::<u64>(), option::of(bytes()), headers, value).prop_map(|(timestamp, key, headers, value)| Made {
        timestamp: timestamp >> 1,
        value: value.or_else(|| key.is_none().then(Vec::new)),
        key,
        headers,
    })
}

fn origin() -> Origin {
    Origin {
        producer: ProducerId(9),
        epoch: ProducerEpoch(2),
        sequence: Sequence(77),
    }
}

fn push(builder: &mut BatchBuilder, record: &Made) -> Result<u32, PushError> {
    let headers = record.headers.iter().map(|(name, value)| Header { name, value });
    let timestamp = Nanos(record.timestamp);
    match &record.value {
        Some(value) => builder.push(timestamp, record.key.as_deref(), headers, value),
        None => builder.push_deletion(timestamp, record.key.as_deref().unwrap(), headers),
    }
}

fn seal(records: &[Made]) -> SealedBatch {
    let mut builder = BatchBuilder::new(BytesMut::new(), 1 << 20);
    for (index, record) in records.iter().enumerate() {
        assert_eq!(push(&mut builder, record), Ok(index as u32));
    }
    builder.seal(origin()).unwrap()
}

fn receive(batch: &[u8]) -> Result<IncomingBatch, BatchError> {
    IncomingBatch::check(BytesMut::from(batch), 1 << 20)
}

fn stamp() -> Stamp {
    Stamp {
        incarnation: Incarnation(3),
        shard: ShardId(5),
        term: Term(8),
        previous_term: Term(7),
        base_offset: Offset(1000),
        append_time: Nanos(99),
        synced: Offset(990),
    }
}

fn read(batch: &Batch) -> Vec<Made> {
    let records = batch.records().map(|record| {
        let record = record.unwrap();
        let headers = record
            .headers
            .map(|header| (header.name.to_owned(), header.value.to_vec()));
        Made {
            timestamp: record.timestamp.0,
            key: record.key.map(<[u8]>::to_vec),
            headers: headers.collect(),
            value: (!record.deletes).then(|| record.value.to_vec()),
        }
    });
    records.collect()
}

proptest! {
    #[test]
    fn records(made in vec(made(), 1..20)) {
        let sealed = seal(&made);
        let incoming = receive(&sealed.batch()).unwrap();
        prop_assert_eq!(incoming.header().origin, origin());
        prop_assert_eq!(incoming.header().record_count as usize, made.len());
        let batch = incoming.stamp(&stamp());
        prop_assert_eq!(batch.stamp(), stamp());
        prop_assert_eq!(batch.next_offset(), Offset(1000 + made.len() as u64));
        let received = Batch::check(batch.bytes().clone()).unwrap();
        prop_assert_eq!(read(&received), made);
        // The stamp leaves the producer's part and the records alone.
        let (sealed, stamped) = (sealed.batch(), batch.into_bytes());
        prop_assert_eq!(&sealed[..72], &stamped[..72]);
        prop_assert_eq!(&sealed[HEADER_LEN..], &stamped[HEADER_LEN..]);
    }

    #[test]
    fn damage_is_noticed(made in vec(made(), 1..5), at: prop::sample::Index, bit in 0..8_u32) {
        let batch = receive(&seal(&made).batch()).unwrap().stamp(&stamp());
        let mut bytes = batch.bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Batch::check(bytes.into()).is_err(), "a changed bit at {} was not noticed", at);
    }

    #[test]
    fn foreign_bytes_are_refused(bytes in vec(any::<u8>(), 0..400), begins in any::<bool>()) {
        let mut bytes = bytes;
        if begins && bytes.len() > 4 {
            bytes[..4].copy_from_slice(b"FLXB");
        }
        prop_assert!(receive(&bytes).is_err());
        prop_assert!(Batch::check(bytes.into()).is_err());
    }

    #[test]
    fn a_refused_record_leaves_no_trace(made in vec(made(), 1..20), limit in 200_usize..600) {
        let mut builder = BatchBuilder::new(BytesMut::new(), limit);
        let mut taken = Vec::new();
        for record in made {
            let before = builder.len();
            match push(&mut builder, &record) {
                Ok(_) => taken.push(record),
                Err(_) => prop_assert_eq!(builder.len(), before),
            }
        }
        prop_assert!(builder.len() <= limit);
        if let Some(sealed) = builder.seal(origin()) {
            let batch = receive(&sealed.batch()).unwrap().stamp(&stamp());
            prop_assert_eq!(read(&batch), taken);
        }
    }
}

#[test]
fn bounds_of_records() {
    let mut builder = BatchBuilder::new(BytesMut::new(), 1000);
    let none = || [].into_iter();
    let fits = builder.push(Nanos(0), None, none(), &[0; 1000 - HEADER_LEN - 3]);
    assert_eq!(fits, Ok(0));
    assert_eq!(builder.push(Nanos(0), None, none(), &[]), Err(PushError::Full));
    let too_large = PushError::TooLarge {
        bytes: 1003,
        limit: 1000 - HEADER_LEN,
    };
    assert_eq!(builder.push(Nanos(0), None, none(), &[0; 1000]), Err(too_large));
    assert_eq!(
        builder.push(Nanos(0), Some(&[0; 1 << 16]), none(), &[]),
        Err(PushError::Key)
    );
    let unnamed = [Header { name: "", value: &[] }];
    assert_eq!(
        builder.push(Nanos(0), None, unnamed.into_iter(), &[]),
        Err(PushError::HeaderName)
    );
    let many = [Header {
        name: "h",
        value: &[],
    }; 65];
    assert_eq!(
        builder.push(Nanos(0), None, many.into_iter(), &[]),
        Err(PushError::HeaderCount)
    );
    assert!(BatchBuilder::new(BytesMut::new(), 1000).seal(origin()).is_none());
}

#[test]
fn a_record_over_the_limit_is_named() {
    let made = Made {
        timestamp: 1,
        key: None,
        headers: Vec::new(),
        value: Some(vec![0; 100]),
    };
    let sealed = seal(&[
        Made {
            value: Some(vec![]),
            ..made.clone()
        },
        made,
    ]);
    let error = IncomingBatch::check(BytesMut::from(&sealed.batch()[..]), 99).unwrap_err();
    assert_eq!(
        error,
        BatchError::Record {
            index: 1,
            error: RecordError::TooLarge { limit: 99 }
        }
    );
    assert_eq!(error.code(), felix_wire::ErrorCode::RecordTooLarge);
}

#[test]
fn a_retry_is_the_same_bytes() {
    let made = Made {
        timestamp: 1,
        key: Some(vec![1]),
        headers: Vec::new(),
        value: Some(vec![2]),
    };
    let sealed = seal(&[made]);
    assert_eq!(sealed.clone().frame(), sealed.frame());
    assert_eq!(
        sealed.frame().as_ptr(),
        sealed.clone().frame().as_ptr(),
        "not even a copy"
    );
}

#[test]
fn a_batch_that_ends_beyond_the_last_offset_is_refused() {
    let made = Made {
        timestamp: 1,
        key: None,
        headers: Vec::new(),
        value: Some(vec![0]),
    };
    let sealed = seal(&[made.clone(), made]);
    let at = |base_offset| {
        let stamped = receive(&sealed.batch()).unwrap().stamp(&Stamp {
            base_offset,
            ..stamp()
        });
        Batch::check(stamped.into_bytes()).map(|batch| batch.next_offset())
    };
    assert_eq!(at(Offset(u64::MAX - 2)), Ok(Offset(u64::MAX)));
    assert_eq!(at(Offset(u64::MAX - 1)), Err(BatchError::Count));
}
