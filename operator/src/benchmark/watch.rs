//! What makes the operator look at a FelixBenchmark: itself, its Job, the pod of that, and what it waits for.

use std::sync::Arc;

use felix_crds::{BenchmarkPhase, FelixBenchmark, FelixCluster, FelixStream};
use futures::future::join_all;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    ResourceExt,
    runtime::{
        Controller,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use tokio_util::sync::CancellationToken;

use super::{build::BENCHMARK_LABEL, controller::BenchmarkReconciler, results::Results};
use crate::{
    context::Context,
    controllers::{self, Guarded, ours},
};

type Reference = ObjectRef<Guarded<FelixBenchmark>>;

/// Fails with what is missing unless everything that is watched can be listed.
pub(crate) async fn check_access(context: &Context) -> Result<(), kube::Error> {
    controllers::check_access(context.apis::<FelixBenchmark>()).await?;
    controllers::check_access(context.apis::<Job>()).await
}

/// Keeps FelixBenchmarks until `stop`, and shows their results.
pub(crate) async fn run(context: Arc<Context>, results: Results, stop: CancellationToken) {
    let benchmarks = context.apis::<Guarded<FelixBenchmark>>().into_iter();
    let watched = context.apis::<Job>().into_iter().zip(context.apis::<Pod>());
    let waited_for =
        context.apis::<Guarded<FelixStream>>().into_iter().zip(context.apis::<Guarded<FelixCluster>>());
    let controllers = benchmarks.zip(watched).zip(waited_for).map(|((benchmarks, (jobs, pods)), (streams, clusters))| {
        let controller = Controller::new(benchmarks, watcher::Config::default());
        let (by_stream, by_cluster) = (controller.store(), controller.store());
        results.add(controller.store());
        let pods_of_runs = watcher::Config::default().labels(BENCHMARK_LABEL);
        let controller = controller
            .owns(jobs, ours())
            .watches(pods, pods_of_runs, |pod| of_pod(&pod))
            .watches(streams, watcher::Config::default(), move |stream| {
                waiting(&by_stream, stream.namespace(), |b| b.spec.stream_ref.name == stream.name_any())
            })
            .watches(clusters, watcher::Config::default(), move |cluster| {
                waiting(&by_cluster, cluster.namespace(), |b| b.spec.cluster_ref.name == cluster.name_any())
            });
        let reconciler = BenchmarkReconciler { context: context.clone() };
        controllers::run(controller, reconciler, context.clone(), stop.clone())
    });
    join_all(controllers).await;
}

/// The benchmark that a Job's pod is labelled with.
fn of_pod(pod: &Pod) -> Option<Reference> {
    let name = pod.labels().get(BENCHMARK_LABEL)?;
    Some(ObjectRef::new(name).within(&pod.namespace()?))
}

/// The benchmarks of a namespace that have not begun and wait for what is looked for.
fn waiting(
    store: &Store<Guarded<FelixBenchmark>>,
    namespace: Option<String>,
    for_this: impl Fn(&FelixBenchmark) -> bool,
) -> Vec<Reference> {
    let waits = |benchmark: &FelixBenchmark| {
        let phase = benchmark.status.as_ref().and_then(|status| status.phase);
        !phase.is_some_and(BenchmarkPhase::is_final) && benchmark.namespace() == namespace && for_this(benchmark)
    };
    let objects = store.state().into_iter();
    objects.filter(|object| object.0.as_ref().is_ok_and(waits)).map(|object| ObjectRef::from_obj(&*object)).collect()
}
