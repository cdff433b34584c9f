//! What the operator keeps for a cluster comes back when somebody deletes it.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, Result, ensure};
use felix_client::{Client, Record};
use felix_e2e::{Kind, Space, await_object, cluster, poll, scenario, stream};
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

#[test]
fn a_lost_ca_key_is_made_anew_and_clients_keep_working() -> Result<()> {
    scenario("ca-key", async |space| {
        space.install_operator(&[]).await?;
        space
            .ready_cluster(
                &cluster("demo", &json!({})),
                &[stream("orders", "demo", &json!({}))],
            )
            .await?;
        let old_bundle = space.ca_bundle("demo").await?;
        let client = space.connect("demo").await?;
        publish_one(&client).await.context("before")?;

        let old_ca = certificate_of(space).await?;
        comes_back::<Secret>(space, "demo-ca").await?;
        let new_ca = certificate_of(space).await?;
        ensure!(new_ca != old_ca, "the CA is the same one");
        let bundle = poll("both CAs in the bundle", felix_e2e::QUICK, async || {
            let bundle = space.ca_bundle("demo").await?;
            Ok((bundle.contains(old_ca.trim()) && bundle.contains(new_ca.trim())).then_some(bundle))
        })
        .await?;

        publish_one(&client).await.context("the client from before")?;
        publish_one(&space.connect_with("demo", &bundle).await?)
            .await
            .context("a client with the new bundle")?;
        ensure!(
            bundle.contains(old_bundle.trim()),
            "a certificate that clients trusted has gone from the bundle"
        );
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

async fn certificate_of(space: &Space) -> Result<String> {
    let secret = space.api::<Secret>().get("demo-ca").await?;
    let certificate = secret
        .data
        .unwrap_or_default()
        .remove("tls.crt")
        .context("the CA has no tls.crt")?;
    Ok(String::from_utf8(certificate.0)?)
}

async fn publish_one(client: &Client) -> Result<()> {
    let publisher = client.publisher("orders").open().await?;
    publisher.send(Record::new("x")).await?.await?;
    Ok(())
}
