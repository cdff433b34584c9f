//! Every frame decodes to what was encoded; hostile bytes are refused without a panic; unknown optional frames are skipped.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use bytes::{Bytes, BytesMut};
use felix_wire::{
    Ack, Acks, AuthMethod, Credit, DecodeError, Deliver, ErrorCode, ErrorFrame, FRAME_HEAD_LEN, Frame,
    FrameHead, FrameKind, Gap, GapReason, GoAway, Hello, Incarnation, Lost, MAX_ACKS_PER_FRAME,
    MAX_BATCH_BYTES, MAX_BATCH_RECORDS, MAX_FRAME_BYTES, MAX_SHARDS, Metadata, MetadataRequest, Nanos,
    Offset, OpenPublish, ProducerEpoch, ProducerId, PublishOpened, Reached, Refusal, Selection, ShardId,
    SlowPolicy, Start, StreamClass, StreamName, Subscribe, Subscribed, Welcome, take_frame,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn name() -> impl Strategy<Value = StreamName> {
    "[a-zA-Z0-9]([a-zA-Z0-9._-]{0,250}[a-zA-Z0-9])?".prop_map(|name| StreamName::new(&name).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..200).prop_map(|chars| chars.into_iter().collect())
}

fn payload() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn code() -> impl Strategy<Value = ErrorCode> {
    (1..=u16::MAX).prop_map(ErrorCode::from_wire)
}

fn session() -> impl Strategy<Value = Frame> {
    let auth = select(vec![
        AuthMethod::None,
        AuthMethod::Token,
        AuthMethod::Unlisted(900),
    ]);
    let class = select(vec![
        StreamClass::Memory,
        StreamClass::Durable,
        StreamClass::Quorum,
        StreamClass::Unlisted(9),
    ]);
    prop_oneof![
        (any::<[u16; 2]>(), any::<u64>(), text(), auth, payload()).prop_map(
            |([min_version, max_version], features, agent, auth, token)| {
                Frame::Hello(Hello {
                    min_version,
                    max_version,
                    features,
                    agent,
                    auth,
                    token,
                })
            }
        ),
        (any::<u16>(), any::<u64>(), text(), text()).prop_map(
            |(version, features, cluster_id, broker_id)| {
                Frame::Welcome(Welcome {
                    version,
                    features,
                    cluster_id,
                    broker_id,
                })
            }
        ),
        name().prop_map(|stream| Frame::MetadataRequest(MetadataRequest { stream })),
        (name(), any::<u128>(), class, 1..=MAX_SHARDS).prop_map(|(stream, life, class, shards)| {
            Frame::Metadata(Metadata {
                stream,
                incarnation: Incarnation(life),
                class,
                shards,
            })
        }),
        (code(), any::<u64>(), text()).prop_map(|(code, detail, message)| Frame::Error(ErrorFrame {
            code,
            detail,
            message
        })),
        (code(), text()).prop_map(|(code, message)| Frame::GoAway(GoAway { code, message })),
        (any::<u16>(), payload()).prop_map(|(kind, body)| Frame::Optional {
            kind: kind | 0x8000,
            body
        }),
    ]
}

fn publishing() -> impl Strategy<Value = Frame> {
    let reached = select(vec![Reached::Stored, Reached::Synced, Reached::Quorum]);
    let entry = prop_oneof![
        (any::<u64>(), reached).prop_map(|(base, reached)| Ok(Ack {
            base_offset: Offset(base),
            reached
        })),
        (code(), any::<u64>()).prop_map(|(code, detail)| Err(Refusal { code, detail })),
    ];
    prop_oneof![
        (name(), any::<u32>(), any::<u128>(), any::<u32>()).prop_map(|(stream, shard, producer, epoch)| {
            let (producer, epoch) = (ProducerId(producer), ProducerEpoch(epoch));
            Frame::OpenPublish(OpenPublish {
                stream,
                shard: ShardId(shard),
                producer,
                epoch,
            })
        }),
        (any::<u128>(), any::<u32>(), any::<u32>()).prop_map(|(life, max_batch_bytes, max_record_bytes)| {
            Frame::PublishOpened(PublishOpened {
                incarnation: Incarnation(life),
                max_batch_bytes,
                max_record_bytes,
            })
        }),
        payload().prop_map(Frame::Publish),
        vec(entry, 0..64).prop_map(|mut entries| Frame::Acks(Acks::take_from(&mut entries))),
    ]
}

fn range() -> impl Strategy<Value = (Offset, Offset)> {
    (0..u64::MAX / 2, 1..u64::MAX / 2).prop_map(|(from, length)| (Offset(from), Offset(from + length)))
}

fn gap() -> impl Strategy<Value = Frame> {
    let reason = select(vec![
        GapReason::DropNew,
        GapReason::DropOld,
        GapReason::NotKept,
        GapReason::FormerIncarnation,
        GapReason::Damaged,
        GapReason::Unlisted(77),
    ]);
    let lost = prop_oneof![
        any::<u64>().prop_map(Lost::Exactly),
        any::<u64>().prop_map(Lost::AtMost),
        Just(Lost::Unknown),
    ];
    (range(), any::<bool>(), reason, lost).prop_map(|((from, to), closed, reason, lost)| {
        Frame::Gap(Gap {
            from,
            to: closed.then_some(to),
            reason,
            lost,
        })
    })
}

fn subscribing() -> impl Strategy<Value = Frame> {
    let policy = || select(vec![SlowPolicy::Block, SlowPolicy::DropNew, SlowPolicy::DropOld]);
    let start = prop_oneof![
        Just(Start::Latest),
        Just(Start::Earliest),
        any::<u64>().prop_map(|offset| Start::Offset(Offset(offset))),
        any::<u64>().prop_map(|time| Start::Time(Nanos(time))),
    ];
    let selection = prop_oneof![
        Just(Selection::All),
        vec(0..1000_u32, 0..50).prop_map(|mut indices| {
            indices.sort_unstable();
            indices.dedup();
            Selection::of(indices.into_iter())
        }),
    ];
    prop_oneof![
        (
            name(),
            any::<u32>(),
            start,
            any::<u128>(),
            option::of(policy()),
            any::<[u64; 2]>()
        )
            .prop_map(|(stream, shard, start, life, policy, [window, credit])| {
                let (shard, incarnation) = (ShardId(shard), Incarnation(life));
                Frame::Subscribe(Subscribe {
                    stream,
                    shard,
                    start,
                    incarnation,
                    policy,
                    window,
                    credit,
                })
            }),
        (any::<u128>(), any::<u64>(), option::of(policy()), any::<u64>()).prop_map(
            |(life, from, policy, window)| {
                Frame::Subscribed(Subscribed {
                    incarnation: Incarnation(life),
                    from: Offset(from),
                    policy,
                    window,
                })
            }
        ),
        (range(), selection, payload()).prop_map(|((from, to), selection, batch)| {
            Frame::Deliver(Deliver {
                from,
                to,
                selection,
                batch,
            })
        }),
        gap(),
        any::<u64>().prop_map(|limit| Frame::Credit(Credit { limit })),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![session(), publishing(), subscribing()]
}

fn encode(frame: &Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    bytes
}

fn body(frame: &Frame) -> Bytes {
    encode(frame).split_off(FRAME_HEAD_LEN).freeze()
}

proptest! {
    #[test]
    fn each_frame(frame in frame()) {
        prop_assert_eq!(Frame::decode(frame.kind(), body(&frame)), Ok(frame));
    }

    #[test]
    fn frames_cut_anywhere(frames in vec(frame(), 1..5), step in 1_usize..50) {
        let mut sent = BytesMut::new();
        frames.iter().for_each(|frame| frame.encode(&mut sent));
        let (mut buffer, mut got) = (BytesMut::new(), Vec::new());
        for chunk in sent.chunks(step) {
            buffer.extend_from_slice(chunk);
            while let Some((kind, body)) = take_frame(&mut buffer, MAX_FRAME_BYTES).unwrap() {
                got.push(Frame::decode(kind, body).unwrap());
            }
        }
        let expected = frames.into_iter().filter(|frame| !matches!(frame, Frame::Optional { .. }));
        prop_assert_eq!(got, expected.collect::<Vec<_>>());
        prop_assert!(buffer.is_empty());
    }

    #[test]
    fn bodies_cut_short_are_refused_or_whole(frame in frame(), at: prop::sample::Index) {
        let body = body(&frame);
        let cut = body.slice(..at.index(body.len() + 1));
        match Frame::decode(frame.kind(), cut.clone()) {
            Err(error) => prop_assert_eq!(error.code(), ErrorCode::ProtocolViolation),
            // Some bodies may end anywhere, or at certain places: batches, lists.
            Ok(shorter) => prop_assert_eq!(encode(&shorter).split_off(FRAME_HEAD_LEN), cut),
        }
    }

    #[test]
    fn what_a_newer_version_adds_is_ignored(frame in session()) {
        let mut longer = body(&frame).to_vec();
        longer.extend_from_slice(b"more");
        let decoded = Frame::decode(frame.kind(), longer.into());
        let optional = matches!(frame, Frame::Optional { .. });
        prop_assert!(optional || decoded == Ok(frame));
    }

    #[test]
    fn foreign_bodies_do_not_panic(kind in 0..0x40_u16, bytes in vec(any::<u8>(), 0..200)) {
        let Ok(kind) = FrameKind::from_wire(kind) else { return Ok(()) };
        if let Ok(frame) = Frame::decode(kind, bytes.into()) {
            prop_assert_eq!(Frame::decode(kind, body(&frame)), Ok(frame));
        }
    }

    #[test]
    fn selections(indices in vec(0..65_536_u32, 0..50)) {
        let mut indices = indices;
        indices.sort_unstable();
        indices.dedup();
        let selection = Selection::of(indices.iter().copied());
        prop_assert_eq!(selection.indices().unwrap().collect::<Vec<_>>(), indices);
    }
}

#[test]
fn a_deliver_head_and_the_batch_are_the_frame() {
    let batch = Bytes::from_static(b"the batch");
    for selection in [Selection::All, Selection::of([1, 5].into_iter())] {
        let mut head = BytesMut::new();
        Deliver::encode_head(Offset(3), Offset(9), &selection, batch.len(), &mut head);
        head.extend_from_slice(&batch);
        let frame = Frame::Deliver(Deliver {
            from: Offset(3),
            to: Offset(9),
            selection,
            batch: batch.clone(),
        });
        assert_eq!(head, encode(&frame));
    }
}

#[test]
fn the_largest_batch_fits_a_frame_with_the_longest_selection() {
    let all_but_one = Selection::of((0..MAX_BATCH_RECORDS).filter(|index| *index != 500));
    let mut head = BytesMut::new();
    Deliver::encode_head(Offset(0), Offset(1), &all_but_one, MAX_BATCH_BYTES, &mut head);
    let frame = FrameHead::decode(head[..FRAME_HEAD_LEN].try_into().unwrap(), MAX_FRAME_BYTES).unwrap();
    assert_eq!(
        frame.length as usize + FRAME_HEAD_LEN,
        head.len() + MAX_BATCH_BYTES
    );
}

#[test]
fn more_answers_than_a_frame_holds_take_several() {
    let entry = |n: usize| {
        Err(Refusal {
            code: ErrorCode::SequenceGap,
            detail: n as u64,
        })
    };
    let mut entries: Vec<_> = (0..=2 * MAX_ACKS_PER_FRAME).map(entry).collect();
    let mut frames = Vec::new();
    while !entries.is_empty() {
        let frame = Frame::Acks(Acks::take_from(&mut entries));
        let Ok(Frame::Acks(acks)) = Frame::decode(FrameKind::Acks, body(&frame)) else {
            panic!("a frame of acks is read")
        };
        frames.push(acks.into_entries());
    }
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 1]);
    let expected: Vec<_> = (0..=2 * MAX_ACKS_PER_FRAME).map(entry).collect();
    assert_eq!(frames.concat(), expected);
}

