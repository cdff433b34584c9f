//! FelixCluster: brokers that are as their object says.

mod access;
mod build;
mod deletion;
mod dereference;
mod facts;
mod growth;
mod material;
mod reconcile;
mod restart;
mod status;
mod storage;
#[cfg(test)]
mod test_support;
mod udp_buffers;
mod validate;

use std::sync::Arc;

use felix_crds::FelixCluster;
use futures::future::join_all;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{Controller, controller::Action, reflector::ObjectRef, watcher},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::access::any_broker;
use crate::{
    context::{Context, Place},
    controllers::{self, Guarded, Reconciler, watch},
    names::CLUSTER_LABEL,
    retry::ReconcileError,
};

/// Keeps clusters.
struct Clusters {
    context: Arc<Context>,
}

impl Reconciler for Clusters {
    type Object = FelixCluster;
    const KIND: &'static str = "FelixCluster";

    async fn reconcile(&self, object: Arc<FelixCluster>) -> Result<Action, ReconcileError> {
        reconcile::reconcile(&self.context, &object).await
    }
}

/// Fails with what is missing unless every kind that a cluster is made of can be listed.
pub(crate) async fn check_access(context: &Context) -> Result<(), kube::Error> {
    controllers::check_access(context.apis::<FelixCluster>()).await?;
    controllers::check_access(context.apis::<StatefulSet>()).await?;
    controllers::check_access(context.apis::<Pod>()).await?;
    controllers::check_access(context.apis::<PersistentVolumeClaim>()).await?;
    controllers::check_access(context.apis::<Secret>()).await?;
    controllers::check_access(context.apis::<ConfigMap>()).await?;
    controllers::check_access(context.apis::<Service>()).await?;
    controllers::check_access(context.apis::<ServiceAccount>()).await?;
    controllers::check_access(context.apis::<Role>()).await?;
    controllers::check_access(context.apis::<RoleBinding>()).await?;
    controllers::check_access(context.apis::<PodDisruptionBudget>()).await
}

/// Keeps FelixClusters until `stop`.
pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let running = context.places().into_iter().map(|place| {
        let clusters = Clusters {
            context: context.clone(),
        };
        controllers::run(
            controller(&context, &place),
            clusters,
            context.clone(),
            stop.clone(),
        )
    });
    let buffers = udp_buffers::keep(context.clone(), stop.clone());
    tokio::join!(join_all(running), buffers);
}

/// Watches clusters and everything that belongs to them.
fn controller(context: &Context, place: &Place) -> Controller<Guarded<FelixCluster>> {
    let roots = Controller::new(context.api_in(place), watcher::Config::default());
    let roots = watch(roots, context.api_in(place), cluster_of::<StatefulSet>);
    let roots = watch(roots, context.api_in(place), cluster_of::<Pod>);
    let roots = watch(roots, context.api_in(place), cluster_of::<PersistentVolumeClaim>);
    let roots = watch(roots, context.api_in(place), cluster_of::<Secret>);
    let roots = watch(roots, context.api_in(place), cluster_of::<ConfigMap>);
    let roots = watch(roots, context.api_in(place), cluster_of::<Service>);
    let roots = watch(roots, context.api_in(place), cluster_of::<ServiceAccount>);
    let roots = watch(roots, context.api_in(place), cluster_of::<Role>);
    let roots = watch(roots, context.api_in(place), cluster_of::<RoleBinding>);
    watch(roots, context.api_in(place), cluster_of::<PodDisruptionBudget>)
}

/// By the label, not by the owner: what outlives a cluster has none.
fn cluster_of<K: Resource<DynamicType = ()>>(
    child: &PartialObjectMeta<K>,
) -> Option<ObjectRef<Guarded<FelixCluster>>> {
    let cluster = child.labels().get(CLUSTER_LABEL)?;
    Some(ObjectRef::new(cluster).within(&child.namespace()?))
}
