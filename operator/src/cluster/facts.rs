//! Reads that only explain a trouble: what Kubernetes says about claims without a volume or with one that
//! grows, and about pods that do not come.

use k8s_openapi::api::{
    core::v1::{Event, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    dereference::Workload,
    growth::{Size, size},
    status::Explanations,
    storage::is_bound,
    validate::ValidatedCluster,
};
use crate::{
    apply::{is_forbidden, is_not_found},
    context::Context,
};

/// Reads nothing while all claims are bound and as large as they should be, and all pods exist.
pub(crate) async fn gather(
    context: &Context,
    cluster: &ValidatedCluster,
    workload: &Workload,
) -> Result<Explanations, kube::Error> {
    let namespace = cluster.names.namespace();
    let mut said = Explanations::default();
    let grows = |claim: &PersistentVolumeClaim| {
        matches!(size(claim, cluster.storage.size_bytes), Size::UnderWay { .. })
    };
    if let Some(claim) = workload
        .claims
        .iter()
        .find(|claim| !is_bound(claim) || grows(claim))
    {
        if !is_bound(claim) {
            said.unknown_class = unknown_class(context, claim).await?;
        }
        let about = About {
            kind: "PersistentVolumeClaim",
            name: &claim.name_any(),
            only: None,
        };
        said.claim_event = last_event(context, namespace, &about).await?;
    }
    if workload.stateful_set.is_some() && workload.pods.is_empty() {
        let about = About {
            kind: "StatefulSet",
            name: &cluster.names.broker(),
            only: Some("FailedCreate"),
        };
        said.pod_refused = last_event(context, namespace, &about).await?;
    }
    Ok(said)
}

/// What can be known of a storage class.
pub(crate) enum Class {
    /// It is there.
    Found(Box<StorageClass>),
    /// It does not exist.
    Missing,
    /// Storage classes belong to no namespace: an operator that looks after some namespaces only may not read them.
    Hidden,
}

/// Reads a storage class.
pub(crate) async fn class(context: &Context, name: &str) -> Result<Class, kube::Error> {
    match Api::<StorageClass>::all(context.client.clone()).get(name).await {
        Ok(class) => Ok(Class::Found(Box::new(class))),
        Err(error) if is_not_found(&error) => Ok(Class::Missing),
        Err(error) if is_forbidden(&error) => Ok(Class::Hidden),
        Err(error) => Err(error),
    }
}

async fn unknown_class(
    context: &Context,
    claim: &PersistentVolumeClaim,
) -> Result<Option<String>, kube::Error> {
    let name = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.clone())
        .unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    Ok(match class(context, &name).await? {
        Class::Missing => Some(name),
        Class::Found(_) | Class::Hidden => None,
    })
}

/// Which events are looked for.
struct About<'a> {
    kind: &'a str,
    name: &'a str,
    /// With this reason.
    only: Option<&'a str>,
}

/// The text of the newest event about an object.
async fn last_event(
    context: &Context,
    namespace: &str,
    about: &About<'_>,
) -> Result<Option<String>, kube::Error> {
    let mut fields = format!(
        "involvedObject.kind={},involvedObject.name={}",
        about.kind, about.name
    );
    if let Some(reason) = about.only {
        fields += &format!(",reason={reason}");
    }
    let events = match context
        .api::<Event>(namespace)
        .list(&ListParams::default().fields(&fields))
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