#[test]
fn numbers_that_newer_versions_add_are_read_as_what_is_known() {
    let with = |frame: &Frame, at: usize, number: u8| {
        let mut bytes = body(frame).to_vec();
        bytes[at] = number;
        Frame::decode(frame.kind(), bytes.into()).unwrap()
    };
    let reached = Reached::Quorum;
    let base_offset = Offset(7);
    let acked = Frame::Acks(Acks::take_from(&mut vec![Ok(Ack { base_offset, reached })]));
    assert_eq!(with(&acked, 2, 9), acked, "safer than quorum is at least quorum");

    let gap = |reason, lost| {
        Frame::Gap(Gap {
            from: Offset(1),
            to: Some(Offset(2)),
            reason,
            lost,
        })
    };
    let known = gap(GapReason::Damaged, Lost::Exactly(1));
    assert_eq!(with(&known, 17, 9), gap(GapReason::Unlisted(9), Lost::Exactly(1)));
    assert_eq!(with(&known, 18, 9), gap(GapReason::Damaged, Lost::Unknown));

    let subscribed = |policy| {
        Frame::Subscribed(Subscribed {
            incarnation: Incarnation(1),
            from: Offset(0),
            policy,
            window: 1,
        })
    };
    let known = subscribed(Some(SlowPolicy::Block));
    assert_eq!(with(&known, 24, 4), subscribed(None));
}

#[test]
fn lengths_are_checked_before_anything_is_done() {
    let head = FrameHead {
        kind: FrameKind::Publish,
        length: u32::MAX,
    }
    .to_bytes();
    let error = DecodeError::FrameTooLarge {
        bytes: u32::MAX as usize,
        limit: MAX_FRAME_BYTES,
    };
    assert_eq!(FrameHead::decode(head, MAX_FRAME_BYTES), Err(error));
    assert_eq!(
        take_frame(&mut BytesMut::from(&head[..]), MAX_FRAME_BYTES),
        Err(error)
    );
    assert_eq!(error.code(), ErrorCode::FrameTooLarge);
}

#[test]
fn unknown_kinds_that_must_be_understood_are_an_error() {
    let mut buffer = BytesMut::from(&[0x3f, 0, 0, 0, 0, 0][..]);
    let error = take_frame(&mut buffer, 100).unwrap_err();
    assert_eq!(error, DecodeError::UnknownFrame { kind: 0x3f });
    assert_eq!(error.code(), ErrorCode::UnknownFrame);
}
