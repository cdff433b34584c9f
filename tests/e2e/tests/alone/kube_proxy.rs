//! Clients on the client Service live through a new broker pod and a restart of kube-proxy, and publish again soon. Needs
//! `dev/kube` (FELIX_KUBE names it).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use felix_client::{Client, Record};
use felix_e2e::{Space, cluster, run, scenario, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

/// A client must publish again after at most this long.
const AGAIN: Duration = Duration::from_secs(10);

#[test]
fn a_client_publishes_again_after_the_broker_or_kube_proxy_was_replaced() -> Result<()> {
    let _alone = super::alone();
    scenario("kube-proxy", async |space| {
        space.install_operator(&[]).await?;
        space
            .ready_cluster(
                &cluster("demo", &json!({})),
                &[stream("orders", "demo", &json!({}))],
            )
            .await?;
        let client = space.connect("demo").await?;
        publish_again(&client).await.context("before")?;

        replace_broker(space, async || Ok(())).await?;
        publish_again(&client)
            .await
            .context("after the broker was replaced")?;

        restart_proxies(space).await?;
        publish_again(&client)
            .await
            .context("after the restart of kube-proxy")?;

        // The pod gets another address while kube-proxy is away: its tracked flows lead nowhere afterwards.
        replace_broker(space, async || restart_proxies(space).await).await?;
        publish_again(&client)
            .await
            .context("after kube-proxy and the broker were replaced")?;
        publish_again(&space.connect("demo").await?)
            .await
            .context("a new client")
    })
}

async fn publish_again(client: &Client) -> Result<()> {
    let once = async {
        let publisher = client.publisher("orders").open().await?;
        publisher.send(Record::new("x")).await?.await?;
        Ok(())
    };
    tokio::time::timeout(AGAIN, once)
        .await
        .with_context(|| format!("not published in {AGAIN:?}"))?
}

/// Deletes the broker's pod, does `meanwhile`, and awaits the new one.
async fn replace_broker(space: &Space, meanwhile: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let old = space.broker_pod("demo").await?.uid();
    space
        .api::<Pod>()
        .delete("demo-broker-0", &DeleteParams::default())
        .await?;
    meanwhile().await?;
    space.await_new_broker("demo", &old).await.map(drop)
}

async fn restart_proxies(space: &Space) -> Result<()> {
    let kube =
        std::env::var("FELIX_KUBE").context("FELIX_KUBE must name dev/kube, which can restart kube-proxy")?;
    let nodes = Api::<Node>::all(space.client.clone())
        .list(&ListParams::default())
        .await?;
    ensure!(!nodes.items.is_empty(), "this Kubernetes has no node");
    for node in nodes {
        // Nodes of dev/kube are called node-1 to node-3.
        let name = node.name_any();
        let number = name
            .strip_prefix("node-")
            .with_context(|| format!("{name} is no node of dev/kube"))?;
        run(&kube, &["restart", &format!("kube-proxy-{number}")]).await?;
    }
    Ok(())
}
