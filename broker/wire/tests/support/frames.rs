//! The frames whose bytes and values are stored under `tests/golden`.

use bytes::{Bytes, BytesMut};
use felix_wire::{
    Ack, Acks, AuthMethod, Batch, BatchBuilder, Credit, Deliver, ErrorCode, ErrorFrame, FRAME_HEAD_LEN,
    Frame, Gap, GapReason, GoAway, HEADER_LEN, Header, Hello, Incarnation, IncomingBatch, Lost, Metadata,
    MetadataRequest, Nanos, Offset, OpenPublish, Origin, ProducerEpoch, ProducerId, PublishOpened, Reached,
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

/// A plain record, one with a key, one with everything, made at rising and falling times. The second has an empty value,
/// or deletes its key.
pub(crate) fn sealed(deletes: bool) -> Bytes {
    let mut builder = BatchBuilder::new(BytesMut::new(), 1 << 16);
    let time = Nanos(1_700_000_000_000_000_000);
    builder.push(time, None, [].into_iter(), b"plain").unwrap();
    let before = Nanos(time.0 - 1);
    if deletes {
        builder.push_deletion(before, b"key", [].into_iter()).unwrap();
    } else {
        builder.push(before, Some(b"key"), [].into_iter(), b"").unwrap();
    }
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
pub(crate) fn with_holes() -> Bytes {
    let dense = sealed(true).slice(FRAME_HEAD_LEN..);
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

pub(crate) fn control() -> Bytes {
    let mut bytes = stamped(&sealed(false).slice(FRAME_HEAD_LEN..)).bytes().to_vec();
    bytes[6] |= 1 << 3;
    again_checked(bytes)
}

/// Computes lengths and checksums as the page on the wire describes them, independently of the crate.
pub(crate) fn again_checked(mut bytes: Vec<u8>) -> Bytes {
    let stored = (bytes.len() - HEADER_LEN) as u32;
    bytes[16..20].copy_from_slice(&stored.to_le_bytes());
    bytes[20..24].copy_from_slice(&stored.to_le_bytes());
    let payload = crc32c::crc32c_append(crc32c::crc32c_append(0x666c_7870, &bytes[..68]), &bytes[140..]);
    bytes[68..72].copy_from_slice(&payload.to_le_bytes());
    let header = crc32c::crc32c_append(0x666c_7868, &bytes[..136]);
    bytes[136..140].copy_from_slice(&header.to_le_bytes());
    bytes.into()
}

pub(crate) fn deliver(batch: Bytes, selection: Selection) -> Frame {
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
                min_version: 1,
                max_version: 2,
                features: 0,
                agent: "felix-client/0.1.0".to_owned(),
                auth: AuthMethod::Token,
                token: Bytes::from_static(b"secret"),
            }),
        ),
        (
            "welcome",
            Frame::Welcome(Welcome {
                version: 1,
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
    let mut acks = vec![
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
        ("publish", Frame::Publish(sealed(false).slice(FRAME_HEAD_LEN..))),
        ("acks", Frame::Acks(Acks::take_from(&mut acks))),
    ]
}

fn subscribing() -> Vec<(&'static str, Frame)> {
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
            "subscribe-latest",
            Frame::Subscribe(Subscribe {
                stream: stream(),
                shard: ShardId(0),
                start: Start::Latest,
                incarnation: Incarnation(0),
                policy: None,
                window: 0,
                credit: 0,
            }),
        ),
        (
            "subscribed",
            Frame::Subscribed(Subscribed {
                incarnation: LIFE,
                from: Offset(1000),
                policy: Some(SlowPolicy::DropOld),
                window: 1 << 20,
            }),
        ),
        ("credit", Frame::Credit(Credit { limit: 1 << 23 })),
    ]
}

fn deliveries() -> Vec<(&'static str, Frame)> {
    let dense = stamped(&sealed(false).slice(FRAME_HEAD_LEN..)).into_bytes();
    vec![
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
            "deliver-nothing",
            Frame::Deliver(Deliver {
                from: Offset(1000),
                to: Offset(1003),
                selection: Selection::All,
                batch: Bytes::new(),
            }),
        ),
    ]
}

fn gaps() -> Vec<(&'static str, Frame)> {
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
            "gap",
            gap(Some(Offset(2000)), GapReason::DropNew, Lost::Exactly(997)),
        ),
        (
            "gap-at-most",
            gap(Some(Offset(2000)), GapReason::NotKept, Lost::AtMost(997)),
        ),
        (
            "gap-former-life",
            gap(None, GapReason::FormerIncarnation, Lost::Unknown),
        ),
    ]
}

/// Every golden frame and the name of its file.
pub(crate) fn frames() -> Vec<(&'static str, Frame)> {
    [session(), publishing(), subscribing(), deliveries(), gaps()].concat()
}
