//! FelixBenchmark: one run of the latency matrix against a FelixCluster, and its results.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bounds,
    condition::Condition,
    duration::DurationText,
    shared::{ClusterReference, ResourceSpec},
};

/// What a benchmark should measure.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "felix.dev",
    version = "v1alpha1",
    kind = "FelixBenchmark",
    plural = "felixbenchmarks",
    namespaced,
    derive = "PartialEq",
    status = "FelixBenchmarkStatus",
    shortname = "fxb",
    category = "felix",
    doc = "One run of a benchmark in a Job against a FelixCluster of the same namespace. Its results stay in its status.",
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "How far the run has come"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", description = "Why it is there"),
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".spec.clusterRef.name",
        description = "The FelixCluster that is measured"
    ),
    printcolumn(
        name = "Passed",
        type_ = "boolean",
        json_path = ".status.passed",
        description = "Whether every record arrived, unchanged and once"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("size(self.metadata.name) <= 63").message(
        "metadata.name: choose a name of at most 63 characters; it becomes a label"
    ),
)]
#[serde(rename_all = "camelCase")]
pub struct FelixBenchmarkSpec {
    /// The FelixCluster that is measured, in the same namespace. It cannot change.
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "clusterRef cannot change: make another FelixBenchmark instead"
    ))]
    pub cluster_ref: ClusterReference,
    /// The FelixStream that the records go through, in the same namespace. It cannot change.
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "streamRef cannot change: make another FelixBenchmark instead"
    ))]
    pub stream_ref: StreamReference,
    /// The latency matrix: one row after the other, each with its own subscribers. It cannot change.
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "latency cannot change: make another FelixBenchmark instead"
    ))]
    pub latency: LatencySpec,
    /// How long the run may take from its start. 30m by default. It cannot change.
    #[serde(default = "half_an_hour")]
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "deadline cannot change: make another FelixBenchmark instead"
    ))]
    pub deadline: DurationText,
    /// What the Job may use. It cannot change.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message(
        "resources cannot change: make another FelixBenchmark instead"
    ))]
    pub resources: ResourceSpec,
    /// true: the Job is stopped (a run under way is lost) until it is false again.
    #[serde(default)]
    pub suspend: bool,
}

/// A FelixStream in the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReference {
    /// Its metadata.name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Rows of the latency matrix: either a preset or one's own.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.preset) != has(self.rows)").message(
    "latency: set either preset or rows"
))]
pub struct LatencySpec {
    /// A set of rows that comes with the benchmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<LatencyPreset>,
    /// One's own rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub rows: Option<Vec<LatencyRow>>,
}

/// A set of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LatencyPreset {
    /// Payload 0 and 1024 bytes, fanout 1 and 10: about a minute.
    Quick,
    /// The whole matrix.
    Full,
}

impl LatencyPreset {
    /// As the benchmark's command line writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// One row: so many records of one size, to so many subscribers.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyRow {
    /// Bytes of payload a record.
    #[schemars(range(min = 0, max = 1_047_552))]
    pub payload_bytes: i32,
    /// Subscribers that each get every record.
    #[schemars(range(min = 1, max = 1000))]
    pub fanout: i32,
    /// Records a batch. With 1, each record waits for the ack of the one before.
    #[schemars(range(min = 1, max = 1024))]
    pub batch: i32,
    /// Records that are measured. 5000 by default.
    #[serde(default = "five_thousand")]
    #[schemars(range(min = 1, max = 100_000_000))]
    pub records: i32,
    /// Records sent before, not measured. 500 by default.
    #[serde(default = "five_hundred")]
    #[schemars(range(min = 0, max = 10_000_000))]
    pub warmup_records: i32,
}

/// What a run has come to.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FelixBenchmarkStatus {
    /// metadata.generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,
    /// Complete and Failed, as a Job has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// How far the run has come. Succeeded and Failed are final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<BenchmarkPhase>,
    /// Why it is there, in one word, for example DeadlineExceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<String>,
    /// Why it is there, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub message: Option<String>,
    /// The Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub job_name: Option<String>,
    /// When the Job began (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::time")]
    pub start_time: Option<String>,
    /// When it ended (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::time")]
    pub completion_time: Option<String>,
    /// Whether every row delivered every record, unchanged and once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// The figures, row by row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub rows: Vec<LatencyResult>,
    /// Where the run took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<BenchmarkEnvironment>,
    /// The objects that hold the raw results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub result_refs: Vec<ResultReference>,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BenchmarkPhase {
    /// It waits: for its cluster, its stream or a node.
    Pending,
    /// It measures.
    Running,
    /// spec.suspend holds it.
    Suspended,
    /// Every row passed.
    Succeeded,
    /// A row did not pass, or the Job did not end well.
    Failed,
}

impl BenchmarkPhase {
    /// Whether nothing follows.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The figures of one row.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LatencyResult {
    /// Bytes of payload a record.
    #[schemars(range(min = 0, max = 1_099_511_627_776_i64))]
    pub payload_bytes: i64,
    /// Subscribers.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub fanout: i32,
    /// Records a batch.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub batch: i32,
    /// Records measured.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub records: i64,
    /// Half of the deliveries took at most this long, in nanoseconds.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub p50_nanoseconds: i64,
    /// 99 % of the deliveries took at most this long, in nanoseconds.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub p99_nanoseconds: i64,
    /// 99.9 % of the deliveries took at most this long, in nanoseconds.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub p999_nanoseconds: i64,
    /// Records delivered a second, over all subscribers.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub delivered_per_second: i64,
    /// Payload bytes delivered a second, over all subscribers.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub delivered_bytes_per_second: i64,
    /// Records published a second.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub published_per_second: i64,
    /// Records that subscribers were told they did not get.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub dropped: i64,
    /// Records that did not arrive and were not told about.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub lost: i64,
    /// Records that arrived more than once.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub duplicates: i64,
    /// Records that arrived out of order.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub reordered: i64,
    /// Whether the row passed all checks.
    pub passed: bool,
}

/// Where a run took place.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BenchmarkEnvironment {
    /// Version of the benchmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tool_version: Option<String>,
    /// Commit that the benchmark was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tool_commit: Option<String>,
    /// Kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub kernel: Option<String>,
    /// Processors of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65_536))]
    pub cpus: Option<i32>,
    /// Their model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub cpu_model: Option<String>,
    /// The node that the Job ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// Bytes of UDP receive buffer that the Job's socket was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_099_511_627_776_i64))]
    pub udp_receive_granted_bytes: Option<i64>,
    /// Bytes of UDP send buffer that the Job's socket was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_099_511_627_776_i64))]
    pub udp_send_granted_bytes: Option<i64>,
    /// The largest datagram that QUIC used, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65_535))]
    pub mtu_bytes: Option<i32>,
}

/// An object that holds raw results.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultReference {
    /// Its kind, for example ConfigMap.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its name, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

fn half_an_hour() -> DurationText {
    DurationText::new("30m")
}

fn five_thousand() -> i32 {
    5000
}

fn five_hundred() -> i32 {
    500
}
