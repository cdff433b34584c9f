//! Parts of a spec that more than one kind has.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{ByteQuantity, CpuQuantity};

/// A FelixCluster in the same namespace.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterReference {
    /// Its name.
    #[schemars(length(min = 1, max = 40))]
    pub name: String,
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
