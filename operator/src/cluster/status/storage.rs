//! The condition StorageBound.

use felix_crds::Finding;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;

use super::{Outcome, STORAGE_BOUND, workload::unscheduled};
use crate::cluster::{
    growth::{CANNOT_GROW, Size, is_leaving, size},
    storage::{is_bound, is_lost, other_class},
    validate::ValidatedCluster,
};

/// Whether every broker has its volume, and whether it is the one that is asked for.
pub(super) fn storage_bound(cluster: &ValidatedCluster, outcome: &Outcome) -> Finding {
    let claims = &outcome.workload.claims;
    if let Some(obstacle) = outcome.obstacle.as_ref().filter(|o| o.reason == "ForeignClaim") {
        return Finding::unknown(STORAGE_BOUND, obstacle.reason, &obstacle.message);
    }
    for ordinal in 0..cluster.replicas {
        let name = cluster.names.claim(ordinal);
        let Some(claim) = claims.iter().find(|claim| claim.name_any() == name) else {
            return Finding::unknown(
                STORAGE_BOUND,
                "NoClaim",
                format!("claim {name} does not exist yet"),
            );
        };
        if !is_bound(claim) {
            return unbound(&name, outcome);
        }
        if let Some(finding) = trouble(claim, cluster, outcome) {
            return finding;
        }
    }
    Finding::yes(STORAGE_BOUND, "Bound", "every broker has its volume")
}

/// What there is to say of a claim that has found its volume.
fn trouble(claim: &PersistentVolumeClaim, cluster: &ValidatedCluster, outcome: &Outcome) -> Option<Finding> {
    let name = claim.name_any();
    if is_lost(claim) {
        let message = format!(
            "claim {name} has lost its volume, and its data with it: delete the claim and the pod of that broker, which \
             then begins with an empty volume"
        );
        return Some(Finding::no(STORAGE_BOUND, "Lost", message));
    }
    if is_leaving(claim) {
        let message = format!("claim {name} is being deleted: it goes, with its data, when its pod goes");
        return Some(Finding::yes(STORAGE_BOUND, "Leaving", message));
    }
    if let Some(difference) = other_class(claim, &cluster.storage) {
        return Some(Finding::yes(
            STORAGE_BOUND,
            "Differs",
            format!("claim {name}: {difference}"),
        ));
    }
    let wanted = cluster.storage.size_bytes;
    match size(claim, wanted) {
        Size::Enough => None,
        Size::UnderWay { has } => {
            let message = format!(
                "claim {name} grows from {has} to {wanted} bytes.{}",
                told(outcome)
            );
            Some(Finding::yes(STORAGE_BOUND, "Growing", message))
        }
        Size::Short { has } => {
            let keeps = format!("claim {name} keeps {has} bytes, spec.storage.size asks for {wanted}");
            let refusal = outcome.refusals.iter().find(|refusal| refusal.claim == name);
            Some(match refusal {
                Some(refusal) => {
                    Finding::yes(STORAGE_BOUND, CANNOT_GROW, format!("{keeps}: {}", refusal.why))
                }
                None => Finding::yes(
                    STORAGE_BOUND,
                    "Differs",
                    format!("{keeps}; it is not asked for yet"),
                ),
            })
        }
    }
}

fn told(outcome: &Outcome) -> String {
    let event = outcome.said.claim_event.as_ref();
    event
        .map(|event| format!(" Kubernetes says: {event}"))
        .unwrap_or_default()
}

/// A class that binds late waits for the scheduler, which alone knows what is missing.
fn no_node(outcome: &Outcome) -> String {
    let mut pods = outcome.workload.pods.iter();
    let first = pods.find_map(|pod| Some((pod.name_any(), unscheduled(pod)?)));
    first
        .map(|(pod, message)| format!(" Pod {pod} finds no node: {message}"))
        .unwrap_or_default()
}

fn unbound(claim: &str, outcome: &Outcome) -> Finding {
    let facts = &outcome.said;
    let told = told(outcome);
    match &facts.unknown_class {
        Some(class) => Finding::no(
            STORAGE_BOUND,
            "UnknownStorageClass",
            format!(
                "claim {claim} waits for StorageClass {class:?}, which does not exist: correct spec.storage.className or \
                 make the class.{told}"
            ),
        ),
        None => Finding::no(
            STORAGE_BOUND,
            "Pending",
            format!("claim {claim} has no volume yet.{told}{}", no_node(outcome)),
        ),
    }
}
