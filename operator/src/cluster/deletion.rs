//! What deleting a FelixCluster does beyond the garbage collector: with `deletionPolicy: Delete` claims and CA go, too.
//!
//! Only then does the object carry our finalizer: with Retain there is nothing to do, and nobody has to be there for it.

use felix_crds::{DeletionPolicy, FelixCluster};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolumeClaim, Secret},
};
use kube::{Api, ResourceExt, api::PropagationPolicy};

use super::{
    dereference::{Observed, Workload},
    validate::identify,
};
use crate::{apply::delete_same, context::Context, finalizer, names::CLUSTER_ID_LABEL};

/// How far a deletion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Nothing is left to do for us.
    Done,
    /// Pods must stop first.
    Waiting,
}

/// Adds or removes our finalizer, as the policy asks.
pub(crate) async fn keep_finalizer(context: &Context, cluster: &FelixCluster) -> Result<(), kube::Error> {
    let wanted = match cluster.spec.storage.deletion_policy {
        DeletionPolicy::Delete => true,
        DeletionPolicy::Retain => false,
    };
    finalizer::keep(context, cluster, wanted).await
}

/// Does what the policy asks for an object that is being deleted. May be interrupted anywhere.
pub(crate) async fn finish(context: &Context, observed: &Observed) -> Result<Farewell, kube::Error> {
    let cluster = &observed.cluster;
    if !finalizer::is_on(cluster) {
        return Ok(Farewell::Done);
    }
    if cluster.spec.storage.deletion_policy == DeletionPolicy::Delete {
        let namespace = observed.names.namespace();
        // The StatefulSet first: it would make its claims anew.
        if let Some(stateful_set) = &observed.workload.stateful_set {
            let api: Api<StatefulSet> = context.api(namespace);
            delete_same(&api, stateful_set, PropagationPolicy::Background).await?;
            return Ok(Farewell::Waiting);
        }
        if !observed.workload.pods.is_empty() {
            return Ok(Farewell::Waiting);
        }
        let id = identify(observed);
        let claims: Api<PersistentVolumeClaim> = context.api(namespace);
        for claim in claims_of(&observed.workload, &id) {
            delete_same(&claims, claim, PropagationPolicy::Background).await?;
        }
        if let Some(ca) = &observed.ca {
            let secrets: Api<Secret> = context.api(namespace);
            delete_same(&secrets, ca, PropagationPolicy::Background).await?;
        }
    }
    finalizer::keep(context, cluster, false).await?;
    Ok(Farewell::Done)
}

/// The claims of this very cluster; those of another one with the same name stay.
fn claims_of<'a>(workload: &'a Workload, id: &'a str) -> impl Iterator<Item = &'a PersistentVolumeClaim> {
    workload.claims.iter().filter(move |claim| {
        let ours = claim
            .labels()
            .get(CLUSTER_ID_LABEL)
            .is_some_and(|label| label == id);
        ours && claim.metadata.deletion_timestamp.is_none()
    })
}
