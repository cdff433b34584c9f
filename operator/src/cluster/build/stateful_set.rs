//! The StatefulSet of the brokers.

use k8s_openapi::{
    api::{
        apps::v1::{
            StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
            StatefulSetUpdateStrategy,
        },
        core::v1::ConfigMap,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{claims, metadata::owned, pod};
use crate::cluster::{storage::ClaimTemplate, validate::ValidatedCluster};

/// All pods at once (brokers need each other to become ready), restarted by the operator alone, and claims that outlive
/// whatever happens to the StatefulSet.
pub(super) fn stateful_set(
    cluster: &ValidatedCluster,
    claims: &ClaimTemplate,
    config: &ConfigMap,
) -> StatefulSet {
    StatefulSet {
        metadata: owned(cluster, cluster.names.broker()),
        spec: Some(StatefulSetSpec {
            replicas: Some(cluster.replicas),
            service_name: Some(cluster.names.headless_service()),
            selector: LabelSelector {
                match_labels: Some(cluster.names.selector()),
                ..LabelSelector::default()
            },
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                rolling_update: None,
            }),
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some("Retain".to_owned()),
                when_scaled: Some("Retain".to_owned()),
            }),
            template: pod::template(cluster, config),
            volume_claim_templates: Some(vec![claims::template(cluster, claims)]),
            ..StatefulSetSpec::default()
        }),
        status: None,
    }
}
