//! Once a shard's buffers have grown, a batch costs at most the one allocation that makes its bytes shared, whatever the
//! number of its records.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use allocation_counter::measure;
use felix_core::{Attach, Publish, PublisherId, answer_at_once};
use felix_wire::{Incarnation, Nanos, SlowPolicy, Start};
use support::{batch, origin, shard};

const BATCHES: u64 = 1000;

/// Allocations while batches of so many records are published and read.
fn allocations(records: u32) -> u64 {
    let mut shard = shard(256 << 10);
    let attach = Attach {
        start: Start::Latest,
        incarnation: Incarnation(0),
        policy: SlowPolicy::DropNew,
        window: 128 << 10,
    };
    let (cursor, _) = shard.attach(attach).unwrap();
    let (mut effects, mut out) = (Vec::new(), Vec::new());
    let batches = (0..2 * BATCHES).map(|n| batch(origin(1, 0, n * u64::from(records)), records, 10));
    let mut batches = batches.collect::<Vec<_>>().into_iter();
    let mut run = || {
        for batch in batches.by_ref().take(BATCHES as usize) {
            let taken = shard.publish(PublisherId(1), batch, Nanos(1), &mut effects);
            assert!(matches!(taken, Publish::Taken));
            answer_at_once(&mut shard, &mut effects);
            shard.poll(cursor, 1 << 20, &mut out, &mut effects);
            assert_eq!(out.len(), 1);
            effects.clear();
            out.clear();
        }
    };
    run();
    measure(run).count_total
}

#[test]
fn a_batch_costs_one_allocation_at_most() {
    for records in [1, 64] {
        let count = allocations(records);
        assert!(
            count <= BATCHES,
            "{count} allocations for {BATCHES} batches of {records} records"
        );
    }
}
