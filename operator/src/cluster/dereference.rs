//! Step one: reads everything that decides about a cluster, fresh from the API server. It only reads.

use felix_crds::FelixCluster;
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::StatefulSet,
        core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret},
    },
};
use kube::{Api, ResourceExt, api::ListParams};

use crate::{
    context::Context,
    lasting,
    names::{CLUSTER_LABEL, ClusterNames, FIELD_MANAGER, MANAGED_BY_LABEL, selector_text, string_map},
};

/// What there is of a cluster before anything is written.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// The object itself.
    pub(crate) cluster: FelixCluster,
    /// The names of what belongs to it.
    pub(crate) names: ClusterNames,
    /// CA certificate and key, and every CA that clients may still trust.
    pub(crate) ca: Option<Secret>,
    /// Server certificate and key.
    pub(crate) server_certificate: Option<Secret>,
    /// Token of the admin API.
    pub(crate) admin_token: Option<Secret>,
    /// The CAs that clients trust.
    pub(crate) ca_bundle: Option<ConfigMap>,
    /// The brokers' StatefulSet, pods and claims.
    pub(crate) workload: Workload,
}

/// The brokers' StatefulSet, pods and claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workload {
    /// The StatefulSet.
    pub(crate) stateful_set: Option<StatefulSet>,
    /// The pods, by name.
    pub(crate) pods: Vec<Pod>,
    /// The claims, by name.
    pub(crate) claims: Vec<PersistentVolumeClaim>,
}

/// Reads a cluster. `None`: the object is gone.
pub(crate) async fn dereference(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Observed>, kube::Error> {
    let Some(cluster) = context.api::<FelixCluster>(namespace).get_opt(name).await? else {
        return Ok(None);
    };
    let names = ClusterNames::new(namespace, name);
    let secrets: Api<Secret> = context.api(namespace);
    Ok(Some(Observed {
        ca: ours(secrets.get_opt(&names.ca()).await?, name).filter(|ca| {
            !lasting::goes_with_another(ca, cluster.metadata.uid.as_deref().unwrap_or_default())
        }),
        server_certificate: ours(secrets.get_opt(&names.server_certificate()).await?, name),
        admin_token: ours(secrets.get_opt(&names.admin_token()).await?, name),
        ca_bundle: ours(
            context.api::<ConfigMap>(namespace).get_opt(&names.ca()).await?,
            name,
        ),
        workload: workload(context, &names).await?,
        cluster,
        names,
    }))
}

/// Reads StatefulSet, pods and claims.
pub(crate) async fn workload(context: &Context, names: &ClusterNames) -> Result<Workload, kube::Error> {
    let namespace = names.namespace();
    let of_cluster = selector_text(&string_map([(CLUSTER_LABEL, names.cluster())]));
    let brokers = ListParams::default().labels(&selector_text(&names.selector()));
    let mut pods = context.api::<Pod>(namespace).list(&brokers).await?.items;
    pods.retain(|pod| is_broker(pod, names));
    pods.sort_by_key(ResourceExt::name_any);
    // Claims of ours carry the label; those that somebody made in advance have only the name.
    let claims: Api<PersistentVolumeClaim> = context.api(namespace);
    let mut found = claims
        .list(&ListParams::default().labels(&of_cluster))
        .await?
        .items;
    let first = names.claim(0);
    if !found.iter().any(|claim| claim.name_any() == first) {
        found.extend(claims.get_opt(&first).await?);
    }
    found.sort_by_key(ResourceExt::name_any);
    Ok(Workload {
        stateful_set: context
            .api::<StatefulSet>(namespace)
            .get_opt(&names.broker())
            .await?,
        pods,
        claims: found,
    })
}

/// Whether a pod is one of the StatefulSet's, which may be gone at present. Anybody can put our labels on a pod of his own,
/// and that one is not ours to restart.
fn is_broker(pod: &Pod, names: &ClusterNames) -> bool {
    let set = names.broker();
    let name = pod.name_any();
    let ordinal = name.strip_prefix(&set).and_then(|rest| rest.strip_prefix('-'));
    let numbered = ordinal.is_some_and(|ordinal| ordinal.parse::<u16>().is_ok());
    let mut owners = pod
        .owner_references()
        .iter()
        .filter(|owner| owner.controller == Some(true));
    numbered && owners.all(|owner| owner.kind == "StatefulSet" && owner.name == set)
}

/// Keys are taken only from objects that this operator made for this cluster.
fn ours<K: kube::Resource>(object: Option<K>, cluster: &str) -> Option<K> {
    object.filter(|o| {
        let label = |key: &str| o.labels().get(key).map(String::as_str);
        label(MANAGED_BY_LABEL) == Some(FIELD_MANAGER) && label(CLUSTER_LABEL) == Some(cluster)
    })
}

/// A text in a Secret.
pub(crate) fn secret_text(secret: Option<&Secret>, key: &str) -> Option<String> {
    let ByteString(bytes) = secret?.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.clone()).ok()
}
