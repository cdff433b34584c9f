//! A lost CA key is not the end of a cluster's clients.

use anyhow::{Context, Result, ensure};
use felix_client::{Client, Record};
use felix_e2e::{Kind, QUICK, Space, await_object, cluster, poll, scenario, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt, api::DeleteParams};
use serde_json::json;

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
        delete_ca_key(space).await?;
        let new_ca = certificate_of(space).await?;
        ensure!(new_ca != old_ca, "the CA is the same one");
        let bundle = poll("both CAs in the bundle", QUICK, async || {
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

async fn delete_ca_key(space: &Space) -> Result<()> {
    let api = space.api::<Secret>();
    let old = api.get("demo-ca").await?.uid();
    api.delete("demo-ca", &DeleteParams::default()).await?;
    await_object(&api, "demo-ca", "another CA key", QUICK, |secret| {
        secret.filter(|secret| secret.uid() != old).map(drop)
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
