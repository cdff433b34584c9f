//! A log that answers late, fails, or is cut: what publishers are told and readers see.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use felix_core::{Attach, Effect, Publish, PublisherId, Room, Shard};
use felix_wire::{Ack, AckEntry, ErrorCode, Incarnation, Nanos, Offset, Origin, Reached, SlowPolicy, Start};
use support::{batch, cost, origin, shard};

fn publish(shard: &mut Shard, publisher: u64, origin: Origin) -> Vec<Effect> {
    let mut effects = Vec::new();
    let taken = shard.publish(
        PublisherId(publisher),
        batch(origin, 1, 10),
        Nanos(0),
        &mut effects,
    );
    assert!(matches!(taken, Publish::Taken));
    effects
}

fn synced_to(shard: &mut Shard, offset: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    shard.synced_to(Offset(offset), &mut effects);
    effects
}

fn answer(publisher: u64, entry: AckEntry) -> Effect {
    Effect::Answer {
        publisher: PublisherId(publisher),
        entry,
    }
}

fn stored(offset: u64) -> AckEntry {
    Ok(Ack {
        base_offset: Offset(offset),
        reached: Reached::Stored,
    })
}

#[test]
fn in_the_order_of_the_batches() {
    let mut shard = shard(1 << 20);
    assert!(matches!(
        publish(&mut shard, 1, origin(1, 0, 0))[..],
        [Effect::Write(_)]
    ));
    assert!(matches!(
        publish(&mut shard, 2, origin(2, 0, 0))[..],
        [Effect::Write(_)]
    ));
    // A refusal waits its turn.
    assert_eq!(publish(&mut shard, 1, origin(1, 0, 5)), []);
    assert!(matches!(
        publish(&mut shard, 3, origin(1, 0, 1))[..],
        [Effect::Write(_)]
    ));
    // A retry over another connection, before the original is safe.
    assert_eq!(publish(&mut shard, 4, origin(1, 0, 1)), []);

    assert_eq!(synced_to(&mut shard, 0), []);
    let gap = Err(felix_wire::Refusal {
        code: ErrorCode::SequenceGap,
        detail: 1,
    });
    assert_eq!(
        synced_to(&mut shard, 2),
        [
            answer(1, stored(0)),
            answer(2, stored(1)),
            answer(1, gap),
            Effect::WakeReaders
        ]
    );
    assert_eq!(
        synced_to(&mut shard, 3),
        [answer(3, stored(2)), answer(4, stored(2)), Effect::WakeReaders]
    );
}

#[test]
fn readers_do_not_see_what_is_not_safe() {
    let mut shard = shard(1 << 20);
    let attach = |start| Attach {
        start,
        incarnation: Incarnation(0),
        policy: SlowPolicy::DropNew,
        window: 1 << 16,
    };
    let (cursor, from) = shard.attach(attach(Start::Earliest)).unwrap();
    assert_eq!(from, Offset(0));
    publish(&mut shard, 1, origin(1, 0, 0));
    let (mut out, mut effects) = (Vec::new(), Vec::new());
    shard.poll(cursor, 1 << 20, &mut out, &mut effects);
    assert_eq!(out, []);
    assert!(shard.attach(attach(Start::Offset(Offset(1)))).is_err());
    synced_to(&mut shard, 1);
    shard.poll(cursor, 1 << 20, &mut out, &mut effects);
    assert_eq!(out.len(), 1);
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_any_more() {
    let mut shard = shard(1 << 20);
    publish(&mut shard, 1, origin(1, 0, 0));
    publish(&mut shard, 1, origin(1, 0, 1));
    synced_to(&mut shard, 1);
    let mut effects = Vec::new();
    shard.sync_failed(&mut effects);
    let failed = Err(ErrorCode::LogFailed.into());
    assert_eq!(effects, [answer(1, failed)]);
    assert_eq!(shard.end(), Offset(1));
    assert_eq!(publish(&mut shard, 1, origin(1, 0, 1)), [answer(1, failed)]);
}

#[test]
fn what_was_cut_may_be_sent_again() {
    let mut shard = shard(1 << 20);
    for n in 0..3 {
        publish(&mut shard, 1, origin(1, 0, n));
    }
    synced_to(&mut shard, 1);
    let mut effects = Vec::new();
    shard.truncate_to(Offset(2), &mut effects);
    assert_eq!(effects, []);
    assert_eq!(
        synced_to(&mut shard, 2).len(),
        3,
        "the kept one, the unknown one, and readers are woken"
    );
    publish(&mut shard, 1, origin(1, 0, 2));
    assert_eq!(
        synced_to(&mut shard, 3),
        [answer(1, stored(2)), Effect::WakeReaders]
    );
}

#[test]
fn publishers_wait_while_half_of_the_ring_is_not_safe() {
    let one = cost(&batch(origin(1, 0, 0), 1, 10));
    let mut shard = shard(4 * one);
    let mut taken = 0;
    while shard.room() == Room::Open {
        publish(&mut shard, 1, origin(1, 0, taken));
        taken += 1;
    }
    assert_eq!(taken, 3);
    assert_eq!(synced_to(&mut shard, 1).last(), Some(&Effect::WakePublishers));
    assert_eq!(shard.room(), Room::Open);
}
