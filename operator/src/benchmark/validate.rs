//! From a FelixBenchmark and what it points at to a checked run. Pure.

use std::collections::BTreeMap;

use felix_crds::{
    BenchmarkPhase, Condition, ConditionStatus, FelixBenchmark, FelixCluster, FelixStream, LatencySpec,
    PullPolicy, ResourceAmounts, ResourceSpec,
};
use k8s_openapi::{
    api::core::v1::{LocalObjectReference, ResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::OwnerReference},
};
use kube::{Resource, ResourceExt};

use super::verdict::Progress;
use crate::names::ClusterNames;

/// The longest part of a benchmark's own name in the names of its objects: an Indexed Job's host names (name, hyphen,
/// index) must fit 63 bytes beside the uid of 36.
const NAME_PART: usize = 20;

/// What the benchmark points at.
pub(crate) struct Found {
    /// The FelixCluster, where it exists.
    pub(crate) cluster: Option<FelixCluster>,
    /// The FelixStream, where it exists.
    pub(crate) stream: Option<FelixStream>,
}

/// A run that can be made.
#[derive(Clone, Debug)]
pub(crate) struct ValidatedRun {
    /// Name of the Job and of everything beside it; it carries the uid, so that a namesake never meets it.
    pub(crate) name: String,
    /// Name of the FelixBenchmark.
    pub(crate) benchmark: String,
    /// Namespace of all of it.
    pub(crate) namespace: String,
    /// Makes the objects go with the FelixBenchmark.
    pub(crate) owner: OwnerReference,
    /// Name of the FelixCluster.
    pub(crate) cluster: String,
    /// Host and UDP port to dial.
    pub(crate) address: String,
    /// The stream's name at the broker.
    pub(crate) stream: String,
    /// Command-line arguments that say which rows to run.
    pub(crate) rows: Vec<String>,
    /// Seconds from the Job's start to its end at the latest.
    pub(crate) deadline_seconds: i64,
    /// What the pod may use.
    pub(crate) resources: ResourceRequirements,
    /// The image.
    pub(crate) image: String,
    /// When the kubelet pulls it: as it pulls the cluster's brokers.
    pub(crate) pull_policy: PullPolicy,
    /// Secrets to pull it with, from the FelixCluster.
    pub(crate) pull_secrets: Vec<LocalObjectReference>,
    /// Whether the Job begins suspended.
    pub(crate) suspend: bool,
}

/// Name of the Job of a benchmark, from its name and uid.
pub(crate) fn run_name(benchmark: &FelixBenchmark) -> String {
    let plain = benchmark.name_any().replace('.', "-");
    let part: String = plain.chars().take(NAME_PART).collect();
    format!(
        "{}-{}",
        part.trim_end_matches('-'),
        benchmark.uid().unwrap_or_default()
    )
}

/// Checks everything that a run needs. What is missing and may still come is a pending progress; what cannot become
/// right is a failed one.
pub(crate) fn validate(
    benchmark: &FelixBenchmark,
    found: &Found,
    image: &str,
) -> Result<ValidatedRun, Progress> {
    felix_crds::check(benchmark).map_err(|errors| invalid(errors.to_string()))?;
    let spec = &benchmark.spec;
    let namespace = benchmark.namespace().unwrap_or_default();
    let owner = benchmark
        .controller_owner_ref(&())
        .ok_or_else(|| invalid("the object has no uid"))?;
    let cluster = ready_cluster(&spec.cluster_ref.name, found.cluster.as_ref())?;
    let stream = ready_stream(benchmark, found.stream.as_ref())?;
    let deadline = spec
        .deadline
        .duration()
        .map_err(|error| invalid(format!("spec.deadline: {error}")))?;
    if deadline.is_zero() {
        return Err(invalid("spec.deadline: give the run at least 1s"));
    }
    Ok(ValidatedRun {
        name: run_name(benchmark),
        benchmark: benchmark.name_any(),
        owner,
        cluster: cluster.name_any(),
        address: ClusterNames::new(&namespace, cluster.name_any()).client_address(),
        namespace,
        stream,
        rows: rows(&spec.latency)?,
        deadline_seconds: i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX),
        resources: resources(&spec.resources)?,
        image: image.to_owned(),
        pull_policy: cluster
            .spec
            .image
            .as_ref()
            .map(|image| image.pull_policy)
            .unwrap_or_default(),
        pull_secrets: pull_secrets(cluster),
        suspend: spec.suspend,
    })
}

