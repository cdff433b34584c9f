//! Reaching the brokers of a cluster: their addresses, the CA bundle and the token of their admin API.

use std::net::{IpAddr, SocketAddr};

use felix_crds::{BrokerStatus, FelixCluster};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{ResourceExt, api::ListParams};

use super::{dereference::secret_text, restart::is_ready};
use crate::{
    broker_api::{BrokerApi, BrokerApiError},
    context::Context,
    names::{ADMIN_PORT, ClusterNames, selector_text},
    retry::ReconcileError,
};

/// What proves both ends to each other.
pub(crate) struct Credentials {
    bundle: String,
    token: String,
}

/// Reads the credentials. `None`: the cluster has none yet.
pub(crate) async fn credentials(
    context: &Context,
    names: &ClusterNames,
) -> Result<Option<Credentials>, kube::Error> {
    let namespace = names.namespace();
    let bundle = context.api::<ConfigMap>(namespace).get_opt(&names.ca()).await?;
    let bundle = bundle.and_then(|map| map.data?.remove("ca.crt"));
    let token = context
        .api::<Secret>(namespace)
        .get_opt(&names.admin_token())
        .await?;
    let token = secret_text(token.as_ref(), "token");
    Ok(bundle
        .zip(token)
        .map(|(bundle, token)| Credentials { bundle, token }))
}

/// The admin API of a broker that serves. `None`: no broker of the cluster does at present.
pub(crate) async fn any_broker(
    context: &Context,
    names: &ClusterNames,
) -> Result<Option<BrokerApi>, ReconcileError> {
    let Some(credentials) = credentials(context, names).await? else {
        return Ok(None);
    };
    let brokers = ListParams::default().labels(&selector_text(&names.selector()));
    let mut pods = context.api::<Pod>(names.namespace()).list(&brokers).await?.items;
    pods.sort_by_key(ResourceExt::name_any);
    let serving = pods.iter().filter(|pod| is_ready(pod));
    serving
        .filter_map(|pod| broker_in(pod, names, &credentials))
        .next()
        .transpose()
        .map_err(Into::into)
}

/// What the ready brokers say of themselves. Of one that is ready and does not answer, what it said before stays.
pub(crate) async fn ask_brokers(
    context: &Context,
    names: &ClusterNames,
    pods: &[Pod],
    cluster: &FelixCluster,
) -> Result<Vec<BrokerStatus>, kube::Error> {
    let Some(credentials) = credentials(context, names).await? else {
        return Ok(Vec::new());
    };
    let said_before = |pod: &str| {
        cluster
            .status
            .as_ref()
            .and_then(|status| status.brokers.iter().find(|broker| broker.pod == pod))
            .cloned()
    };
    let mut brokers = Vec::new();
    for pod in pods.iter().filter(|pod| is_ready(pod)) {
        let name = pod.name_any();
        match ask(pod, names, &credentials).await {
            Some(Ok(broker)) => brokers.push(broker),
            Some(Err(error)) => {
                tracing::warn!(pod = name, %error, "a broker does not answer");
                brokers.extend(said_before(&name));
            }
            None => brokers.extend(said_before(&name)),
        }
    }
    Ok(brokers)
}

async fn ask(
    pod: &Pod,
    names: &ClusterNames,
    credentials: &Credentials,
) -> Option<Result<BrokerStatus, BrokerApiError>> {
    let api = match broker_in(pod, names, credentials)? {
        Ok(api) => api,
        Err(error) => return Some(Err(error)),
    };
    let info = api.broker().await;
    Some(info.map(|info| BrokerStatus {
        id: info.broker_id,
        pod: pod.name_any(),
        version: info.version,
        udp_buffers: info.udp_buffers,
    }))
}

/// By the pod's address: it needs no DNS and no proxy, and the certificate is checked against the pod's name.
fn broker_in(
    pod: &Pod,
    names: &ClusterNames,
    credentials: &Credentials,
) -> Option<Result<BrokerApi, BrokerApiError>> {
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    let port = u16::try_from(ADMIN_PORT).ok()?;
    let host = names.pod_host(&pod.name_any());
    Some(BrokerApi::new(
        SocketAddr::new(address, port),
        &host,
        &credentials.bundle,
        &credentials.token,
    ))
}
