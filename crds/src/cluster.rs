//! FelixCluster: a cluster of brokers, its storage, its certificates and what it reports.

mod broker_config;
mod image;
mod network;
mod scheduling;
mod status;
mod storage;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub use self::{
    broker_config::{BrokerConfigSpec, LogFormat, LogLevel},
    image::{ImageSpec, PullPolicy, SecretReference},
    network::{
        AuthenticationKind, AuthenticationSpec, ClientServiceSpec, ManagedTls, TlsSpec, UdpBufferSpec,
    },
    scheduling::{SchedulingSpec, TaintEffect, TolerationOperator, TolerationSpec},
    status::{BrokerStatus, BufferStatus, FelixClusterStatus, UdpBufferStatus},
    storage::StorageSpec,
};
use crate::shared::ResourceSpec;

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

fn one() -> i32 {
    1
}
