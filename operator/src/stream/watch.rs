//! What makes the operator look at a FelixStream: itself, and its cluster.

use std::sync::Arc;

use felix_crds::{FelixCluster, FelixStream};
use futures::{
    StreamExt as _,
    future::{join_all, ready},
};
use kube::{
    Api, ResourceExt,
    runtime::{
        Controller, WatchStreamExt as _,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use tokio_util::sync::CancellationToken;

use super::{controller::StreamReconciler, deletion};
use crate::{
    context::Context,
    controllers::{self, Guarded},
};

/// How many deleted streams are released at once.
const RELEASES: usize = 4;

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
    let releases = context.places().into_iter().map(|place| {
        let streams = context.api_in::<Guarded<FelixStream>>(&place);
        release_deleted(context.clone(), streams, stop.clone())
    });
    tokio::join!(join_all(controllers), join_all(releases));
}

/// Releases what deleted streams have owned, as their deletion is seen. What is missed here is made good when another
/// stream wants the name.
async fn release_deleted(context: Arc<Context>, streams: Api<Guarded<FelixStream>>, stop: CancellationToken) {
    let deleted = watcher(streams, watcher::Config::default())
        .default_backoff()
        .filter_map(|event| {
            ready(match event {
                Ok(watcher::Event::Delete(Guarded { 0: Ok(stream) })) => Some(stream),
                Ok(_) | Err(_) => None,
            })
        })
        .take_until(stop.cancelled_owned());
    deleted
        .for_each_concurrent(RELEASES, |stream| {
            let context = context.clone();
            async move {
                if let Err(error) = deletion::release_what_it_owned(&context, &stream).await {
                    tracing::warn!(stream = %stream.name_any(), %error, "a deleted stream was not released");
                }
            }
        })
        .await;
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
