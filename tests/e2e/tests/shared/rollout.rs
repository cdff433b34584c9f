//! Changes of a FelixCluster arrive without a person deleting anything, and those that need no restart cause none.

use anyhow::{Context, Result, ensure};
use felix_e2e::{Kind, SLOW, USUAL, await_object, cluster, scenario};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use serde_json::json;

#[test]
fn a_good_image_after_a_bad_one_arrives_by_itself() -> Result<()> {
    scenario("bad-image", async |space| {
        space.install_operator(&[]).await?;
        let ready = space.ready_cluster(&cluster("demo", &json!({})), &[]).await?;
        let good = ready.data["status"]["image"]
            .as_str()
            .context("status.image is not set")?
            .to_owned();

        let bad =
            json!({ "spec": { "image": { "repository": "localhost/felix-broker", "tag": "no-such-tag" } } });
        space.patch(Kind::Cluster, "demo", &bad).await?;
        await_object(
            &space.api::<Pod>(),
            "demo-broker-0",
            "the pod cannot pull its image",
            USUAL,
            |pod| {
                let containers = pod?.status.as_ref()?.container_statuses.as_ref()?;
                let waiting = containers.first()?.state.as_ref()?.waiting.as_ref()?;
                waiting
                    .reason
                    .as_deref()
                    .is_some_and(|reason| reason.contains("Image"))
                    .then_some(())
            },
        )
        .await?;
        space
            .await_condition((Kind::Cluster, "demo"), "Ready", ("False", None), USUAL)
            .await?;

        space
            .patch(Kind::Cluster, "demo", &json!({ "spec": { "image": null } }))
            .await?;
        let ready = space
            .await_condition((Kind::Cluster, "demo"), "Ready", ("True", None), SLOW)
            .await?;
        ensure!(
            ready.data["status"]["image"] == good.as_str(),
            "the image in use is {}",
            ready.data["status"]["image"]
        );
        Ok(())
    })
}

#[test]
fn settings_and_resources_arrive_and_labels_restart_nothing() -> Result<()> {
    scenario("changes", async |space| {
        space.install_operator(&[]).await?;
        space.ready_cluster(&cluster("demo", &json!({})), &[]).await?;

        let old = space.broker_pod("demo").await?.uid();
        space
            .patch(
                Kind::Cluster,
                "demo",
                &json!({ "spec": { "config": { "maxConnections": 77 } } }),
            )
            .await?;
        space.await_new_broker("demo", &old).await?;
        space.await_ready(Kind::Cluster, "demo").await?;

        let old = space.broker_pod("demo").await?.uid();
        space
            .patch(
                Kind::Cluster,
                "demo",
                &json!({ "spec": { "resources": { "limits": { "memory": "320Mi" } } } }),
            )
            .await?;
        let pod = space.await_new_broker("demo", &old).await?;
        let container = pod
            .spec
            .and_then(|spec| spec.containers.into_iter().next())
            .context("no container")?;
        let limits = container
            .resources
            .and_then(|resources| resources.limits)
            .unwrap_or_default();
        ensure!(
            limits.get("memory").is_some_and(|memory| memory.0 == "320Mi"),
            "the broker's limits are {limits:?}"
        );
        space.await_ready(Kind::Cluster, "demo").await?;

        let old = space.broker_pod("demo").await?.uid();
        let labels = json!({
            "metadata": { "labels": { "team": "a" }, "annotations": { "note": "b" } },
            "spec": { "clientService": { "labels": { "team": "a" }, "annotations": { "note": "b" } } },
        });
        space.patch(Kind::Cluster, "demo", &labels).await?;
        await_object(
            &space.api::<Service>(),
            "demo",
            "the label is on the Service",
            USUAL,
            |service| {
                service?
                    .labels()
                    .get("team")
                    .filter(|team| *team == "a")
                    .map(drop)
            },
        )
        .await?;
        let ready = space.await_ready(Kind::Cluster, "demo").await?;
        let progressing = ready.data["status"]["conditions"]
            .as_array()
            .and_then(|all| all.iter().find(|c| c["type"] == "Progressing"));
        ensure!(
            progressing.is_none_or(|p| p["status"] != "True"),
            "still progressing: {progressing:?}"
        );
        let pod = space.broker_pod("demo").await?;
        ensure!(pod.uid() == old, "changed labels restarted the broker");
        Ok(())
    })
}
