//! The condition StorageBound.

use felix_crds::Finding;
use kube::ResourceExt;

use super::{Outcome, STORAGE_BOUND};
use crate::cluster::{
    storage::{difference, is_bound},
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
        if let Some(difference) = difference(claim, &cluster.storage) {
            return Finding::yes(STORAGE_BOUND, "Differs", format!("claim {name}: {difference}"));
        }
    }
    Finding::yes(STORAGE_BOUND, "Bound", "every broker has its volume")
}

fn unbound(claim: &str, outcome: &Outcome) -> Finding {
    let facts = &outcome.said;
    let told = facts
        .claim_event
        .as_ref()
        .map(|event| format!(" Kubernetes says: {event}"))
        .unwrap_or_default();
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
            format!("claim {claim} has no volume yet.{told}"),
        ),
    }
}
