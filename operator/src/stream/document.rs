//! Streams as the broker's admin API writes them.

use felix_crds::{FelixStreamSpec, OverloadPolicy, StreamClass};
use serde::{Deserialize, Serialize};

/// What the broker answers about one stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StreamAnswer {
    /// The version of the catalogue.
    pub(crate) catalogue_version: u64,
    /// The stream.
    pub(crate) stream: HeldStream,
}

/// A stream as the broker holds it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeldStream {
    /// The identity of this life of the stream.
    pub(crate) incarnation: String,
    /// Who may change it; nobody once it was released.
    pub(crate) owner: Option<String>,
    /// What it is.
    pub(crate) spec: StreamSettings,
}

/// What a stream is asked to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StreamSettings {
    /// What an ack means.
    pub(crate) class: String,
    /// Number of shards.
    pub(crate) shards: i64,
    /// Bytes that each shard keeps.
    pub(crate) ring_bytes: i64,
    /// pace or shed. Brokers that do not know it yet pace; they are not asked for what they do anyway.
    #[serde(default, skip_serializing_if = "OverloadSetting::is_pace")]
    pub(crate) overload: OverloadSetting,
    /// The default for subscriptions that do not keep up.
    pub(crate) slow_subscriber: SlowSubscriberSettings,
}

/// What happens to publishers when memory is used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OverloadSetting(String);

impl OverloadSetting {
    fn is_pace(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for OverloadSetting {
    fn default() -> Self {
        Self(OverloadPolicy::Pace.as_str().to_owned())
    }
}

/// What happens to a subscription that does not keep up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SlowSubscriberSettings {
    /// drop_new, drop_old or block.
    pub(crate) policy: String,
    /// Bytes that it may lag behind.
    pub(crate) window_bytes: i64,
    /// Whether a subscription may ask for block.
    pub(crate) allow_block: bool,
}

impl From<&FelixStreamSpec> for StreamSettings {
    fn from(spec: &FelixStreamSpec) -> Self {
        let class = match spec.class {
            StreamClass::Memory => "memory",
            StreamClass::Durable => "durable",
            StreamClass::Quorum => "quorum",
        };
        Self {
            class: class.to_owned(),
            shards: i64::from(spec.shards),
            ring_bytes: spec.ring_bytes,
            overload: OverloadSetting(spec.overload.as_str().to_owned()),
            slow_subscriber: SlowSubscriberSettings {
                policy: spec.slow_subscriber.policy.as_str().to_owned(),
                window_bytes: spec.slow_subscriber.window_bytes,
                allow_block: spec.slow_subscriber.allow_block,
            },
        }
    }
}

/// The body of a PUT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PutStream {
    /// Who asks.
    pub(crate) owner: String,
    /// The version of the catalogue that the decision rests on; absent for a stream that was not there.
    pub(crate) catalogue_version: Option<u64>,
    /// What the stream should be.
    pub(crate) spec: StreamSettings,
}
