//! What to do about claims: they are made by the StatefulSet, whose claim template cannot change. Pure.
//!
//! A bound claim is never made anew (see `growth.rs` for its size). Claims that never found a volume are made again when class or size is corrected:
//! the StatefulSet is orphaned first (its pods stay), then the unbound claims go, then the StatefulSet is made anew.
//! Each step is decided from what is there, so it may be interrupted anywhere.

use felix_crds::ByteQuantity;
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::PersistentVolumeClaim};
use kube::ResourceExt;

use super::{
    dereference::Workload,
    validate::{StorageRequest, ValidatedCluster},
};
use crate::names::{CLUSTER_ID_LABEL, REQUESTED_STORAGE};

/// What the claim template asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimTemplate {
    /// In canonical spelling.
    pub(crate) size: String,
    pub(crate) class: Option<String>,
}

/// What must be done before the StatefulSet can be applied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Correction {
    /// Delete the StatefulSet and leave its pods: its template is wrong and a claim has no volume.
    Orphan,
    /// Delete these claims without a volume, and the pods that wait for them.
    DeleteUnbound(Vec<PersistentVolumeClaim>),
    /// Wait for claims that are on their way out.
    Wait(String),
    /// Claims of another cluster have our names; a person must decide.
    Foreign(String),
}

impl ClaimTemplate {
    /// As the cluster asks now.
    pub(crate) fn wanted(cluster: &ValidatedCluster) -> Self {
        Self {
            size: cluster.storage.size.clone(),
            class: cluster.storage.class.clone(),
        }
    }
}

/// The claim template to apply the StatefulSet with, or what must be done first.
pub(crate) fn plan(cluster: &ValidatedCluster, workload: &Workload) -> Result<ClaimTemplate, Correction> {
    let wanted = ClaimTemplate::wanted(cluster);
    if let Some(message) = foreign(cluster, workload) {
        return Err(Correction::Foreign(message));
    }
    let unbound = |claim: &&PersistentVolumeClaim| !is_bound(claim);
    if let Some(live) = workload.stateful_set.as_ref().and_then(template_of) {
        let has_unbound = workload.claims.is_empty() || workload.claims.iter().any(|claim| unbound(&claim));
        let same = live == wanted;
        return if same || !has_unbound {
            Ok(live)
        } else {
            Err(Correction::Orphan)
        };
    }
    if let Some(leaving) = workload
        .claims
        .iter()
        .find(|claim| claim.metadata.deletion_timestamp.is_some())
    {
        return Err(Correction::Wait(format!(
            "claim {} is being deleted",
            leaving.name_any()
        )));
    }
    let wrong: Vec<_> = workload
        .claims
        .iter()
        .filter(unbound)
        .filter(|claim| !was_made_for(claim, &wanted))
        .cloned()
        .collect();
    if wrong.is_empty() {
        Ok(wanted)
    } else {
        Err(Correction::DeleteUnbound(wrong))
    }
}

/// Whether a claim has found its volume.
pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
        || claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some())
}

/// What a claim says that it was made for.
pub(crate) fn requested_text(template: &ClaimTemplate) -> String {
    match &template.class {
        Some(class) => format!("size={} class={class:?}", template.size),
        None => format!("size={}", template.size),
    }
}

/// Whether the volume of a claim is no more. Its name is still in the claim.
pub(crate) fn is_lost(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost")
}

/// Whether a claim that is bound has another class than is asked for now; tells what.
pub(crate) fn other_class(claim: &PersistentVolumeClaim, wanted: &StorageRequest) -> Option<String> {
    let has = claim.spec.as_ref()?.storage_class_name.as_ref();
    let class = wanted.class.as_ref().filter(|class| has != Some(*class))?;
    let has = has.map(String::as_str).unwrap_or_default();
    Some(format!(
        "it keeps class {has:?}, spec.storage.className {class:?} is for new volumes only"
    ))
}

fn foreign(cluster: &ValidatedCluster, workload: &Workload) -> Option<String> {
    let other = |claim: &&PersistentVolumeClaim| {
        claim
            .labels()
            .get(CLUSTER_ID_LABEL)
            .is_some_and(|id| *id != cluster.cluster_id)
    };
    let claim = workload.claims.iter().find(other)?;
    Some(format!(
        "claim {} belongs to the cluster with the id {}, this one has {}: to use its data, delete the Secret {} (the CA \
         of this cluster); to give it up, delete the claim",
        claim.name_any(),
        claim.labels().get(CLUSTER_ID_LABEL).map_or("", String::as_str),
        cluster.cluster_id,
        cluster.names.ca(),
    ))
}

fn template_of(stateful_set: &StatefulSet) -> Option<ClaimTemplate> {
    let template = stateful_set
        .spec
        .as_ref()?
        .volume_claim_templates
        .as_ref()?
        .first()?;
    let spec = template.spec.as_ref()?;
    let size = spec.resources.as_ref()?.requests.as_ref()?.get("storage")?;
    let canonical = ByteQuantity::new(size.0.clone())
        .canonical()
        .unwrap_or_else(|_| size.0.clone());
    Some(ClaimTemplate {
        size: canonical,
        class: spec.storage_class_name.clone(),
    })
}

