//! Stored bytes of every frame and of four kinds of batch: what was written once is read for ever, and written the same.
//! The files hold hexadecimal digits; a file that a new frame lacks is to be made from the failure's message.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::fs;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use felix_wire::{
    Ack, Acks, AuthMethod, Batch, BatchBuilder, BatchError, Credit, DecodeError, Deliver, ErrorCode,
    ErrorFrame, FRAME_HEAD_LEN, Frame, FrameHead, FrameKind, Gap, GapReason, GoAway, HEADER_LEN, Header,
    Hello, Incarnation, IncomingBatch, Lost, MAX_BATCH_RECORDS, MAX_FRAME_BYTES, Metadata, MetadataRequest,
    Nanos, Offset, OpenPublish, Origin, ProducerEpoch, ProducerId, PublishOpened, Reached, RecordError,
    Refusal, Selection, Sequence, ShardId, SlowPolicy, Stamp, Start, StreamClass, StreamName, Subscribe,
    Subscribed, Term, Welcome,
};

const LIFE: Incarnation = Incarnation(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
const PRODUCER: ProducerId = ProducerId(0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20);

fn origin() -> Origin {
    Origin {
        producer: PRODUCER,
        epoch: ProducerEpoch(3),
        sequence: Sequence(40),
    }
}

fn stamp() -> Stamp {
    Stamp {
        incarnation: LIFE,
        shard: ShardId(2),
        term: Term(5),
        previous_term: Term(4),
        base_offset: Offset(1000),
        append_time: Nanos(1_700_000_000_000_000_900),
        synced: Offset(990),
    }
}

/// A plain record, one with a key, one with everything, made at rising and falling times.
fn sealed() -> Bytes {
    let mut builder = BatchBuilder::new(BytesMut::new(), 1 << 16);
    let time = Nanos(1_700_000_000_000_000_000);
    builder.push(time, None, [].into_iter(), b"plain").unwrap();
    builder
        .push(Nanos(time.0 - 1), Some(b"key"), [].into_iter(), b"")
        .unwrap();
    let headers = [
        Header {
            name: "trace",
            value: b"\x00\x01",
        },
        Header {
            name: "ü",
            value: b"",
        },
    ];
    builder
        .push(Nanos(time.0 + 1000), Some(b""), headers.into_iter(), &[7; 40])
        .unwrap();
    builder.seal(origin()).unwrap().frame().clone()
}

fn stamped(batch: &[u8]) -> Batch {
    IncomingBatch::check(BytesMut::from(batch), 1 << 16)
        .unwrap()
        .stamp(&stamp())
}

/// The records of [`sealed`] at the offsets 0, 2 and 6 of a batch of 8, as compaction would leave them.
fn with_holes() -> Bytes {
    let dense = sealed().slice(FRAME_HEAD_LEN..);
    let batch = stamped(&dense);
    let mut records = batch.records();
    let mut bytes = batch.bytes()[..HEADER_LEN].to_vec();
    let mut rest = &batch.bytes()[HEADER_LEN..];
    for delta in [0, 2, 6] {
        let value = records.next().unwrap().unwrap().value;
        let end = value.as_ptr() as usize + value.len() - rest.as_ptr() as usize;
        bytes.push(delta);
        bytes.extend_from_slice(&rest[..end]);
        rest = &rest[end..];
    }
    bytes[6] = 0;
    bytes[12] = 7;
    again_checked(bytes)
}

fn control() -> Bytes {
    let mut bytes = stamped(&sealed().slice(FRAME_HEAD_LEN..)).bytes().to_vec();
    bytes[6] |= 1 << 3;
    again_checked(bytes)
}

/// Computes lengths and checksums as the page on the wire describes them, independently of the crate.
fn again_checked(mut bytes: Vec<u8>) -> Bytes {
    let stored = (bytes.len() - HEADER_LEN) as u32;
    bytes[16..20].copy_from_slice(&stored.to_le_bytes());
    bytes[20..24].copy_from_slice(&stored.to_le_bytes());
    let payload = crc32c::crc32c_append(crc32c::crc32c_append(0x666c_7870, &bytes[..68]), &bytes[140..]);
    bytes[68..72].copy_from_slice(&payload.to_le_bytes());
    let header = crc32c::crc32c_append(0x666c_7868, &bytes[68..136]);
    bytes[136..140].copy_from_slice(&header.to_le_bytes());
    bytes.into()
}

fn deliver(batch: Bytes, selection: Selection) -> Frame {
    let whole = Batch::check(batch.clone()).unwrap();
    Frame::Deliver(Deliver {
        from: Offset(1000),
        to: whole.next_offset(),
        selection,
        batch,
    })
}

fn stream() -> StreamName {
    StreamName::new("orders.eu-1").unwrap()
}

fn session() -> Vec<(&'static str, Frame)> {
    vec![
        (
            "hello",
            Frame::Hello(Hello {
                min_version: 0,
                max_version: 1,
                features: 0,
                agent: "felix-client/0.1.0".to_owned(),
                auth: AuthMethod::Token,
                token: Bytes::from_static(b"secret"),
            }),
        ),
        (
            "welcome",
            Frame::Welcome(Welcome {
                version: 0,
                features: 0,
                cluster_id: "0f9c2c58-6a1e-4a52-9e0b-2d0f5a6b7c8d".to_owned(),
                broker_id: "b1".to_owned(),
            }),
        ),
        (
            "metadata-request",
            Frame::MetadataRequest(MetadataRequest { stream: stream() }),
        ),
        (
            "metadata",
            Frame::Metadata(Metadata {
                stream: stream(),
                incarnation: LIFE,
                class: StreamClass::Memory,
                shards: 12,
            }),
        ),
        (
            "error",
            Frame::Error(ErrorFrame {
                code: ErrorCode::StartBeyondEnd,
                detail: 1003,
                message: "the shard ends at offset 1003".to_owned(),
            }),
        ),
        (
            "go-away",
            Frame::GoAway(GoAway {
                code: ErrorCode::ShuttingDown,
                message: "closing".to_owned(),
            }),
        ),
        (
            "unknown-optional",
            Frame::Optional {
                kind: 0x8123,
                body: Bytes::from_static(b"skip me"),
            },
        ),
    ]
}

fn publishing() -> Vec<(&'static str, Frame)> {
    let acks = vec![
        Ok(Ack {
            base_offset: Offset(1000),
            reached: Reached::Stored,
        }),
        Ok(Ack {
            base_offset: Offset(1003),
            reached: Reached::Quorum,
        }),
        Err(Refusal {
            code: ErrorCode::SequenceGap,
            detail: 46,
        }),
    ];
    vec![
        (
            "open-publish",
            Frame::OpenPublish(OpenPublish {
                stream: stream(),
                shard: ShardId(2),
                producer: PRODUCER,
                epoch: ProducerEpoch(3),
            }),
        ),
        (
            "publish-opened",
            Frame::PublishOpened(PublishOpened {
                incarnation: LIFE,
                max_batch_bytes: 1 << 20,
                max_record_bytes: 1 << 19,
            }),
        ),
        ("publish", Frame::Publish(sealed().slice(FRAME_HEAD_LEN..))),
        ("acks", Frame::Acks(Acks(acks))),
    ]
}

fn subscribing() -> Vec<(&'static str, Frame)> {
    let dense = stamped(&sealed().slice(FRAME_HEAD_LEN..)).into_bytes();
    let gap = |to, reason, lost| {
        Frame::Gap(Gap {
            from: Offset(1003),
            to,
            reason,
            lost,
        })
    };
    vec![
        (
            "subscribe",
            Frame::Subscribe(Subscribe {
                stream: stream(),
                shard: ShardId(2),
                start: Start::Offset(Offset(1000)),
                incarnation: LIFE,
                policy: Some(SlowPolicy::DropOld),
                window: 1 << 20,
                credit: 1 << 22,
            }),
        ),
        (
            "subscribed",
            Frame::Subscribed(Subscribed {
                incarnation: LIFE,
                from: Offset(1000),
                policy: SlowPolicy::DropOld,
                window: 1 << 20,
            }),
        ),
        ("deliver", deliver(dense.clone(), Selection::All)),
        (
            "deliver-filtered",
            deliver(dense, Selection::of([0, 2].into_iter())),
        ),
        ("deliver-with-holes", deliver(with_holes(), Selection::All)),
        (
            "deliver-control",
            deliver(control(), Selection::of([].into_iter())),
        ),
        (
            "gap",
            gap(Some(Offset(2000)), GapReason::DropNew, Lost::Exactly(997)),
        ),
        (
            "gap-former-life",
            gap(None, GapReason::FormerIncarnation, Lost::Unknown),
        ),
        ("credit", Frame::Credit(Credit { limit: 1 << 23 })),
    ]
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn bytes(hex: &str) -> Bytes {
    let digits: String = hex.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn every_frame_is_written_and_read_as_ever() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let frames = [session(), publishing(), subscribing()].concat();
    for (name, frame) in &frames {
        let mut written = BytesMut::new();
        frame.encode(&mut written);
        let path = folder.join(name).with_extension("hex");
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(hex(&written), stored, "{} has other bytes", path.display());

        let mut body = bytes(&stored);
        let head = body.split_to(FRAME_HEAD_LEN);
        let head = FrameHead::decode(head[..].try_into().unwrap(), MAX_FRAME_BYTES).unwrap();
        assert_eq!(head.length as usize, body.len());
        assert_eq!(
            Frame::decode(head.kind, body).as_ref(),
            Ok(frame),
            "{name} is read differently"
        );
    }
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        frames.len(),
        "each file has its frame"
    );
}

#[test]
fn the_publish_frame_of_a_sealed_batch_is_that_frame() {
    let mut written = BytesMut::new();
    Frame::Publish(sealed().slice(FRAME_HEAD_LEN..)).encode(&mut written);
    assert_eq!(sealed(), written);
}

#[test]
fn holes_and_control_batches_are_read() {
    let batch = Batch::check(with_holes()).unwrap();
    let offsets = batch
        .records()
        .map(|record| record.unwrap().offset(batch.base_offset()).0);
    assert_eq!(offsets.collect::<Vec<_>>(), [1000, 1002, 1006]);
    assert_eq!((batch.record_count(), batch.next_offset()), (3, Offset(1008)));
    assert!(!batch.is_control() && Batch::check(control()).unwrap().is_control());
    // No producer may send either.
    for bytes in [with_holes(), control()] {
        assert!(IncomingBatch::check(BytesMut::from(&bytes[..]), 1 << 16).is_err());
    }
}

#[test]
fn counts_and_offsets_that_contradict_each_other_are_refused() {
    let read = |bytes: Bytes| {
        let batch = Batch::check(bytes)?;
        batch.records().try_for_each(|record| {
            let error = |error| BatchError::Record { index: 0, error };
            record.map(|_| ()).map_err(error)
        })
    };
    let with = |at: usize, value: u8| {
        let mut bytes = with_holes().to_vec();
        bytes[at] = value;
        read(again_checked(bytes))
    };
    let offset = Err(BatchError::Record {
        index: 0,
        error: RecordError::Offset,
    });
    assert_eq!(read(with_holes()), Ok(()));
    assert_eq!(with(8, 0), Err(BatchError::Count), "no records");
    assert_eq!(with(12, 1), Err(BatchError::Count), "more records than offsets");
    assert_eq!(with(12, 5), offset, "the last record lies beyond the batch");
    assert_eq!(
        with(HEADER_LEN, 3),
        offset,
        "the second record lies before the first"
    );
}

#[test]
fn a_selection_of_more_records_than_a_batch_has_is_refused() {
    let decode = |indices: &[u32]| {
        let mut written = BytesMut::new();
        deliver(with_holes(), Selection::of(indices.iter().copied())).encode(&mut written);
        Frame::decode(FrameKind::Deliver, written.split_off(FRAME_HEAD_LEN).freeze()).map(|_| ())
    };
    assert_eq!(decode(&[0, MAX_BATCH_RECORDS - 1]), Ok(()));
    let refused = Err(DecodeError::Value { field: "selection" });
    assert_eq!(decode(&[MAX_BATCH_RECORDS]), refused);
    assert_eq!(decode(&[1, MAX_BATCH_RECORDS]), refused);
}
