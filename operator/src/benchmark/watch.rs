//! What makes the operator look at a FelixBenchmark: itself, its Job, the pod of that, and what it waits for.

use std::sync::Arc;

use felix_crds::{BenchmarkPhase, FelixBenchmark, FelixCluster, FelixStream};
use futures::future::join_all;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{
        Controller,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use tokio_util::sync::CancellationToken;

use super::{build::BENCHMARK_LABEL, controller::BenchmarkReconciler, results::Results};
use crate::{
    context::{Context, Place},
    controllers::{self, Guarded, watch},
};

type Reference = ObjectRef<Guarded<FelixBenchmark>>;

/// Fails with what is missing unless everything that is watched can be listed.
pub(crate) async fn check_access(context: &Context) -> Result<(), kube::Error> {
    controllers::check_access(context.apis::<FelixBenchmark>()).await?;
    controllers::check_access(context.apis::<Job>()).await
}

/// Keeps FelixBenchmarks until `stop`, and shows their results.
pub(crate) async fn run(context: Arc<Context>, results: Results, stop: CancellationToken) {
    let controllers = context.places().into_iter().map(|place| {
        let controller = controller(&context, &place);
        results.add(controller.store());
        let reconciler = BenchmarkReconciler {
            context: context.clone(),
        };
        controllers::run(controller, reconciler, context.clone(), stop.clone())
    });
    join_all(controllers).await;
}

/// Watches benchmarks, their Jobs and pods, and the streams and clusters that they may wait for.
fn controller(context: &Context, place: &Place) -> Controller<Guarded<FelixBenchmark>> {
    let controller = Controller::new(context.api_in(place), watcher::Config::default());
    let (by_stream, by_cluster) = (controller.store(), controller.store());
    let controller = watch(
        controller,
        context.api_in::<PartialObjectMeta<Job>>(place),
        of_run,
    );
    let controller = watch(
        controller,
        context.api_in::<PartialObjectMeta<Pod>>(place),
        of_run,
    );
    let all = watcher::Config::default;
    controller
        .watches(
            context.api_in::<Guarded<FelixStream>>(place),
            all(),
            move |stream| {
                waiting(&by_stream, stream.namespace(), |b| {
                    b.spec.stream_ref.name == stream.name_any()
                })
            },
        )
        .watches(
            context.api_in::<Guarded<FelixCluster>>(place),
            all(),
            move |cluster| {
                waiting(&by_cluster, cluster.namespace(), |b| {
                    b.spec.cluster_ref.name == cluster.name_any()
                })
            },
        )
}

/// The benchmark that a Job or a pod is labelled with.
fn of_run<K: Resource<DynamicType = ()>>(child: &K) -> Option<Reference> {
    let name = child.labels().get(BENCHMARK_LABEL)?;
    Some(ObjectRef::new(name).within(&child.namespace()?))
}

/// The benchmarks of a namespace that have not begun and wait for what is looked for.
fn waiting(
    store: &Store<Guarded<FelixBenchmark>>,
    namespace: Option<String>,
    for_this: impl Fn(&FelixBenchmark) -> bool,
) -> Vec<Reference> {
    let waits = |benchmark: &FelixBenchmark| {
        let phase = benchmark.status.as_ref().and_then(|status| status.phase);
        !phase.is_some_and(BenchmarkPhase::is_final)
            && benchmark.namespace() == namespace
            && for_this(benchmark)
    };
    let objects = store.state().into_iter();
    objects
        .filter(|object| object.0.as_ref().is_ok_and(waits))
        .map(|object| ObjectRef::from_obj(&*object))
        .collect()
}
