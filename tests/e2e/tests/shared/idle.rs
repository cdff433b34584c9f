//! An operator that has nothing to do writes nothing.

use anyhow::{Result, ensure};
use felix_e2e::{AuditLog, QUICK, Samples, Space, USUAL, await_object, cluster, poll, scenario, stream};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::json;

#[test]
fn two_resyncs_of_an_idle_cluster_write_nothing() -> Result<()> {
    scenario("idle", async |space| {
        let audit = AuditLog::open()?;
        space.install_operator(&[]).await?;
        resync_often(space).await?;
        space
            .ready_cluster(
                &cluster("demo", &json!({})),
                &[stream("orders", "demo", &json!({}))],
            )
            .await?;
        let user = format!("system:serviceaccount:{}:felix-operator", space.name);

        // What Ready sets off (an event, the last status) may still be on its way: begin after a silent resync.
        let operator = space.operator_pod().await?;
        let reconciles = async || Ok::<_, anyhow::Error>(of_cluster(&space.scrape(&operator, 8080).await?));
        let await_one_more = async |than: f64| {
            poll("one more reconcile of the cluster", QUICK, async || {
                let now = reconciles().await?;
                Ok((now > than).then_some(now))
            })
            .await
        };
        let ready = Timestamp::now();
        ensure!(
            !audit.writes_of(&user, Timestamp::MIN)?.is_empty(),
            "the audit log has no write of {user} at all"
        );
        let settled = await_one_more(reconciles().await?).await?;

        let begin = Timestamp::now();
        let one = await_one_more(settled).await?;
        await_one_more(one).await?;
        // The API server writes its log before it answers, and a reconcile is counted when it is over: all is there.
        let writes = audit.writes_of(&user, begin)?;
        ensure!(
            writes.is_empty(),
            "written in two idle resyncs (ready at {ready}): {writes:#?}"
        );
        Ok(())
    })
}

/// Every two seconds instead of minutes: as a setting of the operator's pod, since the chart has no value for it.
async fn resync_often(space: &Space) -> Result<()> {
    let environment = json!([{ "name": "FELIX_OPERATOR_RESYNC_SECONDS", "value": "2" }]);
    let container = json!({ "name": "operator", "env": environment });
    let patch = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    let api = space.api::<Deployment>();
    let patched = api
        .patch(
            "felix-operator",
            &PatchParams::default(),
            &Patch::Strategic(patch),
        )
        .await?;
    await_object(
        &api,
        "felix-operator",
        "the operator resyncs often",
        USUAL,
        |deployment| {
            let status = deployment?.status.as_ref()?;
            let current = status.observed_generation >= patched.metadata.generation;
            (current && status.updated_replicas == Some(1) && status.ready_replicas == Some(1)).then_some(())
        },
    )
    .await
}

fn of_cluster(samples: &Samples) -> f64 {
    let clusters = samples.0.iter().filter(|sample| {
        sample.name == "felix_operator_reconciles_total"
            && sample
                .labels
                .get("kind")
                .is_some_and(|kind| kind == "FelixCluster")
    });
    clusters.map(|sample| sample.value).sum()
}
