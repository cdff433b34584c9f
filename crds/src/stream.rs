//! FelixStream: a named, sharded log of records in a FelixCluster.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    condition::Condition,
    shared::{ClusterReference, DeletionPolicy},
};

/// What a stream should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "felix.dev",
    version = "v1alpha1",
    kind = "FelixStream",
    plural = "felixstreams",
    namespaced,
    derive = "PartialEq",
    status = "FelixStreamStatus",
    shortname = "fxs",
    category = "felix",
    doc = "A stream in a FelixCluster of the same namespace: a named, sharded log of records.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        description = "Whether the stream exists as it is written here"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        description = "Why it does, or not"
    ),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterRef.name",
        description = "The FelixCluster that holds it"
    ),
    printcolumn(
        name = "Stream",
        type_ = "string",
        json_path = ".status.streamName",
        description = "The name that clients use"
    ),
    printcolumn(
        name = "Class",
        type_ = "string",
        json_path = ".spec.class",
        description = "What an ack means"
    ),
    printcolumn(
        name = "Shards",
        type_ = "integer",
        json_path = ".spec.shards",
        description = "Shards of the stream"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.slowSubscriber.windowBytes <= self.ringBytes").message(
    "slowSubscriber.windowBytes: lower it to at most ringBytes, or raise ringBytes"
))]
#[x_kube(validation = Rule::new("has(self.streamName) == has(oldSelf.streamName)").message(
    "streamName cannot be added or removed later: make another FelixStream instead"
))]
pub struct FelixStreamSpec {
    /// The FelixCluster that holds the stream, in the same namespace. It cannot change.
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "clusterRef cannot change: make another FelixStream instead"
    ))]
    pub cluster_ref: ClusterReference,
    /// The name that clients use. Absent: metadata.name. It cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')").message(
        "streamName: use 1 to 253 ASCII letters, digits, '_', '.' and '-', with a letter or a digit at both ends"
    ))]
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "streamName cannot change: make another FelixStream instead"
    ))]
    pub stream_name: Option<String>,
    /// What an ack means. memory (the default): the record is in the broker's memory and is lost when that stops.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == 'memory'").message(
        "class: use memory; durable and quorum streams do not exist yet"
    ))]
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "class cannot change: make another FelixStream instead"
    ))]
    pub class: StreamClass,
    /// How many shards share the records, by their keys. 1 by default. It cannot change.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "shards cannot change: records would move between shards; make another FelixStream instead"
    ))]
    pub shards: i32,
    /// How many of the newest bytes each shard keeps. 64 MiB by default.
    #[serde(default = "sixty_four_mebibytes")]
    #[schemars(range(min = 65_536, max = 68_719_476_736_i64))]
    pub ring_bytes: i64,
    /// What happens to publishers when the broker's memory budget is used up. pace by default.
    #[serde(default)]
    pub overload: OverloadPolicy,
    /// What happens to a subscription that does not keep up and has no policy of its own.
    #[serde(default)]
    pub slow_subscriber: SlowSubscriberSpec,
    /// Whether the stream is deleted with this object.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What an ack means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StreamClass {
    /// The record is in the leader's memory.
    #[default]
    Memory,
    /// The record is on the leader's disk. Not yet.
    Durable,
    /// The record is on two of three disks. Not yet.
    Quorum,
}

/// What happens to publishers when memory is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverloadPolicy {
    /// They are paced.
    #[default]
    Pace,
    /// Their batches are refused, to be sent again later.
    Shed,
}

impl OverloadPolicy {
    /// As the broker's API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pace => "pace",
            Self::Shed => "shed",
        }
    }
}

/// What happens to a subscription that does not keep up.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.policy != 'block' || self.allowBlock").message(
    "slowSubscriber: set allowBlock: true with policy block; every subscriber may then hold up the publishers"
))]
pub struct SlowSubscriberSpec {
    /// The policy of subscriptions that name none. drop_new by default.
    #[serde(default)]
    pub policy: SlowPolicy,
    /// How many bytes a subscription may lag behind. 8 MiB by default; at most ringBytes.
    #[serde(default = "eight_mebibytes")]
    #[schemars(range(min = 4096, max = 68_719_476_736_i64))]
    pub window_bytes: i64,
    /// Whether subscriptions may ask for policy block, which paces the publishers. false by default.
    #[serde(default)]
    pub allow_block: bool,
}

impl Default for SlowSubscriberSpec {
    fn default() -> Self {
        Self {
            policy: SlowPolicy::default(),
            window_bytes: eight_mebibytes(),
            allow_block: false,
        }
    }
}

/// What a slow subscription gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlowPolicy {
    /// The oldest undelivered bytes are kept, newer records are skipped and told as a gap.
    #[default]
    DropNew,
    /// The newest bytes are kept, older records are skipped and told as a gap.
    DropOld,
    /// Nothing: the publishers are paced.
    Block,
}

impl SlowPolicy {
    /// As the broker's API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DropNew => "drop_new",
            Self::DropOld => "drop_old",
            Self::Block => "block",
        }
    }
}

/// What was found out about a stream.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FelixStreamStatus {
    /// metadata.generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,
    /// Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// The name that clients use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub stream_name: Option<String>,
    /// The identity of this life of the stream: a memory stream begins anew when its broker does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub incarnation: Option<String>,
}

fn one() -> i32 {
    1
}

fn eight_mebibytes() -> i64 {
    8 << 20
}

fn sixty_four_mebibytes() -> i64 {
    64 << 20
}
