//! What makes the operator look at a FelixStream: itself, and its cluster.

use std::sync::Arc;

use felix_crds::{FelixCluster, FelixStream};
use futures::future::join_all;
use kube::{
    ResourceExt,
    runtime::{
        Controller,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use tokio_util::sync::CancellationToken;

use super::controller::StreamReconciler;
use crate::{
    context::Context,
    controllers::{self, Guarded},
};

/// Fails with what is missing unless everything that is watched can be listed.
pub(crate) async fn check_access(context: &Context) -> Result<(), kube::Error> {
    controllers::check_access(context.apis::<FelixStream>()).await
}

/// Keeps FelixStreams until `stop`.
pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let controllers = context.places().into_iter().map(|place| {
        let controller = Controller::new(context.api_in(&place), watcher::Config::default());
        let store = controller.store();
        let clusters = context.api_in::<Guarded<FelixCluster>>(&place);
        let controller = controller.watches(clusters, watcher::Config::default(), move |cluster| {
            of_cluster(&store, &cluster)
        });
        let reconciler = StreamReconciler {
            context: context.clone(),
        };
        controllers::run(controller, reconciler, context.clone(), stop.clone())
    });
    join_all(controllers).await;
}

/// The streams that name this cluster.
fn of_cluster(
    store: &Store<Guarded<FelixStream>>,
    cluster: &Guarded<FelixCluster>,
) -> Vec<ObjectRef<Guarded<FelixStream>>> {
    let names_it = |stream: &FelixStream| {
        stream.namespace() == cluster.namespace() && stream.spec.cluster_ref.name == cluster.name_any()
    };
    let objects = store.state().into_iter();
    objects
        .filter(|object| object.0.as_ref().is_ok_and(names_it))
        .map(|object| ObjectRef::from_obj(&*object))
        .collect()
}
