//! An operator that watches every namespace: it serves one that is not its own, and lets a namespace end that has streams
//! with a finalizer. (With Roles alone it could not: they go with the namespace, before the streams.)

use anyhow::{Result, ensure};
use felix_e2e::{Kind, cluster, scenario, stream};
use kube::ResourceExt;
use serde_json::json;

#[test]
fn a_watched_namespace_ends_although_its_stream_has_a_finalizer() -> Result<()> {
    let _alone = super::alone();
    scenario("operator", async |home| {
        home.install_operator(&["watchNamespaces=all"]).await?;
        let tenant = home.another("tenant").await?;
        let orders = stream("orders", "demo", &json!({ "deletionPolicy": "Delete" }));
        tenant
            .ready_cluster(&cluster("demo", &json!({})), &[orders])
            .await?;
        let stored = tenant.felix(Kind::Stream).get("orders").await?;
        ensure!(
            !stored.finalizers().is_empty(),
            "a stream that must be deleted with its object has no finalizer"
        );
        tenant.end().await
    })
}
