//! What a stream is asked to be: class, shards, ring and the default for slow subscribers, with their bounds.

use serde::{Deserialize, Serialize};

/// Most shards that one stream may have.
pub const MAX_SHARDS: u16 = 64;
/// Smallest ring of one shard, in bytes: less could not hold a few batches of ordinary records.
pub const MIN_RING_BYTES: u64 = 64 * 1024;
/// Largest ring of one shard, in bytes.
pub const MAX_RING_BYTES: u64 = 64 * 1024 * 1024 * 1024;
/// Smallest window of a subscription, in bytes.
pub const MIN_WINDOW_BYTES: u64 = 4 * 1024;

const DEFAULT_RING_BYTES: u64 = 64 * 1024 * 1024;
const DEFAULT_WINDOW_BYTES: u64 = 8 * 1024 * 1024;

/// What an acknowledgement of the stream means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamClass {
    /// The record is in the broker's memory.
    #[default]
    Memory,
}

/// What happens to a subscription that lags by more than its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowSubscriberPolicy {
    /// The oldest undelivered bytes of one window are kept, later records are skipped until there is room.
    #[default]
    DropNew,
    /// The newest bytes of one window are kept, what is older is skipped.
    DropOld,
    /// Publishers are paced until the subscription has caught up.
    Block,
}

impl SlowSubscriberPolicy {
    /// Every policy, in the order in which documentation and metrics name them.
    pub const ALL: [Self; 3] = [Self::DropNew, Self::DropOld, Self::Block];

    /// The name used in documents, settings and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropNew => "drop_new",
            Self::DropOld => "drop_old",
            Self::Block => "block",
        }
    }
}

/// What happens to a stream's publishers when the broker's memory budget is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverloadPolicy {
    /// They are paced: the broker does not read on until there is memory.
    #[default]
    Pace,
    /// Their batches are refused with `Overloaded`, and what follows them with `SequenceGap`, so that order is kept.
    Shed,
}

/// The stream's default for subscriptions that do not keep up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SlowSubscriberSpec {
    /// The policy of subscriptions that name none.
    pub policy: SlowSubscriberPolicy,
    /// The window of subscriptions that name none, in bytes; at most the ring.
    pub window_bytes: u64,
    /// Whether a subscription may pace the stream's publishers.
    pub allow_block: bool,
}

impl Default for SlowSubscriberSpec {
    fn default() -> Self {
        Self {
            policy: SlowSubscriberPolicy::default(),
            window_bytes: DEFAULT_WINDOW_BYTES,
            allow_block: false,
        }
    }
}

/// What a stream is asked to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StreamSpec {
    /// What an acknowledgement means. Cannot change.
    pub class: StreamClass,
    /// Number of ordered logs, 1 to [`MAX_SHARDS`]. Cannot change.
    pub shards: u16,
    /// Bytes of recent batches kept in memory for each shard.
    pub ring_bytes: u64,
    /// What happens to publishers when the broker's memory budget is used up.
    pub overload: OverloadPolicy,
    /// The default for subscriptions that do not keep up.
    pub slow_subscriber: SlowSubscriberSpec,
}

impl Default for StreamSpec {
    fn default() -> Self {
        Self {
            class: StreamClass::default(),
            shards: 1,
            ring_bytes: DEFAULT_RING_BYTES,
            overload: OverloadPolicy::default(),
            slow_subscriber: SlowSubscriberSpec::default(),
        }
    }
}

/// A value outside its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct SpecError {
    /// Path of the field in the spec.
    pub field: &'static str,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl StreamSpec {
    /// Checks every bound.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn check(&self) -> Result<(), SpecError> {
        let out = |field, message| Err(SpecError { field, message });
        let slow = &self.slow_subscriber;
        if self.shards == 0 || self.shards > MAX_SHARDS {
            return out(
                "spec.shards",
                format!("is {}, must be 1 to {MAX_SHARDS}", self.shards),
            );
        }
        if self.ring_bytes < MIN_RING_BYTES || self.ring_bytes > MAX_RING_BYTES {
            let message = format!(
                "is {}, must be {MIN_RING_BYTES} to {MAX_RING_BYTES}",
                self.ring_bytes
            );
            return out("spec.ringBytes", message);
        }
        if slow.window_bytes < MIN_WINDOW_BYTES || slow.window_bytes > self.ring_bytes {
            let message = format!(
                "is {}, must be {MIN_WINDOW_BYTES} to ringBytes ({})",
                slow.window_bytes, self.ring_bytes
            );
            return out("spec.slowSubscriber.windowBytes", message);
        }
        if slow.policy == SlowSubscriberPolicy::Block && !slow.allow_block {
            let message = "is block, which needs slowSubscriber.allowBlock: true".to_owned();
            return out("spec.slowSubscriber.policy", message);
        }
        Ok(())
    }

    /// The first field that differs although it cannot change, if any.
    pub fn immutable_difference(&self, next: &Self) -> Option<&'static str> {
        if self.class != next.class {
            Some("spec.class")
        } else if self.shards != next.shards {
            Some("spec.shards")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut StreamSpec)) -> StreamSpec {
        let mut spec = StreamSpec::default();
        change(&mut spec);
        spec
    }

    #[test]
    fn the_default_is_within_its_own_bounds() {
        assert_eq!(StreamSpec::default().check(), Ok(()));
    }

    #[test]
    fn each_bound_names_its_field() {
        let field = |spec: StreamSpec| spec.check().unwrap_err().field;
        assert_eq!(field(with(|s| s.shards = 0)), "spec.shards");
        assert_eq!(field(with(|s| s.shards = MAX_SHARDS + 1)), "spec.shards");
        assert_eq!(
            field(with(|s| s.ring_bytes = MIN_RING_BYTES - 1)),
            "spec.ringBytes"
        );
        assert_eq!(
            field(with(|s| s.ring_bytes = MAX_RING_BYTES + 1)),
            "spec.ringBytes"
        );
        assert_eq!(
            field(with(|s| s.slow_subscriber.window_bytes = 1)),
            "spec.slowSubscriber.windowBytes"
        );
        assert_eq!(
            field(with(|s| s.slow_subscriber.window_bytes = s.ring_bytes + 1)),
            "spec.slowSubscriber.windowBytes"
        );
        assert_eq!(
            field(with(|s| s.slow_subscriber.policy = SlowSubscriberPolicy::Block)),
            "spec.slowSubscriber.policy"
        );
    }

    #[test]
    fn json_uses_the_names_of_the_api_and_refuses_unknown_ones() {
        let json = serde_json::to_value(StreamSpec::default()).unwrap();
        assert_eq!(json["slowSubscriber"]["policy"], "drop_new");
        assert_eq!(json["class"], "memory");
        assert_eq!(json["overload"], "pace");
        let error = serde_json::from_str::<StreamSpec>(r#"{"shard": 2}"#).unwrap_err();
        assert!(error.to_string().contains("`shard`"), "{error}");
    }
}
