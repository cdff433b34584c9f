//! Step two: from the raw object and what was read to a checked cluster. Pure; nothing after it looks at the raw spec.

use std::collections::BTreeMap;

use felix_crds::{
    BrokerConfigSpec, DeletionPolicy, FelixCluster, FelixClusterSpec, ImageSpec, PullPolicy, QuantityError,
    ResourceAmounts, SchedulingSpec, UdpBufferSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt};

use super::dereference::Observed;
use crate::names::{CLUSTER_ID_LABEL, ClusterNames};

/// How long a broker stays reachable after it was asked to go, so that clients and endpoints can follow, in seconds.
const PRE_STOP_SECONDS: i64 = 5;
/// What is left of the grace period after sleep and drain, in seconds.
const STOP_MARGIN_SECONDS: i64 = 10;

/// What of the operator's settings decides about a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Defaults {
    /// The image where the cluster names none.
    pub(crate) broker_image: String,
    /// The domain of this Kubernetes, where it is known.
    pub(crate) cluster_domain: Option<String>,
}

/// A cluster that can be built.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValidatedCluster {
    pub(crate) names: ClusterNames,
    pub(crate) owner: OwnerReference,
    pub(crate) cluster_id: String,
    pub(crate) replicas: i32,
    pub(crate) image: Image,
    pub(crate) pull_secrets: Vec<String>,
    pub(crate) resources: Resources,
    pub(crate) storage: StorageRequest,
    pub(crate) deletion_policy: DeletionPolicy,
    pub(crate) udp_buffers: UdpBufferSpec,
    /// Every name that the server certificate carries.
    pub(crate) certificate_names: Vec<String>,
    pub(crate) service_labels: BTreeMap<String, String>,
    pub(crate) service_annotations: BTreeMap<String, String>,
    pub(crate) scheduling: SchedulingSpec,
    pub(crate) config: BrokerConfigSpec,
    pub(crate) stop: StopTimes,
}

/// The image of the brokers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Repository with tag or digest.
    pub(crate) reference: String,
    pub(crate) pull_policy: PullPolicy,
    /// The default that this cluster keeps, once it was needed.
    pub(crate) kept_default: Option<String>,
}

/// Requests and limits in canonical spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) requests: BTreeMap<String, String>,
    pub(crate) limits: BTreeMap<String, String>,
}

/// What is asked of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageRequest {
    /// In canonical spelling.
    pub(crate) size: String,
    pub(crate) size_bytes: i64,
    /// Absent: the default class. Empty: none.
    pub(crate) class: Option<String>,
}

/// How long stopping takes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StopTimes {
    pub(crate) pre_stop: i64,
    pub(crate) drain: i64,
    /// More than both together.
    pub(crate) grace: i64,
}

/// Why a cluster cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidCluster {
    /// A rule of the definition does not hold; an older definition in this Kubernetes let it through.
    #[error("{0}")]
    Rules(String),
    /// A quantity has no value.
    #[error("{field}: {error}")]
    Quantity {
        field: &'static str,
        error: QuantityError,
    },
}

/// Checks a cluster.
pub(crate) fn validate(observed: &Observed, defaults: &Defaults) -> Result<ValidatedCluster, InvalidCluster> {
    let cluster = &observed.cluster;
    felix_crds::check(cluster).map_err(|errors| InvalidCluster::Rules(errors.to_string()))?;
    let spec = &cluster.spec;
    let service = spec.client_service.clone().unwrap_or_default();
    Ok(ValidatedCluster {
        owner: owner(cluster),
        cluster_id: identify(observed),
        replicas: spec.replicas,
        image: image(cluster, &defaults.broker_image),
        pull_secrets: spec
            .image_pull_secrets
            .iter()
            .map(|secret| secret.name.clone())
            .collect(),
        resources: Resources {
            requests: amounts(spec.resources.requests.as_ref(), "spec.resources.requests")?,
            limits: amounts(spec.resources.limits.as_ref(), "spec.resources.limits")?,
        },
        storage: storage(spec)?,
        deletion_policy: spec.storage.deletion_policy,
        udp_buffers: spec.udp_buffers,
        certificate_names: certificate_names(&observed.names, spec, defaults.cluster_domain.as_deref()),
        service_labels: service.labels,
        service_annotations: service.annotations,
        scheduling: spec.scheduling.clone().unwrap_or_default(),
        stop: stop_times(&spec.config),
        config: spec.config.clone(),
        names: observed.names.clone(),
    })
}

