//! A lost CA key is not the end of a cluster's clients.

use anyhow::{Context, Result, bail, ensure};
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
        let new_ca = lose_ca_key(space, &old_ca).await?;
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

/// Deletes the CA's key until there is another one: a reconcile that has just read it puts the same one back.
async fn lose_ca_key(space: &Space, old_ca: &str) -> Result<String> {
    const TRIES: usize = 5;
    let api = space.api::<Secret>();
    for _ in 0..TRIES {
        let old = api.get("demo-ca").await?.uid();
        api.delete("demo-ca", &DeleteParams::default()).await?;
        await_object(&api, "demo-ca", "a CA key", QUICK, |secret| {
            secret.filter(|secret| secret.uid() != old).map(drop)
        })
        .await?;
        let ca = certificate_of(space).await?;
        if ca != old_ca {
            return Ok(ca);
        }
    }
    bail!("the CA is the same one after {TRIES} deletions of its key")
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
