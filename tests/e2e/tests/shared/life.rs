//! What outlives an object or a pod: volume, identity, CA; and how clients live through it.

use anyhow::{Context, Result, ensure};
use felix_client::{Client, Delivery, Record, Start, Subscription};
use felix_e2e::{Kind, QUICK, Space, USUAL, await_object, cluster, scenario, stream};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::json;

#[test]
fn a_cluster_that_is_applied_again_finds_what_was_its_own() -> Result<()> {
    scenario("again", async |space| {
        space.install_operator(&[]).await?;
        space
            .ready_cluster(
                &cluster("demo", &json!({})),
                &[stream("orders", "demo", &json!({}))],
            )
            .await?;
        let before = Identity::of(space).await?;

        space
            .delete_and_await(&space.felix(Kind::Cluster), "demo")
            .await?;
        await_object(
            &space.api::<Pod>(),
            "demo-broker-0",
            "the broker is gone",
            USUAL,
            |pod| pod.is_none().then_some(()),
        )
        .await?;
        space.ready_cluster(&cluster("demo", &json!({})), &[]).await?;

        let after = Identity::of(space).await?;
        ensure!(before == after, "before:\n{before:#?}\nafter:\n{after:#?}");
        space.await_ready(Kind::Stream, "orders").await.map(drop)
    })
}

#[test]
fn a_deleted_broker_pod_comes_back_as_itself_and_subscriptions_are_told() -> Result<()> {
    scenario("pod", async |space| {
        space.install_operator(&[]).await?;
        space
            .ready_cluster(
                &cluster("demo", &json!({})),
                &[stream("orders", "demo", &json!({}))],
            )
            .await?;
        let before = Identity::of(space).await?;
        let client = space.connect("demo").await?;
        let mut subscription = client.subscribe("orders").start(Start::Latest).open().await?;
        publish_one(&client).await?;
        ensure!(
            matches!(next(&mut subscription).await?, Delivery::Record(_)),
            "the first record did not come"
        );

        let old = space.broker_pod("demo").await?.uid();
        space
            .api::<Pod>()
            .delete("demo-broker-0", &DeleteParams::default())
            .await?;
        space.await_new_broker("demo", &old).await?;
        tokio::time::timeout(QUICK, publish_one(&client))
            .await
            .context("the client on the Service did not publish again in time")??;

        match next(&mut subscription).await? {
            Delivery::Gap(gap) => ensure!(gap.to.is_none(), "the gap does not end a former life: {gap:?}"),
            Delivery::Record(record) => {
                anyhow::bail!("a record of the new life came without a gap: {record:?}")
            }
        }
        ensure!(
            matches!(next(&mut subscription).await?, Delivery::Record(_)),
            "no record of the new life"
        );
        space.await_ready(Kind::Cluster, "demo").await?;
        let after = Identity::of(space).await?;
        ensure!(before == after, "before:\n{before:#?}\nafter:\n{after:#?}");
        Ok(())
    })
}

/// What must not change as long as the volume lives.
#[derive(Debug, PartialEq)]
struct Identity {
    claim: Option<String>,
    volume: Option<String>,
    cluster_id: String,
    broker_id: String,
    ca: String,
}

impl Identity {
    async fn of(space: &Space) -> Result<Self> {
        let claim = space
            .api::<PersistentVolumeClaim>()
            .get("data-demo-broker-0")
            .await?;
        let ca = space
            .api::<Secret>()
            .get("demo-ca")
            .await?
            .data
            .unwrap_or_default();
        let ca = ca.get("tls.crt").context("the CA has no tls.crt")?.0.clone();
        await_object(
            &space.felix(Kind::Cluster),
            "demo",
            "the broker in the status",
            QUICK,
            |cluster| {
                let status = &cluster?.data["status"];
                Some(Self {
                    claim: claim.uid(),
                    volume: claim.spec.as_ref()?.volume_name.clone(),
                    cluster_id: status["clusterID"].as_str()?.to_owned(),
                    broker_id: status["brokers"][0]["id"].as_str()?.to_owned(),
                    ca: String::from_utf8_lossy(&ca).into_owned(),
                })
            },
        )
        .await
    }
}

async fn next(subscription: &mut Subscription) -> Result<Delivery> {
    let delivery = tokio::time::timeout(QUICK, subscription.next())
        .await
        .context("nothing was delivered")??;
    delivery.context("the subscription ended")
}

/// Publishes one record; what was refused as "retry" or lost with the old connection is sent again.
async fn publish_one(client: &Client) -> Result<()> {
    let publisher = client.publisher("orders").open().await?;
    publisher.send(Record::new("x")).await?.await?;
    Ok(())
}
