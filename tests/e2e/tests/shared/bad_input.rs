//! What a user can get wrong in a resource, and what is said about it.

use anyhow::{Context, Result, ensure};
use felix_client::Record;
use felix_e2e::{Kind, QUICK, USUAL, cluster, scenario, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

#[test]
fn a_cluster_that_cannot_be_is_refused() -> Result<()> {
    scenario("bad-cluster", async |space| {
        let refused = async |more, words: &str| {
            space
                .expect_refusal(Kind::Cluster, &cluster("demo", &more), words)
                .await
        };
        refused(json!({ "replicas": 3 }), "replicas").await?;
        refused(json!({ "replicas": 0 }), "replicas").await?;
        refused(json!({ "storage": { "size": "0" } }), "storage.size").await?;
        refused(json!({ "storage": { "size": "lots" } }), "size").await?;
        refused(json!({ "storage": null }), "storage").await?;
        refused(json!({ "tls": { "managed": null } }), "managed").await?;
        refused(
            json!({ "sysctls": { "net.core.rmem_max": "8388608" } }),
            "sysctls",
        )
        .await?;
        let long = "a".repeat(41);
        space
            .expect_refusal(Kind::Cluster, &cluster(&long, &json!({})), "40")
            .await?;

        // A volume that is bound cannot shrink; `kubectl scale` meets the same rule as the spec.
        space.install_operator(&[]).await?;
        space.ready_cluster(&cluster("demo", &json!({})), &[]).await?;
        refused(json!({ "storage": { "size": "32Mi" } }), "shrink").await?;
        let two = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
        let clusters = space.felix(Kind::Cluster);
        let scaled = clusters.patch_scale("demo", &PatchParams::default(), &two).await;
        let refusal = scaled.err().context("scaling to 2 was accepted")?;
        ensure!(
            refusal.to_string().contains("replicas"),
            "refused without a word about replicas: {refusal}"
        );
        Ok(())
    })
}

#[test]
fn an_unknown_storage_class_is_named_and_can_be_corrected() -> Result<()> {
    scenario("storage-class", async |space| {
        space.install_operator(&[]).await?;
        space
            .apply(
                Kind::Cluster,
                &cluster("demo", &json!({ "storage": { "className": "no-such-class" } })),
            )
            .await?;
        let waiting = space
            .await_condition((Kind::Cluster, "demo"), "StorageBound", ("False", None), QUICK)
            .await?;
        ensure!(
            said_in_conditions(&waiting, "no-such-class"),
            "no condition names the class: {:?}",
            waiting.data["status"]
        );
        let ready = waiting.data["status"]["conditions"]
            .as_array()
            .and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
        ensure!(
            ready.is_some_and(|ready| ready["status"] != "True"),
            "Ready without a volume"
        );

        space.apply(Kind::Cluster, &cluster("demo", &json!({}))).await?;
        space.await_ready(Kind::Cluster, "demo").await.map(drop)
    })
}

#[test]
fn a_stream_that_cannot_be_is_refused_or_waits() -> Result<()> {
    scenario("bad-stream", async |space| {
        let refused = async |more, words: &str| {
            space
                .expect_refusal(Kind::Stream, &stream("s", "demo", &more), words)
                .await
        };
        refused(json!({ "class": "durable" }), "memory").await?;
        refused(json!({ "class": "quorum" }), "memory").await?;
        refused(json!({ "shards": 0 }), "shards").await?;
        refused(json!({ "shards": 65 }), "shards").await?;
        for odd in [
            "../../etc",
            "a/b",
            "a b",
            "заказы",
            "",
            ".hidden",
            "a\u{0}b",
            &"x".repeat(256),
        ] {
            refused(json!({ "streamName": odd }), "streamName")
                .await
                .with_context(|| format!("{odd:?}"))?;
        }

        space.install_operator(&[]).await?;
        space
            .apply(Kind::Stream, &stream("early", "demo", &json!({})))
            .await?;
        let waiting = space
            .await_condition((Kind::Stream, "early"), "Ready", ("False", None), QUICK)
            .await?;
        ensure!(
            said_in_conditions(&waiting, "demo"),
            "no condition names the missing cluster: {:?}",
            waiting.data["status"]
        );
        space.ready_cluster(&cluster("demo", &json!({})), &[]).await?;
        space.await_ready(Kind::Stream, "early").await?;

        for (change, words) in [
            (json!({ "spec": { "shards": 2 } }), "shards"),
            (
                json!({ "spec": { "clusterRef": { "name": "other" } } }),
                "clusterRef",
            ),
            (json!({ "spec": { "streamName": "added" } }), "streamName"),
        ] {
            let refusal = space
                .patch(Kind::Stream, "early", &change)
                .await
                .err()
                .context("an immutable field changed")?;
            ensure!(
                refusal.to_string().contains(words),
                "refused without the word {words}: {refusal}"
            );
        }
        Ok(())
    })
}

#[test]
fn two_streams_that_want_one_name_have_one_owner() -> Result<()> {
    scenario("one-name", async |space| {
        space.install_operator(&[]).await?;
        let first = stream(
            "first",
            "demo",
            &json!({ "streamName": "orders", "deletionPolicy": "Delete" }),
        );
        space
            .ready_cluster(&cluster("demo", &json!({})), &[first])
            .await?;

        let second = stream(
            "second",
            "demo",
            &json!({ "streamName": "orders", "ringBytes": 1 << 20, "slowSubscriber": { "windowBytes": 1 << 20 } }),
        );
        space.apply(Kind::Stream, &second).await?;
        let loser = space
            .await_condition((Kind::Stream, "second"), "Ready", ("False", None), QUICK)
            .await?;
        let owner = format!("{}/first", space.name);
        ensure!(
            said_in_conditions(&loser, &owner),
            "the owner is not named: {:?}",
            loser.data["status"]
        );

        // Deleting the loser must not take the owner's stream along, and a new operator must not turn the matter round.
        space
            .delete_and_await(&space.felix(Kind::Stream), "second")
            .await?;
        let client = space.connect("demo").await?;
        client
            .publisher("orders")
            .open()
            .await?
            .send(Record::new("x"))
            .await?
            .await?;
        space.apply(Kind::Stream, &second).await?;
        let operator = space.operator_pod().await?;
        space.delete_and_await(&space.api::<Pod>(), &operator).await?;
        space
            .await_condition((Kind::Stream, "second"), "Ready", ("False", None), QUICK)
            .await?;
        space.await_ready(Kind::Stream, "first").await?;

        // When the owner lets go of the name, the other takes it up.
        space
            .delete_and_await(&space.felix(Kind::Stream), "first")
            .await?;
        space
            .await_condition((Kind::Stream, "second"), "Ready", ("True", None), USUAL)
            .await
            .map(drop)
    })
}

#[test]
fn a_cluster_deleted_before_its_streams_lets_them_go() -> Result<()> {
    scenario("cluster-first", async |space| {
        space.install_operator(&[]).await?;
        let orders = stream("orders", "demo", &json!({ "deletionPolicy": "Delete" }));
        space
            .ready_cluster(&cluster("demo", &json!({})), &[orders])
            .await?;
        space
            .delete_and_await(&space.felix(Kind::Cluster), "demo")
            .await?;
        space.delete_and_await(&space.felix(Kind::Stream), "orders").await
    })
}

#[test]
fn clients_are_told_what_is_wrong() -> Result<()> {
    scenario("bad-client", async |space| {
        space.install_operator(&[]).await?;
        space
            .ready_cluster(
                &cluster("demo", &json!({})),
                &[stream("orders", "demo", &json!({}))],
            )
            .await?;
        space.ready_cluster(&cluster("other", &json!({})), &[]).await?;

        let client = space.connect("demo").await?;
        let unknown = client
            .publisher("no-such-stream")
            .open()
            .await
            .err()
            .context("an unknown stream was opened")?;
        ensure!(
            unknown.to_string().contains("UnknownStream"),
            "not the error of an unknown stream: {unknown}"
        );

        let wrong_ca = space.ca_bundle("other").await?;
        let refused = space
            .connect_with("demo", &wrong_ca)
            .await
            .err()
            .context("another cluster's CA was good enough")?;
        ensure!(
            format!("{refused:#}").contains("certificate"),
            "not an error about certificates: {refused:#}"
        );

        let publisher = client.publisher("orders").open().await?;
        let large = vec![0; (1 << 20) + 1];
        let refusal = match publisher.send(Record::new(&large)).await {
            Err(error) => error,
            Ok(ack) => ack.await.err().context("a record over the limit was acked")?,
        };
        ensure!(
            refusal.to_string().contains("1048576"),
            "the refusal does not name the limit: {refusal}"
        );
        publisher.send(Record::new("small")).await?.await?;
        Ok(())
    })
}

#[test]
fn a_namespace_that_ends_takes_everything_along() -> Result<()> {
    scenario("namespace-ends", async |space| {
        space.install_operator(&[]).await?;
        let orders = stream("orders", "demo", &json!({ "deletionPolicy": "Delete" }));
        let demo = cluster("demo", &json!({ "storage": { "deletionPolicy": "Delete" } }));
        space.ready_cluster(&demo, &[orders]).await?;
        space.end().await
    })
}

fn said_in_conditions(object: &DynamicObject, words: &str) -> bool {
    let conditions = object.data["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions
        .filter_map(|condition| condition["message"].as_str())
        .any(|message| message.contains(words))
}
