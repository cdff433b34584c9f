//! From a key to its shard.

use twox_hash::XxHash64;

use crate::ids::ShardId;

/// The seed of the key hash: "felix-k1" read as a big-endian number.
pub const KEY_HASH_SEED: u64 = u64::from_be_bytes(*b"felix-k1");

/// The shard of a key: XXH64 of its bytes with [`KEY_HASH_SEED`], modulo the number of shards.
/// Every client computes the same, so records of one key stay in one order. No shards counts as one.
pub fn shard_of_key(key: &[u8], shards: u32) -> ShardId {
    let rest = XxHash64::oneshot(KEY_HASH_SEED, key) % u64::from(shards.max(1));
    #[expect(clippy::cast_possible_truncation, reason = "the remainder of a u32 fits one")]
    ShardId(rest as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_known_keys_do_not_change() {
        let of = |key: &str| shard_of_key(key.as_bytes(), 64).0;
        assert_eq!([of(""), of("a"), of("order-1"), of("order-2")], [29, 27, 36, 35]);
        assert_eq!(shard_of_key(b"a", 0), ShardId(0));
        assert_eq!(shard_of_key(b"a", 1), ShardId(0));
    }

    #[test]
    fn keys_spread_over_all_shards() {
        let mut hits = [0_u32; 12];
        for n in 0..12_000_u32 {
            hits[shard_of_key(&n.to_le_bytes(), 12).0 as usize] += 1;
        }
        assert!(hits.iter().all(|n| (800..1200).contains(n)), "{hits:?}");
    }
}
