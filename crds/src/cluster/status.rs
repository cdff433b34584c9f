//! What was found out about a cluster.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// What was found out about a cluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FelixClusterStatus {
    /// metadata.generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,
    /// Ready, Progressing, StorageBound, UdpBuffersGranted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// The identity that the volumes are marked with. It outlives this object.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub cluster_id: Option<String>,
    /// The broker image in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// The image of this cluster where spec.image names none: the operator's default when it was first needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub default_image: Option<String>,
    /// Broker pods that exist.
    #[serde(default)]
    #[schemars(range(min = 0, max = 99))]
    pub replicas: i32,
    /// Broker pods that serve clients.
    #[serde(default)]
    #[schemars(range(min = 0, max = 99))]
    pub ready_replicas: i32,
    /// The label selector of the broker pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
    /// Host and UDP port that clients in this Kubernetes connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub address: Option<String>,
    /// What the brokers say of themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 99))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["pod".to_string()]))]
    pub brokers: Vec<BrokerStatus>,
}

/// What one broker says of itself.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokerStatus {
    /// The broker's identity, from its data directory.
    #[schemars(length(min = 1, max = 64))]
    pub id: String,
    /// The pod that it runs in.
    #[schemars(length(min = 1, max = 253))]
    pub pod: String,
    /// Its version.
    #[schemars(length(max = 64))]
    pub version: String,
    /// Its UDP socket buffers.
    pub udp_buffers: UdpBufferStatus,
}

/// The UDP socket buffers of a broker.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UdpBufferStatus {
    /// Of the receiving direction.
    pub receive: BufferStatus,
    /// Of the sending direction.
    pub send: BufferStatus,
}

/// What was asked for and what the kernel granted, the least over the broker's sockets.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BufferStatus {
    /// Bytes asked for.
    #[schemars(range(min = 0, max = 1_099_511_627_776_i64))]
    pub asked_bytes: i64,
    /// Bytes granted: half of what getsockopt reads.
    #[schemars(range(min = 0, max = 1_099_511_627_776_i64))]
    pub granted_bytes: i64,
}

impl BufferStatus {
    /// Whether the kernel gave less than was asked for.
    pub fn is_clamped(&self) -> bool {
        self.granted_bytes < self.asked_bytes
    }
}
