//! Volumes that are bound and smaller than what is asked for: the operator asks for the missing bytes in their claims.
//!
//! A claim is only ever asked to be larger, and never deleted for its size. Whether a volume can grow is said by its
//! StorageClass and, where the operator may not read that, by the API server's answer.

use felix_crds::{ByteQuantity, Condition};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    dereference::Workload,
    facts::{Class, class},
    status::STORAGE_BOUND,
    storage::is_bound,
    validate::ValidatedCluster,
};
use crate::{
    apply::{is_forbidden, is_invalid},
    context::Context,
    names::FIELD_MANAGER,
};

/// The reason of the condition while a volume cannot grow.
pub(crate) const CANNOT_GROW: &str = "CannotGrow";

/// What there is to do about the size of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// It is large enough, or has no volume yet.
    Enough,
    /// It has been asked for more and does not have it yet.
    UnderWay {
        /// What it has, in bytes.
        has: i64,
    },
    /// It must be asked for more.
    Short {
        /// What it has, in bytes.
        has: i64,
    },
}

/// Why a claim cannot be asked for more, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The claim.
    pub(crate) claim: String,
    /// For people.
    pub(crate) why: String,
}

/// Compares what a claim has and asks for with what is wanted.
pub(crate) fn size(claim: &PersistentVolumeClaim, wanted: i64) -> Size {
    let bytes = |text: &str| ByteQuantity::new(text).bytes().ok();
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    let has = capacity.and_then(|amounts| bytes(&amounts.get("storage")?.0));
    let Some(has) = has.filter(|has| *has < wanted && is_bound(claim) && !is_leaving(claim)) else {
        return Size::Enough;
    };
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let asked = resources.and_then(|resources| bytes(&resources.requests.as_ref()?.get("storage")?.0));
    if asked.is_some_and(|asked| asked >= wanted) {
        Size::UnderWay { has }
    } else {
        Size::Short { has }
    }
}

/// Whether a claim is being deleted: it goes with its pod.
pub(crate) fn is_leaving(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

/// Asks for what is missing in the claims of `workload`, which are as the API server has them afterwards. What
/// the API server refused before is not asked again before the spec has changed.
pub(crate) async fn grow(
    context: &Context,
    cluster: &ValidatedCluster,
    workload: &mut Workload,
    refused_before: bool,
) -> Result<Vec<Refusal>, kube::Error> {
    let names: Vec<String> = (0..cluster.replicas).map(|n| cluster.names.claim(n)).collect();
    let mut refusals = Vec::new();
    for claim in &mut workload.claims {
        let short = matches!(size(claim, cluster.storage.size_bytes), Size::Short { .. });
        if !short || !names.contains(&claim.name_any()) {
            continue;
        }
        match ask(context, claim, &cluster.storage.size, refused_before).await? {
            Ok(asked) => *claim = asked,
            Err(why) => refusals.push(Refusal {
                claim: claim.name_any(),
                why,
            }),
        }
    }
    Ok(refusals)
}

/// Whether the API server has refused for this generation of the spec.
pub(crate) fn refused_before(conditions: &[Condition], generation: i64) -> bool {
    conditions.iter().any(|condition| {
        condition.kind == STORAGE_BOUND
            && condition.reason == CANNOT_GROW
            && condition.observed_generation == generation
    })
}

async fn ask(
    context: &Context,
    claim: &PersistentVolumeClaim,
    size: &str,
    refused_before: bool,
) -> Result<Result<PersistentVolumeClaim, String>, kube::Error> {
    let name = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.clone())
        .unwrap_or_default();
    if name.is_empty() {
        return Ok(Err(
            "a volume without a StorageClass has nobody to make it larger".to_owned(),
        ));
    }
    match class(context, &name).await? {
        Class::Missing => Ok(Err(format!(
            "its StorageClass {name:?} does not exist any more: make it again"
        ))),
        Class::Found(class) if class.allow_volume_expansion != Some(true) => Ok(Err(format!(
            "its StorageClass {name:?} does not allow it: if its driver can make volumes larger, set \
             allowVolumeExpansion: true there"
        ))),
        Class::Found(_) => try_to_ask(context, claim, size).await,
        // Whether that has changed nobody tells: the operator may not read classes here.
        Class::Hidden if refused_before => Ok(Err(format!(
            "the API server has refused it: set allowVolumeExpansion: true in its StorageClass {name:?} if its driver \
             can make volumes larger, see that no quota is in the way, then write spec.storage.size anew"
        ))),
        Class::Hidden => try_to_ask(context, claim, size).await,
    }
}

/// One request, for the claim as it was read.
async fn try_to_ask(
    context: &Context,
    claim: &PersistentVolumeClaim,
    size: &str,
) -> Result<Result<PersistentVolumeClaim, String>, kube::Error> {
    let body = json!({
        "metadata": { "uid": claim.uid(), "resourceVersion": claim.resource_version() },
        "spec": { "resources": { "requests": { "storage": size } } },
    });
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    tracing::info!(claim = %claim.name_any(), size, "asking for a larger volume");
    let api: Api<PersistentVolumeClaim> = context.api(&claim.namespace().unwrap_or_default());
    match api.patch(&claim.name_any(), &params, &Patch::Merge(&body)).await {
        Ok(asked) => Ok(Ok(asked)),
        Err(error) if is_forbidden(&error) || is_invalid(&error) => {
            Ok(Err(format!("the API server refuses it: {error}")))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(phase: &str, asked: &str, has: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": { "name": "data-demo-broker-0" },
            "spec": { "resources": { "requests": { "storage": asked } } },
            "status": { "phase": phase, "capacity": { "storage": has } },
        }))
        .unwrap()
    }

    #[test]
    fn only_a_bound_volume_that_is_too_small_is_asked_to_grow_and_only_once() {
        let gibibyte = 1 << 30;
        let size = |claim: &PersistentVolumeClaim| size(claim, 2 * gibibyte);
        assert_eq!(size(&claim("Bound", "1Gi", "1Gi")), Size::Short { has: gibibyte });
        assert_eq!(
            size(&claim("Bound", "2Gi", "1Gi")),
            Size::UnderWay { has: gibibyte }
        );
        assert_eq!(size(&claim("Bound", "2Gi", "2Gi")), Size::Enough);
        // A volume may be larger than was asked for; it is never asked to shrink.
        assert_eq!(size(&claim("Bound", "1Gi", "3Gi")), Size::Enough);
        assert_eq!(size(&claim("Bound", "3Gi", "3Gi")), Size::Enough);
        assert_eq!(size(&claim("Pending", "1Gi", "1Gi")), Size::Enough);
        let mut leaving = claim("Bound", "1Gi", "1Gi");
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(size(&leaving), Size::Enough);
    }
}
