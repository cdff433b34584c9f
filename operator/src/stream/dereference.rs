//! What a FelixStream points at: its cluster, and the admin API of that cluster's broker.

use felix_crds::{FelixCluster, FelixStream};
use kube::ResourceExt;

use crate::{
    broker_api::BrokerApi, cluster::any_broker, context::Context, names::ClusterNames, retry::ReconcileError,
};

/// What a stream's cluster can do for it at present.
pub(crate) enum Broker {
    /// There is no such cluster, or it is being deleted.
    ClusterGone,
    /// The cluster is there; none of its brokers serves.
    NotYet,
    /// A broker can be asked.
    At(Box<BrokerApi>),
}

/// Finds a broker of a stream's cluster.
pub(crate) async fn broker(context: &Context, stream: &FelixStream) -> Result<Broker, ReconcileError> {
    let namespace = stream.namespace().unwrap_or_default();
    let name = &stream.spec.cluster_ref.name;
    let cluster = context.api::<FelixCluster>(&namespace).get_opt(name).await?;
    if cluster.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some()) {
        return Ok(Broker::ClusterGone);
    }
    let broker = any_broker(context, &ClusterNames::new(namespace, name)).await?;
    Ok(broker.map_or(Broker::NotYet, |broker| Broker::At(Box::new(broker))))
}
