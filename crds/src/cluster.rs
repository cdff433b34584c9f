//! FelixCluster: a cluster of brokers, its storage, its certificates and what it reports.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bounds,
    condition::Condition,
    quantity::{ByteQuantity, CpuQuantity},
};

/// The longest name of a FelixCluster in bytes: what is derived from it must still fit 63 (and 52 for the
/// StatefulSet, to whose name Kubernetes appends a revision of 11).
pub const MAX_CLUSTER_NAME: usize = 40;

/// What a cluster of Felix brokers should be.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "felix.dev",
    version = "v1alpha1",
    kind = "FelixCluster",
    plural = "felixclusters",
    namespaced,
    derive = "PartialEq",
    status = "FelixClusterStatus",
    shortname = "fxc",
    category = "felix",
    doc = "A cluster of Felix brokers: publish and subscribe over QUIC.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#,
        description = "Whether clients can use the cluster"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        description = "Why it is ready, or not"
    ),
    printcolumn(
        name = "Brokers",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Brokers that serve clients"
    ),
    printcolumn(
        name = "UDP-Buffers",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="UdpBuffersGranted")].status"#,
        description = "Whether the node grants the UDP buffers that were asked for"
    ),
    printcolumn(
        name = "Address",
        type_ = "string",
        json_path = ".status.address",
        description = "Where clients connect"
    ),
    printcolumn(
        name = "Image",
        type_ = "string",
        json_path = ".status.image",
        description = "The broker image in use",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')").message(
        "metadata.name: choose 1 to 40 lower-case letters, digits and '-', beginning with a letter; Services and \
         pods are named after it"
    ),
    validation = Rule::new("!self.metadata.name.endsWith('-brokers')").message(
        "metadata.name: choose a name that does not end with -brokers; that is the headless Service of another cluster"
    ),
    validation = Rule::new(
        "!isQuantity(self.spec.storage.size) || !isQuantity(oldSelf.spec.storage.size) || \
         quantity(self.spec.storage.size).compareTo(quantity(oldSelf.spec.storage.size)) >= 0 || \
         (has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, \
         c.type == 'StorageBound' && c.status == 'False'))"
    )
    .message(
        "spec.storage.size: a volume cannot shrink; keep the size or make it larger (a size for which no volume was \
         found yet may be lowered: condition StorageBound is then False)"
    ),
)]
#[serde(rename_all = "camelCase")]
pub struct FelixClusterSpec {
    /// How many brokers. One for now: several brokers need replication, which does not exist yet.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 99))]
    #[x_kube(validation = Rule::new("self == 1").message(
        "set replicas to 1: clusters of several brokers (and of none) do not exist yet"
    ))]
    pub replicas: i32,
    /// The broker image. Unset: the operator's own default, resolved once into status.defaultImage, so that an
    /// upgrade of the operator does not move it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    /// Secrets with registry credentials, for the brokers and for the benchmark Jobs of this cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub image_pull_secrets: Vec<SecretReference>,
    /// What a broker may use. Its memory budget follows the memory limit, its threads the limit of cores. The defaults fit a
    /// namespace with a quota: 250m and 512Mi asked for, at most 2 cores and 1Gi.
    #[serde(default)]
    pub resources: ResourceSpec,
    /// The volume of each broker.
    pub storage: StorageSpec,
    /// The UDP socket buffers that brokers ask for. What the node grants is in condition UdpBuffersGranted.
    #[serde(default)]
    pub udp_buffers: UdpBufferSpec,
    /// Where the certificates come from.
    #[serde(default)]
    pub tls: TlsSpec,
    /// How clients prove who they are.
    #[serde(default)]
    pub authentication: AuthenticationSpec,
    /// The Service that clients connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_service: Option<ClientServiceSpec>,
    /// Where broker pods may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingSpec>,
    /// true: the operator writes nothing but the status of this cluster until it is false again.
    #[serde(default)]
    pub paused: bool,
    /// Settings of the brokers. A change restarts them, one at a time.
    #[serde(default)]
    pub config: BrokerConfigSpec,
}

