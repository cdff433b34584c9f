//! Reads that only explain a trouble: what Kubernetes says about claims without a volume and pods that do not come.

use k8s_openapi::api::{
    core::v1::{Event, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{dereference::Workload, status::StorageFacts, storage::is_bound, validate::ValidatedCluster};
use crate::{
    apply::{is_forbidden, is_not_found},
    context::Context,
};

/// Reads nothing while all claims are bound and all pods exist.
pub(crate) async fn gather(
    context: &Context,
    cluster: &ValidatedCluster,
    workload: &Workload,
) -> Result<StorageFacts, kube::Error> {
    let namespace = cluster.names.namespace();
    let mut facts = StorageFacts::default();
    if let Some(claim) = workload.claims.iter().find(|claim| !is_bound(claim)) {
        facts.unknown_class = unknown_class(context, claim).await?;
        facts.last_event = last_event(context, namespace, "PersistentVolumeClaim", &claim.name_any()).await?;
    } else if workload.stateful_set.is_some() && workload.pods.is_empty() {
        facts.last_event = last_event(context, namespace, "StatefulSet", &cluster.names.broker()).await?;
    }
    Ok(facts)
}

/// Storage classes belong to no namespace: an operator that looks after some namespaces only may not read them.
async fn unknown_class(
    context: &Context,
    claim: &PersistentVolumeClaim,
) -> Result<Option<String>, kube::Error> {
    let class = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.clone())
        .unwrap_or_default();
    if class.is_empty() {
        return Ok(None);
    }
    match Api::<StorageClass>::all(context.client.clone()).get(&class).await {
        Err(error) if is_not_found(&error) => Ok(Some(class)),
        Err(error) if is_forbidden(&error) => Ok(None),
        result => result.map(|_| None),
    }
}

/// The text of the newest event about an object; only warnings and what keeps a claim waiting are of interest.
async fn last_event(
    context: &Context,
    namespace: &str,
    kind: &str,
    name: &str,
) -> Result<Option<String>, kube::Error> {
    let about = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let events = match context
        .api::<Event>(namespace)
        .list(&ListParams::default().fields(&about))
        .await
    {
        Err(error) if is_forbidden(&error) => return Ok(None),
        result => result?.items,
    };
    let newest = events
        .into_iter()
        .filter(|event| event.message.is_some())
        .max_by_key(|event| {
            let time = event.last_timestamp.as_ref().map(|time| time.0);
            time.or_else(|| event.event_time.as_ref().map(|time| time.0))
        });
    Ok(newest.and_then(|event| event.message))
}
