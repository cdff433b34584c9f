//! What a FelixBenchmark points at, and what there is of its run.

use felix_crds::{FelixBenchmark, FelixCluster, FelixStream};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kube::{ResourceExt, api::ListParams};

use super::{
    summary::{SUMMARY_KEY, Summary, SummaryError},
    validate::{Found, run_name},
};
use crate::context::Context;

/// What there is of a run.
pub(crate) struct Run {
    /// The Job.
    pub(crate) job: Option<Job>,
    /// Its pods.
    pub(crate) pods: Vec<Pod>,
    /// The summary that the Job left.
    pub(crate) summary: Option<Result<Summary, SummaryError>>,
}

/// The cluster and the stream that a benchmark names.
pub(crate) async fn found(context: &Context, benchmark: &FelixBenchmark) -> Result<Found, kube::Error> {
    let namespace = benchmark.namespace().unwrap_or_default();
    Ok(Found {
        cluster: context
            .api::<FelixCluster>(&namespace)
            .get_opt(&benchmark.spec.cluster_ref.name)
            .await?,
        stream: context
            .api::<FelixStream>(&namespace)
            .get_opt(&benchmark.spec.stream_ref.name)
            .await?,
    })
}

/// The Job of a benchmark with all that hangs on it.
pub(crate) async fn run(context: &Context, benchmark: &FelixBenchmark) -> Result<Run, kube::Error> {
    let namespace = benchmark.namespace().unwrap_or_default();
    let name = run_name(benchmark);
    let job = context.api::<Job>(&namespace).get_opt(&name).await?;
    let of_the_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let pods = context.api::<Pod>(&namespace).list(&of_the_job).await?.items;
    let results = context.api::<ConfigMap>(&namespace).get_opt(&name).await?;
    let summary = results
        .and_then(|map| map.data?.remove(SUMMARY_KEY))
        .map(|text| Summary::parse(&text));
    Ok(Run { job, pods, summary })
}
