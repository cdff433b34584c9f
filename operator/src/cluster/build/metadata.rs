//! Metadata that the objects of a cluster share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cluster::validate::ValidatedCluster;

/// Of an object that goes with the FelixCluster.
pub(super) fn owned(cluster: &ValidatedCluster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.names.namespace().to_owned()),
        labels: Some(cluster.names.labels()),
        owner_references: Some(vec![cluster.owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// Of an object that outlives the FelixCluster: it has no owner and carries the cluster's identity.
pub(super) fn lasting(cluster: &ValidatedCluster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.names.namespace().to_owned()),
        labels: Some(cluster.names.lasting_labels(&cluster.cluster_id)),
        ..ObjectMeta::default()
    }
}