/// The identity of a cluster: what outlived an object of that name before, else what was written down, else the
/// first object's own uid. It needs no random number, so a crash before it was stored changes nothing.
pub(crate) fn identify(observed: &Observed) -> String {
    let label = |labels: &BTreeMap<String, String>| labels.get(CLUSTER_ID_LABEL).cloned();
    let of_ca = observed.ca.as_ref().and_then(|ca| label(ca.labels()));
    let of_claims = || {
        observed
            .workload
            .claims
            .iter()
            .find_map(|claim| label(claim.labels()))
    };
    let written = || {
        observed
            .cluster
            .status
            .as_ref()
            .and_then(|status| status.cluster_id.clone())
    };
    of_ca
        .or_else(of_claims)
        .or_else(written)
        .or_else(|| observed.cluster.uid())
        .unwrap_or_else(|| observed.cluster.name_any())
}

fn owner(cluster: &FelixCluster) -> OwnerReference {
    OwnerReference {
        api_version: FelixCluster::api_version(&()).into_owned(),
        kind: FelixCluster::kind(&()).into_owned(),
        name: cluster.name_any(),
        uid: cluster.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn image(cluster: &FelixCluster, default: &str) -> Image {
    let spec = cluster.spec.image.clone().unwrap_or_default();
    let kept = cluster
        .status
        .as_ref()
        .and_then(|status| status.default_image.clone());
    match explicit_image(&spec) {
        Some(reference) => Image {
            reference,
            pull_policy: spec.pull_policy,
            kept_default: kept,
        },
        None => {
            let reference = kept.unwrap_or_else(|| default.to_owned());
            Image {
                reference: reference.clone(),
                pull_policy: spec.pull_policy,
                kept_default: Some(reference),
            }
        }
    }
}

/// A digest wins over a tag.
fn explicit_image(spec: &ImageSpec) -> Option<String> {
    let repository = spec.repository.as_ref()?;
    match (&spec.digest, &spec.tag) {
        (Some(digest), _) => Some(format!("{repository}@{digest}")),
        (None, Some(tag)) => Some(format!("{repository}:{tag}")),
        (None, None) => None,
    }
}

fn amounts(
    amounts: Option<&ResourceAmounts>,
    field: &'static str,
) -> Result<BTreeMap<String, String>, InvalidCluster> {
    let mut out = BTreeMap::new();
    let quantity = |error| InvalidCluster::Quantity { field, error };
    let Some(amounts) = amounts else { return Ok(out) };
    if let Some(cpu) = &amounts.cpu {
        out.insert("cpu".to_owned(), cpu.canonical().map_err(quantity)?);
    }
    if let Some(memory) = &amounts.memory {
        out.insert("memory".to_owned(), memory.canonical().map_err(quantity)?);
    }
    Ok(out)
}

fn storage(spec: &FelixClusterSpec) -> Result<StorageRequest, InvalidCluster> {
    let quantity = |error| InvalidCluster::Quantity {
        field: "spec.storage.size",
        error,
    };
    Ok(StorageRequest {
        size: spec.storage.size.canonical().map_err(quantity)?,
        size_bytes: spec.storage.size.bytes().map_err(quantity)?,
        class: spec.storage.class_name.clone(),
    })
}

/// The Services and the pods behind the headless one, short and long, and what the user adds.
fn certificate_names(names: &ClusterNames, spec: &FelixClusterSpec, domain: Option<&str>) -> Vec<String> {
    let namespace = names.namespace();
    let mut all = Vec::new();
    for base in [names.client_service(), format!("*.{}", names.headless_service())] {
        all.push(base.clone());
        all.push(format!("{base}.{namespace}"));
        all.push(format!("{base}.{namespace}.svc"));
        all.extend(domain.map(|domain| format!("{base}.{namespace}.svc.{domain}")));
    }
    for extra in &spec.tls.extra_names {
        if !all.contains(extra) {
            all.push(extra.clone());
        }
    }
    all
}

fn stop_times(config: &BrokerConfigSpec) -> StopTimes {
    let drain = i64::from(config.drain_timeout_seconds);
    StopTimes {
        pre_stop: PRE_STOP_SECONDS,
        drain,
        grace: PRE_STOP_SECONDS + drain + STOP_MARGIN_SECONDS,
    }
}

#[cfg(test)]
mod tests;
