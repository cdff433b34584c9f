//! The rules of producer sequences, one by one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use felix_core::{Effect, Publish, PublisherId, Shard, answer_at_once};
use felix_wire::{
    Ack, AckEntry, ErrorCode, IncomingBatch, MAX_UNACKED_BATCHES, Nanos, Offset, Origin, Reached, Refusal,
};
use support::{batch, origin, shard};

fn publish(shard: &mut Shard, origin: Origin, records: u32) -> AckEntry {
    publish_batch(shard, batch(origin, records, 10))
}

/// One record of so many bytes.
fn publish_bytes(shard: &mut Shard, origin: Origin, bytes: usize) -> AckEntry {
    publish_batch(shard, batch(origin, 1, bytes))
}

fn publish_batch(shard: &mut Shard, batch: IncomingBatch) -> AckEntry {
    let mut effects = Vec::new();
    let taken = shard.publish(PublisherId(1), batch, Nanos(0), &mut effects);
    assert!(matches!(taken, Publish::Taken));
    answer_at_once(shard, &mut effects);
    let answers = effects.iter().filter_map(|effect| match effect {
        Effect::Answer { entry, .. } => Some(*entry),
        Effect::Write(_) | Effect::WakeReaders | Effect::WakePublishers => None,
    });
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers.len(), 1, "one answer a batch");
    answers[0]
}

fn stored(offset: u64) -> AckEntry {
    Ok(Ack {
        base_offset: Offset(offset),
        reached: Reached::Stored,
    })
}

fn refused(code: ErrorCode, detail: u64) -> AckEntry {
    Err(Refusal { code, detail })
}

#[test]
fn a_retry_is_answered_with_its_first_offset() {
    let mut shard = shard(1 << 20);
    assert_eq!(publish(&mut shard, origin(1, 0, 0), 3), stored(0));
    assert_eq!(publish(&mut shard, origin(2, 0, 0), 1), stored(3));
    assert_eq!(publish(&mut shard, origin(1, 0, 3), 2), stored(4));
    assert_eq!(publish(&mut shard, origin(1, 0, 0), 3), stored(0));
    assert_eq!(publish(&mut shard, origin(1, 0, 3), 2), stored(4));
    assert_eq!(shard.end(), Offset(6));
}

#[test]
fn what_is_out_of_order_is_refused() {
    let mut shard = shard(1 << 20);
    assert_eq!(
        publish(&mut shard, origin(1, 5, 3), 1),
        refused(ErrorCode::UnknownProducer, 0)
    );
    assert_eq!(publish(&mut shard, origin(1, 5, 0), 3), stored(0));
    assert_eq!(
        publish(&mut shard, origin(1, 5, 4), 1),
        refused(ErrorCode::SequenceGap, 3)
    );
    assert_eq!(
        publish(&mut shard, origin(1, 5, 2), 2),
        refused(ErrorCode::SequenceOverlap, 0)
    );
    assert_eq!(
        publish(&mut shard, origin(1, 4, 3), 1),
        refused(ErrorCode::Fenced, 5)
    );
    assert_eq!(
        publish(&mut shard, origin(1, 6, 3), 1),
        refused(ErrorCode::SequenceGap, 0)
    );
    assert_eq!(publish(&mut shard, origin(1, 6, 0), 1), stored(3));
    assert_eq!(
        publish(&mut shard, origin(1, 5, 3), 1),
        refused(ErrorCode::Fenced, 6)
    );
    assert_eq!(shard.end(), Offset(4));
}

#[test]
fn every_batch_that_can_be_unacknowledged_is_remembered() {
    let mut shard = shard(1 << 20);
    for n in 0..=MAX_UNACKED_BATCHES as u64 {
        assert_eq!(publish(&mut shard, origin(1, 0, n), 1), stored(2 * n));
        assert_eq!(publish(&mut shard, origin(2, 0, n), 1), stored(2 * n + 1));
    }
    assert_eq!(
        publish(&mut shard, origin(1, 0, 0), 1),
        refused(ErrorCode::DuplicateForgotten, 0)
    );
    for n in 1..=MAX_UNACKED_BATCHES as u64 {
        assert_eq!(publish(&mut shard, origin(1, 0, n), 1), stored(2 * n));
    }
}

#[test]
fn the_most_silent_producer_is_forgotten_first() {
    let mut shard = shard(1 << 20);
    for producer in 0..1024 {
        publish(&mut shard, origin(producer, 0, 0), 1).unwrap();
    }
    publish(&mut shard, origin(0, 0, 1), 1).unwrap();
    publish(&mut shard, origin(5000, 0, 0), 1).unwrap();
    assert_eq!(
        publish(&mut shard, origin(1, 0, 1), 1),
        refused(ErrorCode::UnknownProducer, 0)
    );
    assert_eq!(publish(&mut shard, origin(0, 0, 2), 1), stored(1026));
}

#[test]
fn what_follows_a_refused_first_batch_is_told_that_it_is_missing() {
    let mut shard = shard(2048);
    // Of the same producer, refused unread and refused by the ring.
    shard.refuse(origin(1, 3, 0));
    publish_bytes(&mut shard, origin(2, 0, 0), 4000).unwrap_err();
    for (producer, epoch) in [(1, 3), (2, 0)] {
        assert_eq!(
            publish(&mut shard, origin(producer, epoch, 1), 1),
            refused(ErrorCode::SequenceGap, 0)
        );
    }
    // A refusal fences nobody.
    assert_eq!(publish(&mut shard, origin(1, 2, 0), 1), stored(0));
    assert_eq!(publish(&mut shard, origin(1, 3, 0), 1), stored(1));
    assert_eq!(publish(&mut shard, origin(2, 0, 0), 1), stored(2));
    assert_eq!(publish(&mut shard, origin(2, 0, 1), 1), stored(3));
    // A later one that is refused says nothing of those before it.
    shard.refuse(origin(4, 0, 5));
    assert_eq!(
        publish(&mut shard, origin(4, 0, 6), 1),
        refused(ErrorCode::UnknownProducer, 0)
    );
}

#[test]
fn nobody_is_forgotten_for_a_refused_batch() {
    let mut shard = shard(1 << 20);
    for producer in 0..1024 {
        publish(&mut shard, origin(producer, 0, 0), 1).unwrap();
    }
    shard.refuse(origin(5000, 0, 0));
    assert_eq!(publish(&mut shard, origin(0, 0, 1), 1), stored(1024));
    assert_eq!(
        publish(&mut shard, origin(5000, 0, 1), 1),
        refused(ErrorCode::UnknownProducer, 0)
    );
}

#[test]
fn a_batch_that_no_ring_holds_is_refused() {
    let mut shard = shard(1024);
    let mut effects = Vec::new();
    let large = batch(origin(1, 0, 0), 1, 2000);
    assert!(matches!(
        shard.publish(PublisherId(1), large, Nanos(0), &mut effects),
        Publish::Taken
    ));
    let entry = refused(ErrorCode::BatchTooLarge, 1024);
    assert_eq!(
        effects,
        [Effect::Answer {
            publisher: PublisherId(1),
            entry
        }]
    );
}