/// A container image. Name the repository together with a tag or a digest.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.repository) == (has(self.tag) || has(self.digest))").message(
    "image: set repository together with a tag or a digest, or leave all three out"
))]
pub struct ImageSpec {
    /// For example registry.example.com/felix-broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = Rule::new("self.matches(r'^[a-zA-Z0-9][a-zA-Z0-9._:/-]*$') && !self.contains('@')").message(
        "image.repository: write the repository alone, for example registry.example.com/felix-broker; the tag has \
         a field of its own"
    ))]
    pub repository: Option<String>,
    /// For example 0.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^[A-Za-z0-9_][A-Za-z0-9._-]*$')").message(
        "image.tag: use letters, digits, '_', '.' and '-'"
    ))]
    pub tag: Option<String>,
    /// For example sha256:4bc4... (64 hexadecimal digits). It wins over the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 71, max = 71))]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')").message(
        "image.digest: write sha256: and 64 hexadecimal digits"
    ))]
    pub digest: Option<String>,
    /// When the kubelet pulls.
    #[serde(default)]
    pub pull_policy: PullPolicy,
}

/// When the kubelet pulls an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// Where the node does not have it.
    #[default]
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}

impl PullPolicy {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// A Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What a container asks for and may use at most. Quantities are strings: write "2", not 2.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(self.requests) || !has(self.limits) || !has(self.requests.memory) || !has(self.limits.memory) || \
     !isQuantity(self.requests.memory) || !isQuantity(self.limits.memory) || \
     quantity(self.requests.memory).compareTo(quantity(self.limits.memory)) <= 0"
).message("resources: lower requests.memory to at most limits.memory"))]
#[x_kube(validation = Rule::new(
    "!has(self.requests) || !has(self.limits) || !has(self.requests.cpu) || !has(self.limits.cpu) || \
     !isQuantity(self.requests.cpu) || !isQuantity(self.limits.cpu) || \
     quantity(self.requests.cpu).compareTo(quantity(self.limits.cpu)) <= 0"
).message("resources: lower requests.cpu to at most limits.cpu"))]
pub struct ResourceSpec {
    /// What the scheduler sets aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceAmounts>,
    /// What it may use at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceAmounts>,
}

impl Default for ResourceSpec {
    fn default() -> Self {
        Self {
            requests: Some(ResourceAmounts {
                cpu: Some(CpuQuantity::new("250m")),
                memory: Some(ByteQuantity::new("512Mi")),
            }),
            limits: Some(ResourceAmounts {
                cpu: Some(CpuQuantity::new("2")),
                memory: Some(ByteQuantity::new("1Gi")),
            }),
        }
    }
}

/// Amounts of processor time and memory.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAmounts {
    /// Cores, for example "2" or 500m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuQuantity>,
    /// Bytes, for example 2Gi; at least 64Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("!isQuantity(self) || quantity(self).compareTo(quantity('64Mi')) >= 0").message(
        "memory: give a broker or a benchmark at least 64Mi"
    ))]
    pub memory: Option<ByteQuantity>,
}

/// The volume of each broker.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// Bytes, for example 10Gi; at least 16Mi. It can grow, not shrink, once a volume is bound.
    #[x_kube(validation = Rule::new("!isQuantity(self) || quantity(self).compareTo(quantity('16Mi')) >= 0").message(
        "storage.size: ask for at least 16Mi; the catalogue, keys and certificates of a broker live there"
    ))]
    pub size: ByteQuantity,
    /// The StorageClass. Absent: the default class of this Kubernetes. Empty: volumes without a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub class_name: Option<String>,
    /// What becomes of the volumes when this FelixCluster is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What becomes of what an object stands for when the object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It stays, and an object of the same name finds it again.
    #[default]
    Retain,
    /// It is deleted too.
    Delete,
}

/// The UDP socket buffers that a broker asks for, in bytes.
///
/// There is no field for sysctls: no pod can raise net.core.rmem_max. The node must be tuned.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UdpBufferSpec {
    /// SO_RCVBUF, in bytes. 8 MiB by default.
    #[serde(default = "eight_mebibytes")]
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    pub receive_bytes: i64,
    /// SO_SNDBUF, in bytes. 8 MiB by default.
    #[serde(default = "eight_mebibytes")]
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    pub send_bytes: i64,
}

impl Default for UdpBufferSpec {
    fn default() -> Self {
        Self {
            receive_bytes: eight_mebibytes(),
            send_bytes: eight_mebibytes(),
        }
    }
}

