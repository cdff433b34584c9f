//! What deleting a FelixCluster does beyond the garbage collector: with `deletionPolicy: Delete` claims and CA go, too.
//!
//! Only then does the object carry our finalizer: with Retain there is nothing to do, and nobody has to be there for it.

use felix_crds::{DeletionPolicy, FelixCluster};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolumeClaim, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PropagationPolicy},
};
use serde_json::json;

use super::{
    dereference::{Observed, Workload},
    validate::identify,
};
use crate::{
    apply::{delete_same, is_not_found},
    context::Context,
    names::{CLUSTER_ID_LABEL, FIELD_MANAGER, FINALIZER},
};

/// How far a deletion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Nothing is left to do for us.
    Done,
    /// Pods must stop first.
    Waiting,
}

/// Adds or removes our finalizer, as the policy asks. True: it was written.
pub(crate) async fn keep_finalizer(context: &Context, cluster: &FelixCluster) -> Result<bool, kube::Error> {
    let wanted = match cluster.spec.storage.deletion_policy {
        DeletionPolicy::Delete => true,
        DeletionPolicy::Retain => false,
    };
    if wanted == has_finalizer(cluster) {
        return Ok(false);
    }
    set_finalizer(context, cluster, wanted).await?;
    Ok(true)
}

/// Does what the policy asks for an object that is being deleted. May be interrupted anywhere.
pub(crate) async fn finish(context: &Context, observed: &Observed) -> Result<Farewell, kube::Error> {
    let cluster = &observed.cluster;
    if !has_finalizer(cluster) {
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
    match set_finalizer(context, cluster, false).await {
        Err(error) if is_not_found(&error) => Ok(Farewell::Done),
        result => result.map(|()| Farewell::Done),
    }
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

fn has_finalizer(cluster: &FelixCluster) -> bool {
    cluster
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == FINALIZER)
}

/// With the resource version, so that no other finalizer is lost.
async fn set_finalizer(context: &Context, cluster: &FelixCluster, wanted: bool) -> Result<(), kube::Error> {
    let mut finalizers: Vec<String> = cluster
        .finalizers()
        .iter()
        .filter(|f| *f != FINALIZER)
        .cloned()
        .collect();
    if wanted {
        finalizers.push(FINALIZER.to_owned());
    }
    let patch = json!({
        "metadata": { "resourceVersion": cluster.resource_version(), "finalizers": finalizers },
    });
    let api: Api<FelixCluster> = context.api(&cluster.namespace().unwrap_or_default());
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    api.patch(&cluster.name_any(), &params, &Patch::Merge(patch))
        .await
        .map(drop)
}
