//! Batches and shards for tests.
#![allow(dead_code, reason = "each test file uses its own part")]

use bytes::BytesMut;
use felix_core::{BATCH_OVERHEAD, Limits, Shard, ShardConfig};
use felix_wire::{
    BatchBuilder, Incarnation, IncomingBatch, Nanos, Origin, ProducerEpoch, ProducerId, Reached, Sequence,
    ShardId, Term,
};

/// The life of the streams that [`shard`] makes.
pub(crate) const LIFE: Incarnation = Incarnation(7);

/// A memory shard with a ring of this many bytes.
pub(crate) fn shard(ring_bytes: u64) -> Shard {
    Shard::new(ShardConfig {
        incarnation: LIFE,
        shard: ShardId(0),
        term: Term(1),
        reached: Reached::Stored,
        ring_bytes,
        limits: Limits::default(),
    })
}

/// An origin.
pub(crate) fn origin(producer: u128, epoch: u32, sequence: u64) -> Origin {
    Origin {
        producer: ProducerId(producer),
        epoch: ProducerEpoch(epoch),
        sequence: Sequence(sequence),
    }
}

/// A batch of `records` records of `value_len` bytes.
pub(crate) fn batch(origin: Origin, records: u32, value_len: usize) -> IncomingBatch {
    let mut builder = BatchBuilder::new(BytesMut::new(), 1 << 20);
    for n in 0..records {
        let value = vec![n as u8; value_len];
        builder
            .push(Nanos(u64::from(n)), None, [].into_iter(), &value)
            .unwrap();
    }
    let sealed = builder.seal(origin).unwrap();
    IncomingBatch::check(BytesMut::from(&sealed.batch()[..]), 1 << 20).unwrap()
}

/// What a batch costs ring and windows.
pub(crate) fn cost(batch: &IncomingBatch) -> u64 {
    batch.len() as u64 + BATCH_OVERHEAD
}
