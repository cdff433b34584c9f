//! Every bound of the protocol, with its arithmetic. A decoder refuses what is beyond them before it allocates.

/// Longest frame body in bytes that any receiver has to accept: 16 MiB, room for the largest batch and its head.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// Largest batch in bytes, header included: a frame's body less 128 KiB for what a deliver frame puts before the batch.
/// That is a range and at most 64 KiB of selection, a byte for each of [`MAX_BATCH_RECORDS`].
pub const MAX_BATCH_BYTES: usize = MAX_FRAME_BYTES - (128 << 10);

/// Longest body in bytes of what a client sends beside batches: the longest token and the longest texts fit twice.
pub const MAX_REQUEST_BYTES: usize = 32 << 10;

/// Longest body in bytes of what a broker sends beside batches: room for lists that newer versions add.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Most records in one batch. A record takes at least 2 bytes, so this bounds what a small frame can make a reader do.
pub const MAX_BATCH_RECORDS: u32 = 1 << 16;

/// Most headers on one record.
pub const MAX_RECORD_HEADERS: usize = 64;

/// Longest name of a record header, in bytes of UTF-8.
pub const MAX_HEADER_NAME_BYTES: usize = 255;

/// Longest key of a record in bytes: 64 KiB less one, so that keys stay cheap to hash and compare.
pub const MAX_KEY_BYTES: usize = (64 << 10) - 1;

/// Longest stream name in bytes: what Kubernetes allows an object name to be, so every object name is a stream name.
pub const MAX_STREAM_NAME_BYTES: usize = 253;

/// Most shards of a stream that a client has to cope with. Brokers allow fewer.
pub const MAX_SHARDS: u32 = 1024;

/// Longest text in a control frame in bytes: messages, cluster ids, agents.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Longest authentication token in bytes: a JSON web token with generous claims fits.
pub const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Most batches that a publisher may have unacknowledged on one shard. The broker remembers where this many of a
/// producer's latest batches are, so a retry of any of them is answered with its first offset.
pub const MAX_UNACKED_BATCHES: usize = 64;

/// Most entries in one acks frame: one for each batch that can be unacknowledged.
pub const MAX_ACKS_PER_FRAME: usize = MAX_UNACKED_BATCHES;
