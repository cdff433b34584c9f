//! What a FelixStream points at: its cluster, and the admin API of that cluster's broker.

use std::net::{IpAddr, SocketAddr};

use felix_crds::{FelixCluster, FelixStream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::{Api, ResourceExt};

use crate::{
    broker_api::BrokerApi,
    context::Context,
    names::{ADMIN_PORT, ClusterNames},
};

/// What a stream's cluster can do for it at present.
pub(crate) enum Broker {
    /// There is no such cluster, or it is being deleted.
    ClusterGone,
    /// The cluster is there; its broker cannot be asked yet.
    NotYet(String),
    /// The broker can be asked.
    At(Box<BrokerApi>),
}

/// Finds the broker of a stream's cluster.
pub(crate) async fn broker(context: &Context, stream: &FelixStream) -> Result<Broker, kube::Error> {
    let namespace = stream.namespace().unwrap_or_default();
    let cluster_name = &stream.spec.cluster_ref.name;
    let cluster = context
        .api::<FelixCluster>(&namespace)
        .get_opt(cluster_name)
        .await?;
    let Some(cluster) = cluster.filter(|cluster| cluster.metadata.deletion_timestamp.is_none()) else {
        return Ok(Broker::ClusterGone);
    };
    let names = ClusterNames::new(&namespace, cluster.name_any());
    let pod = names.pod(0);
    let missing = |what: &str| {
        Ok(Broker::NotYet(format!(
            "FelixCluster {cluster_name} has no {what} yet"
        )))
    };
    let Some(address) = pod_address(context.api(&namespace), &pod).await? else {
        return missing("running broker");
    };
    let ca = context.api::<ConfigMap>(&namespace).get_opt(&names.ca()).await?;
    let Some(ca) = ca.and_then(|map| map.data?.remove("ca.crt")) else {
        return missing("CA");
    };
    let token = context
        .api::<Secret>(&namespace)
        .get_opt(&names.admin_token())
        .await?;
    let token = token.and_then(|secret| String::from_utf8(secret.data?.remove("token")?.0).ok());
    let Some(token) = token else {
        return missing("admin token");
    };
    Ok(
        match BrokerApi::new(address, &names.pod_host(&pod), &ca, &token) {
            Ok(api) => Broker::At(Box::new(api)),
            Err(error) => Broker::NotYet(error.to_string()),
        },
    )
}

async fn pod_address(pods: Api<Pod>, name: &str) -> Result<Option<SocketAddr>, kube::Error> {
    let ip = pods.get_opt(name).await?.and_then(|pod| pod.status?.pod_ip);
    let ip: Option<IpAddr> = ip.and_then(|ip| ip.parse().ok());
    let port = u16::try_from(ADMIN_PORT).unwrap_or_default();
    Ok(ip.map(|ip| SocketAddr::new(ip, port)))
}

/// Whether the namespace is being deleted, and with it the cluster.
pub(crate) async fn namespace_ends(context: &Context, namespace: &str) -> Result<bool, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let found = namespaces.get_opt(namespace).await?;
    Ok(found.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()))
}
