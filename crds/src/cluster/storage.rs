//! The volume of each broker.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{quantity::ByteQuantity, shared::DeletionPolicy};

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
