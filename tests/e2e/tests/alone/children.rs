//! What the operator keeps for a cluster comes back when somebody deletes it. How soon is part of the promise, so nothing
//! runs beside.

use std::{fmt::Debug, time::Duration};

use anyhow::Result;
use felix_e2e::{Kind, Space, await_object, cluster, scenario};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ConfigMap, Secret, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Resource, ResourceExt, api::DeleteParams, core::NamespaceResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

/// A child without state must be back after at most this long.
const BACK: Duration = Duration::from_secs(5);

#[test]
fn a_deleted_child_is_back_within_five_seconds() -> Result<()> {
    let _alone = super::alone();
    scenario("children", async |space| {
        space.install_operator(&[]).await?;
        space.ready_cluster(&cluster("demo", &json!({})), &[]).await?;
        comes_back::<ServiceAccount>(space, "demo-broker").await?;
        comes_back::<Role>(space, "demo-broker").await?;
        comes_back::<RoleBinding>(space, "demo-broker").await?;
        comes_back::<ConfigMap>(space, "demo-config").await?;
        comes_back::<ConfigMap>(space, "demo-ca").await?;
        comes_back::<Secret>(space, "demo-tls").await?;
        comes_back::<Secret>(space, "demo-admin-token").await?;
        comes_back::<Service>(space, "demo-brokers").await?;
        comes_back::<Service>(space, "demo").await?;
        comes_back::<PodDisruptionBudget>(space, "demo-broker").await?;
        comes_back::<StatefulSet>(space, "demo-broker").await?;
        space.await_ready(Kind::Cluster, "demo").await.map(drop)
    })
}

async fn comes_back<K>(space: &Space, name: &str) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + 'static,
{
    let api = space.api::<K>();
    let old = api.get(name).await?.uid();
    api.delete(name, &DeleteParams::background()).await?;
    let what = format!("{} {name} is back", K::kind(&()));
    await_object(&api, name, &what, BACK, |object| {
        let object = object?;
        (object.uid() != old && object.meta().deletion_timestamp.is_none()).then_some(())
    })
    .await
}
