//! The claim template of the StatefulSet.

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};

use crate::{
    cluster::{
        storage::{ClaimTemplate, requested_text},
        validate::ValidatedCluster,
    },
    names::{CLAIM_TEMPLATE, REQUESTED_STORAGE, string_map},
};

/// An absent class stays absent: the API server then puts in the default one, if there is one.
pub(super) fn template(cluster: &ValidatedCluster, claims: &ClaimTemplate) -> PersistentVolumeClaim {
    let size = [("storage".to_owned(), Quantity(claims.size.clone()))];
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(CLAIM_TEMPLATE.to_owned()),
            labels: Some(cluster.names.lasting_labels(&cluster.cluster_id)),
            annotations: Some(string_map([(REQUESTED_STORAGE, requested_text(claims).as_str())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: claims.class.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(size.into_iter().collect()),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