/// Where the certificates of a cluster come from, and which names they carry.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.managed)").message(
    "tls: add `managed: {}`; certificates from a CA that the operator keeps are the only source for now"
))]
pub struct TlsSpec {
    /// A CA that the operator makes and keeps for this cluster, and a server certificate that it renews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedTls>,
    /// DNS names or IP addresses that the server certificate carries beside those of the Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = Rule::new(
        "self.all(n, n.matches(r'^([*][.])?[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$') || n.matches('^[0-9a-fA-F:.]+$'))"
    ).message("tls.extraNames: write DNS names (a leading '*.' is allowed) or IP addresses"))]
    pub extra_names: Vec<String>,
}

impl Default for TlsSpec {
    fn default() -> Self {
        Self {
            managed: Some(ManagedTls {}),
            extra_names: Vec::new(),
        }
    }
}

/// Certificates from the operator's own CA for this cluster. It has no settings yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManagedTls {}

/// How clients prove who they are.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthenticationSpec {
    /// None: every client that trusts the cluster's CA may publish and subscribe. Stored, so that a safer default
    /// later does not change this cluster.
    #[serde(rename = "type", default)]
    pub kind: AuthenticationKind,
}

impl Default for AuthenticationSpec {
    fn default() -> Self {
        Self {
            kind: AuthenticationKind::None,
        }
    }
}

/// The ways of authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthenticationKind {
    /// Nobody is asked.
    #[default]
    None,
}

/// The Service that clients connect to.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientServiceSpec {
    /// Labels to add. The operator's own win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// Where broker pods may run. A change restarts the brokers, one at a time.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingSpec {
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods accept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<TolerationSpec>,
    /// The PriorityClass of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

/// A taint that the pods accept.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TolerationSpec {
    /// The taint's key. Absent with operator Exists: every taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub key: Option<String>,
    /// How key and value are compared.
    #[serde(default)]
    pub operator: TolerationOperator,
    /// The taint's value, for operator Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// The taint's effect. Absent: every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// How long a pod stays after a NoExecute taint came, in seconds. Absent: for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub toleration_seconds: Option<i64>,
}

/// How a toleration compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// Key and value are equal.
    #[default]
    Equal,
    /// The key is there.
    Exists,
}

/// What a taint does to pods that do not accept it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// They are not scheduled there.
    NoSchedule,
    /// They are rather scheduled elsewhere.
    PreferNoSchedule,
    /// They are evicted.
    NoExecute,
}

/// Settings of the brokers.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokerConfigSpec {
    /// Bytes that rings, requests under way and subscriptions may hold together. Absent: a share of the memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16_777_216, max = 1_099_511_627_776_i64))]
    pub memory_budget_bytes: Option<i64>,
    /// The largest record, in bytes. 1 MiB by default.
    #[serde(default = "one_mebibyte")]
    #[schemars(range(min = 1024, max = 67_108_864))]
    pub max_record_bytes: i64,
    /// How many clients may be connected to one broker. 10000 by default.
    #[serde(default = "ten_thousand")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: i32,
    /// How long a broker that is asked to stop lets its clients finish, in seconds. 20 by default.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 600))]
    pub drain_timeout_seconds: i32,
    /// The form of the log lines. json by default.
    #[serde(default)]
    pub log_format: LogFormat,
    /// The least severe log lines that are written. info by default.
    #[serde(default)]
    pub log_level: LogLevel,
}

impl Default for BrokerConfigSpec {
    fn default() -> Self {
        Self {
            memory_budget_bytes: None,
            max_record_bytes: one_mebibyte(),
            max_connections: ten_thousand(),
            drain_timeout_seconds: twenty(),
            log_format: LogFormat::default(),
            log_level: LogLevel::default(),
        }
    }
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// How severe a log line must be to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Errors alone.
    Error,
    /// And warnings.
    Warn,
    /// And what happens.
    #[default]
    Info,
    /// And how it happens.
    Debug,
    /// And each step of it.
    Trace,
}

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

fn one() -> i32 {
    1
}

fn twenty() -> i32 {
    20
}

fn ten_thousand() -> i32 {
    10_000
}

fn one_mebibyte() -> i64 {
    1 << 20
}

fn eight_mebibytes() -> i64 {
    8 << 20
}
