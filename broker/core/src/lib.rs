//! The decisions of a Felix broker: shard, ring, cursor, gap.