fn invalid(message: impl Into<String>) -> Progress {
    Progress::new(BenchmarkPhase::Failed, "Invalid", message)
}

fn pending(reason: &'static str, message: String) -> Progress {
    Progress::new(BenchmarkPhase::Pending, reason, message)
}

fn ready_cluster<'a>(name: &str, cluster: Option<&'a FelixCluster>) -> Result<&'a FelixCluster, Progress> {
    let Some(cluster) = cluster else {
        return Err(pending(
            "ClusterMissing",
            format!("there is no FelixCluster {name} in this namespace: make it"),
        ));
    };
    let conditions = cluster
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    if holds_ready(conditions) {
        Ok(cluster)
    } else {
        Err(pending(
            "ClusterNotReady",
            format!("FelixCluster {name} is not ready; its conditions say why"),
        ))
    }
}

/// The stream's name at the broker, once the stream is there and belongs to the cluster.
fn ready_stream(benchmark: &FelixBenchmark, stream: Option<&FelixStream>) -> Result<String, Progress> {
    let name = &benchmark.spec.stream_ref.name;
    let Some(stream) = stream else {
        return Err(pending(
            "StreamMissing",
            format!("there is no FelixStream {name} in this namespace: make it"),
        ));
    };
    if stream.spec.cluster_ref != benchmark.spec.cluster_ref {
        return Err(invalid(format!(
            "spec.streamRef: FelixStream {name} is in FelixCluster {}, not in {}: name a stream of the cluster that is measured",
            stream.spec.cluster_ref.name, benchmark.spec.cluster_ref.name
        )));
    }
    let status = stream.status.as_ref();
    let ready = status.is_some_and(|status| holds_ready(&status.conditions));
    match status.and_then(|status| status.stream_name.clone()) {
        Some(resolved) if ready => Ok(resolved),
        Some(_) | None => Err(pending(
            "StreamNotReady",
            format!("FelixStream {name} is not ready; its conditions say why"),
        )),
    }
}

fn holds_ready(conditions: &[Condition]) -> bool {
    conditions
        .iter()
        .any(|c| c.kind == "Ready" && c.status == ConditionStatus::True)
}

fn rows(latency: &LatencySpec) -> Result<Vec<String>, Progress> {
    match (&latency.preset, &latency.rows) {
        (Some(preset), None) => Ok(vec![format!("--preset={}", preset.as_str())]),
        (None, Some(rows)) if !rows.is_empty() => Ok(rows
            .iter()
            .map(|row| {
                format!(
                    "--row=payload={},fanout={},batch={},total={},warmup={}",
                    row.payload_bytes, row.fanout, row.batch, row.records, row.warmup_records
                )
            })
            .collect()),
        (Some(_), Some(_)) | (None, Some(_) | None) => {
            Err(invalid("spec.latency: set either preset or rows"))
        }
    }
}

fn resources(spec: &ResourceSpec) -> Result<ResourceRequirements, Progress> {
    Ok(ResourceRequirements {
        requests: spec.requests.as_ref().map(amounts).transpose()?,
        limits: spec.limits.as_ref().map(amounts).transpose()?,
        claims: None,
    })
}

fn amounts(amounts: &ResourceAmounts) -> Result<BTreeMap<String, Quantity>, Progress> {
    let mut quantities = BTreeMap::new();
    if let Some(cpu) = &amounts.cpu {
        let cpu = cpu
            .canonical()
            .map_err(|error| invalid(format!("spec.resources: {error}")))?;
        quantities.insert("cpu".to_owned(), Quantity(cpu));
    }
    if let Some(memory) = &amounts.memory {
        let memory = memory
            .canonical()
            .map_err(|error| invalid(format!("spec.resources: {error}")))?;
        quantities.insert("memory".to_owned(), Quantity(memory));
    }
    Ok(quantities)
}

fn pull_secrets(cluster: &FelixCluster) -> Vec<LocalObjectReference> {
    let secrets = cluster.spec.image_pull_secrets.iter();
    secrets
        .map(|secret| LocalObjectReference {
            name: secret.name.clone(),
        })
        .collect()
}
