//! How clients reach the brokers: UDP buffers, certificates, authentication, the Service.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;

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

fn eight_mebibytes() -> i64 {
    8 << 20
}