/// A claim that somebody else made is taken as it is.
fn was_made_for(claim: &PersistentVolumeClaim, wanted: &ClaimTemplate) -> bool {
    claim
        .annotations()
        .get(REQUESTED_STORAGE)
        .is_none_or(|text| *text == requested_text(wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::test_support::validated;

    fn claim(phase: &str, class: Option<&str>, size: &str, id: &str) -> PersistentVolumeClaim {
        let template = ClaimTemplate {
            size: size.to_owned(),
            class: class.map(str::to_owned),
        };
        let claim = json!({
            "metadata": {
                "name": "data-demo-broker-0",
                "labels": { "felix.dev/cluster-id": id },
                "annotations": { "felix.dev/requested-storage": requested_text(&template) },
            },
            "spec": { "storageClassName": class, "resources": { "requests": { "storage": size } } },
            "status": { "phase": phase },
        });
        serde_json::from_value(claim).unwrap()
    }

    fn stateful_set(class: Option<&str>, size: &str) -> StatefulSet {
        let set = json!({
            "spec": {
                "serviceName": "demo-brokers", "selector": {}, "template": {},
                "volumeClaimTemplates": [{
                    "metadata": { "name": "data" },
                    "spec": { "storageClassName": class, "resources": { "requests": { "storage": size } } },
                }],
            },
        });
        serde_json::from_value(set).unwrap()
    }

    fn cluster(class: Option<&str>, size: &str) -> ValidatedCluster {
        let mut cluster = validated();
        cluster.storage = StorageRequest {
            size: size.to_owned(),
            size_bytes: ByteQuantity::new(size).bytes().unwrap(),
            class: class.map(str::to_owned),
        };
        cluster
    }

    fn template(class: Option<&str>, size: &str) -> ClaimTemplate {
        ClaimTemplate {
            size: size.to_owned(),
            class: class.map(str::to_owned),
        }
    }

    const ID: &str = crate::cluster::test_support::CLUSTER_ID;

    #[test]
    fn a_new_cluster_gets_what_it_asks_for() {
        let step = plan(&cluster(Some("fast"), "1Gi"), &Workload::default());
        assert_eq!(step, Ok(template(Some("fast"), "1Gi")));
    }

    #[test]
    fn a_corrected_class_goes_through_orphan_delete_and_apply() {
        let wanted = cluster(Some("fast"), "1Gi");
        let pending = claim("Pending", Some("fsat"), "1Gi", ID);
        let mut workload = Workload {
            stateful_set: Some(stateful_set(Some("fsat"), "1Gi")),
            claims: vec![pending.clone()],
            ..Workload::default()
        };
        assert_eq!(plan(&wanted, &workload), Err(Correction::Orphan));
        workload.stateful_set = None;
        assert_eq!(
            plan(&wanted, &workload),
            Err(Correction::DeleteUnbound(vec![pending.clone()]))
        );
        let mut leaving = pending;
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        workload.claims = vec![leaving];
        assert!(matches!(plan(&wanted, &workload), Err(Correction::Wait(_))));
        workload.claims.clear();
        assert_eq!(plan(&wanted, &workload), Ok(template(Some("fast"), "1Gi")));
    }

    #[test]
    fn a_class_that_is_left_out_later_is_a_correction_too() {
        let pending = claim("Pending", Some("fsat"), "1Gi", ID);
        let workload = Workload {
            claims: vec![pending.clone()],
            ..Workload::default()
        };
        assert_eq!(
            plan(&cluster(None, "1Gi"), &workload),
            Err(Correction::DeleteUnbound(vec![pending]))
        );
    }

    #[test]
    fn a_bound_claim_keeps_the_template_it_was_made_from() {
        let workload = Workload {
            stateful_set: Some(stateful_set(Some("slow"), "1Gi")),
            claims: vec![claim("Bound", Some("slow"), "1Gi", ID)],
            ..Workload::default()
        };
        let step = plan(&cluster(Some("fast"), "2Gi"), &workload);
        assert_eq!(step, Ok(template(Some("slow"), "1Gi")));
    }

    #[test]
    fn a_kept_claim_without_a_stateful_set_is_used_again() {
        let workload = Workload {
            claims: vec![claim("Bound", Some("slow"), "1Gi", ID)],
            ..Workload::default()
        };
        assert_eq!(
            plan(&cluster(Some("fast"), "1Gi"), &workload),
            Ok(template(Some("fast"), "1Gi"))
        );
    }

    #[test]
    fn a_claim_of_another_cluster_stops_everything() {
        let workload = Workload {
            claims: vec![claim("Bound", None, "1Gi", "other")],
            ..Workload::default()
        };
        let Err(Correction::Foreign(message)) = plan(&cluster(None, "1Gi"), &workload) else {
            panic!("not refused")
        };
        assert!(
            message.contains("data-demo-broker-0") && message.contains("other"),
            "{message}"
        );
    }

    #[test]
    fn two_spellings_of_one_size_are_no_difference() {
        let workload = Workload {
            stateful_set: Some(stateful_set(None, "1536Mi")),
            claims: vec![claim("Pending", None, "1536Mi", ID)],
            ..Workload::default()
        };
        assert_eq!(
            plan(&cluster(None, "1536Mi"), &workload),
            Ok(template(None, "1536Mi"))
        );
    }
}
