//! The PodDisruptionBudget of a cluster.

use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};

use super::metadata::owned;
use crate::cluster::validate::ValidatedCluster;

/// At most one broker away at a time. It never forbids all evictions, as a minimum of one of one would, and one that is
/// not ready does not keep its own node from being drained.
pub(super) fn disruption_budget(cluster: &ValidatedCluster) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: owned(cluster, cluster.names.broker()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(cluster.names.selector()),
                ..LabelSelector::default()
            }),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
