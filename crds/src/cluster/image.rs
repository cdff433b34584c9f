//! The image of the brokers, and what it takes to pull it.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
