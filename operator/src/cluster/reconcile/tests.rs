//! Whole reconciles against an API server in memory: idle, healed, interrupted at every write.

mod growth;
mod races;

use std::collections::BTreeMap;

use clap::Parser as _;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;
use crate::{
    config::{Cli, Command},
    fake_api::{FakeApi, Moment},
    metrics::Metrics,
};

const CLUSTER: &str = "/apis/felix.dev/v1alpha1/namespaces/ns/felixclusters/demo";
const STATEFUL_SET: &str = "/apis/apps/v1/namespaces/ns/statefulsets/demo-broker";
const CLAIM: &str = "/api/v1/namespaces/ns/persistentvolumeclaims/data-demo-broker-0";
const POD: &str = "/api/v1/namespaces/ns/pods/demo-broker-0";
const CA: &str = "/api/v1/namespaces/ns/secrets/demo-ca";

struct Lab {
    api: FakeApi,
    context: Context,
}

fn lab(spec: &Value) -> Lab {
    let api = FakeApi::default();
    let arguments = [
        "felix-operator",
        "run",
        "--operator-namespace",
        "ns",
        "--cluster-domain",
        "cluster.local",
    ];
    let Command::Run(args) = Cli::parse_from(arguments).command else {
        panic!("not the run command")
    };
    let context = Context::new(api.client(), &args, Metrics::register(&mut Registry::default()));
    api.put("/api/v1/namespaces/ns", json!({ "metadata": { "name": "ns" } }));
    api.put(
        CLUSTER,
        json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixCluster",
            "metadata": { "name": "demo", "namespace": "ns", "uid": "uid-of-demo", "generation": 1 },
            "spec": spec,
        }),
    );
    Lab { api, context }
}

impl Lab {
    fn cluster(&self) -> Option<FelixCluster> {
        serde_json::from_value(self.api.get(CLUSTER)?).unwrap()
    }

    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        let Some(cluster) = self.cluster() else {
            return Ok(Action::await_change());
        };
        reconcile(&self.context, &cluster).await
    }

    /// Until nothing is written any more.
    async fn settle(&self) {
        for _ in 0..10 {
            self.api.take_writes();
            self.reconcile().await.unwrap();
            if self.api.take_writes().is_empty() {
                return;
            }
        }
        panic!("it does not settle");
    }

    fn edit(&self, path: &str, pointer: &str, value: Value) {
        let mut object = self.api.get(path).unwrap();
        *object.pointer_mut(pointer).unwrap() = value;
        self.api.put(path, object);
    }

    /// All objects, without what differs from run to run: versions, keys and what is derived from them.
    fn objects(&self) -> BTreeMap<String, Value> {
        let without_chance = |path: String| {
            let mut object = self.api.get(&path).unwrap();
            let metadata = object["metadata"].as_object_mut().unwrap();
            for key in ["resourceVersion", "uid", "annotations"] {
                metadata.remove(key);
            }
            if path.contains("/secrets/") || path.ends_with("configmaps/demo-ca") {
                for value in object["data"].as_object_mut().unwrap().values_mut() {
                    *value = Value::Null;
                }
            }
            for condition in object["status"]["conditions"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                condition["lastTransitionTime"] = Value::Null;
            }
            (path, object)
        };
        self.api.paths().into_iter().map(without_chance).collect()
    }

    /// Disturbs `act` at each of its writes, at both moments, and expects what the undisturbed run leaves.
    async fn survives_every_crash(prepare: impl AsyncFn(&Self), spec: &Value) {
        let clean = lab(spec);
        prepare(&clean).await;
        clean.api.take_writes();
        clean.reconcile().await.unwrap();
        let writes = clean.api.take_writes();
        clean.settle().await;
        let expected = clean.objects();
        assert!(!writes.is_empty());
        for write in 1..=writes.len() {
            for moment in [Moment::Before, Moment::After] {
                let disturbed = lab(spec);
                prepare(&disturbed).await;
                disturbed.api.crash_at(write, moment);
                // Events and logs do not fail a reconcile; whatever it says, the process is gone.
                let _ = disturbed.reconcile().await;
                disturbed.api.recover();
                disturbed.settle().await;
                assert_eq!(
                    disturbed.objects(),
                    expected,
                    "{moment:?} write {write}: {}",
                    writes[write - 1]
                );
            }
        }
    }
}

fn spec() -> Value {
    json!({ "storage": { "size": "1Gi", "className": "fast" } })
}

#[tokio::test]
async fn a_settled_cluster_is_left_alone() {
    let lab = lab(&spec());
    lab.settle().await;
    assert_eq!(lab.api.paths().len(), 14, "{:#?}", lab.api.paths());
    for _ in 0..3 {
        lab.reconcile().await.unwrap();
    }
    assert_eq!(lab.api.take_writes(), Vec::<String>::new());
}

#[tokio::test]
async fn every_child_that_is_deleted_comes_back_as_it_was() {
    let lab = lab(&spec());
    lab.settle().await;
    let before = lab.objects();
    for path in lab
        .api
        .paths()
        .into_iter()
        .filter(|path| path.ends_with("/demo") || path.contains("/demo-"))
    {
        if path != CLUSTER {
            lab.api.remove(&path);
            lab.settle().await;
            assert_eq!(lab.objects(), before, "{path}");
        }
    }
}

#[tokio::test]
async fn what_somebody_else_changes_is_put_right_and_what_he_adds_stays() {
    let lab = lab(&spec());
    lab.settle().await;
    lab.edit(STATEFUL_SET, "/spec/updateStrategy/type", json!("RollingUpdate"));
    let mut service = lab.api.get("/api/v1/namespaces/ns/services/demo").unwrap();
    service["metadata"]["labels"]["theirs"] = json!("1");
    lab.api.put("/api/v1/namespaces/ns/services/demo", service);
    lab.settle().await;
    assert_eq!(
        lab.api.get(STATEFUL_SET).unwrap()["spec"]["updateStrategy"]["type"],
        "OnDelete"
    );
    let service = lab.api.get("/api/v1/namespaces/ns/services/demo").unwrap();
    assert_eq!(service["metadata"]["labels"]["theirs"], "1");
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_creation_changes_nothing_in_the_end() {
    Lab::survives_every_crash(async |_: &Lab| {}, &spec()).await;
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_change_changes_nothing_in_the_end() {
    let prepare = async |lab: &Lab| {
        lab.settle().await;
        let config =
            json!({ "storage": { "size": "1Gi", "className": "fast" }, "config": { "maxConnections": 7 } });
        lab.edit(CLUSTER, "/spec", config);
    };
    Lab::survives_every_crash(prepare, &spec()).await;
}

/// What the StatefulSet controller would have made, with a claim that has no volume.
fn put_pending_pod(lab: &Lab) {
    let template = lab.api.get(STATEFUL_SET).unwrap()["spec"]["volumeClaimTemplates"][0].clone();
    let mut claim = json!({ "metadata": template["metadata"], "spec": template["spec"], "status": { "phase": "Pending" } });
    claim["metadata"]["name"] = json!("data-demo-broker-0");
    claim["metadata"]["namespace"] = json!("ns");
    lab.api.put(CLAIM, claim);
    let labels = lab.api.get(STATEFUL_SET).unwrap()["spec"]["template"]["metadata"]["labels"].clone();
    lab.api.put(
        POD,
        json!({ "metadata": { "name": "demo-broker-0", "namespace": "ns", "labels": labels } }),
    );
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_corrected_storage_class_changes_nothing_in_the_end() {
    let prepare = async |lab: &Lab| {
        lab.settle().await;
        put_pending_pod(lab);
        lab.settle().await;
        lab.edit(CLUSTER, "/spec/storage/className", json!("other"));
    };
    Lab::survives_every_crash(prepare, &spec()).await;
    let lab = lab(&spec());
    prepare(&lab).await;
    lab.settle().await;
    assert!(
        lab.api.get(CLAIM).is_none() && lab.api.get(POD).is_none(),
        "the old claim and its pod are gone"
    );
    let template = lab.api.get(STATEFUL_SET).unwrap()["spec"]["volumeClaimTemplates"][0].clone();
    assert_eq!(template["spec"]["storageClassName"], "other");
}

fn delete(lab: &Lab) {
    let mut cluster = lab.api.get(CLUSTER).unwrap();
    cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    lab.api.put(CLUSTER, cluster);
}

#[tokio::test]
async fn with_retain_a_deletion_needs_nobody_and_the_next_cluster_of_that_name_is_the_same() {
    let lab = lab(&spec());
    lab.settle().await;
    put_pending_pod(&lab);
    lab.settle().await;
    let cluster = lab.api.get(CLUSTER).unwrap();
    assert!(
        cluster["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty)
    );
    let ca = lab.api.get(CA).unwrap()["data"].clone();
    lab.api.remove(CLUSTER);
    lab.api.collect_garbage();
    lab.api.remove(POD);
    let mut again = cluster;
    again["metadata"]["uid"] = json!("another-uid");
    again["status"] = Value::Null;
    lab.api.put(CLUSTER, again);
    lab.settle().await;
    assert_eq!(
        lab.api.get(CLUSTER).unwrap()["status"]["clusterID"],
        "uid-of-demo"
    );
    assert_eq!(lab.api.get(CA).unwrap()["data"]["tls.crt"], ca["tls.crt"]);
    assert!(lab.api.get(CLAIM).is_some());
}

#[tokio::test]
async fn with_delete_claims_and_ca_go_after_the_stateful_set_whatever_crashes() {
    let spec = json!({ "storage": { "size": "1Gi", "deletionPolicy": "Delete" } });
    let lab = lab(&spec);
    lab.settle().await;
    put_pending_pod(&lab);
    let foreign = "/api/v1/namespaces/ns/persistentvolumeclaims/theirs";
    lab.api.put(foreign, json!({ "metadata": { "name": "theirs", "namespace": "ns", "labels": { "felix.dev/cluster": "other" } } }));
    assert_eq!(
        lab.api.get(CLUSTER).unwrap()["metadata"]["finalizers"],
        json!(["felix.dev/operator"])
    );
    delete(&lab);
    for write in 1..4 {
        lab.api.crash_at(
            write,
            if write % 2 == 0 {
                Moment::After
            } else {
                Moment::Before
            },
        );
        let _ = lab.reconcile().await;
        lab.api.recover();
    }
    assert!(lab.api.get(STATEFUL_SET).is_none());
    assert!(lab.api.get(CLAIM).is_some(), "the pod may still write");
    lab.api.remove(POD);
    lab.settle().await;
    assert!(lab.api.get(CLAIM).is_none() && lab.api.get(CA).is_none());
    assert!(lab.api.get(foreign).is_some());
    assert_eq!(lab.api.get(CLUSTER).unwrap()["metadata"]["finalizers"], json!([]));
}

#[tokio::test]
async fn a_pod_of_somebody_else_with_our_labels_is_not_ours_to_restart() {
    let lab = lab(&spec());
    lab.settle().await;
    put_pending_pod(&lab);
    let mut set = lab.api.get(STATEFUL_SET).unwrap();
    set["metadata"]["generation"] = json!(1);
    set["status"] = json!({ "observedGeneration": 1, "updateRevision": "new", "replicas": 1 });
    lab.api.put(STATEFUL_SET, set);
    let labels = lab.api.get(POD).unwrap()["metadata"]["labels"].clone();
    let copies = [
        ("/api/v1/namespaces/ns/pods/demo-broker-0-debug", Value::Null),
        (
            "/api/v1/namespaces/ns/pods/demo-broker-7",
            json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x", "controller": true }]),
        ),
    ];
    for (path, owners) in &copies {
        let name = path.rsplit('/').next();
        let metadata =
            json!({ "name": name, "namespace": "ns", "labels": labels, "ownerReferences": owners });
        lab.api.put(path, json!({ "metadata": metadata }));
    }
    lab.reconcile().await.unwrap();
    lab.reconcile().await.unwrap();
    assert!(
        lab.api.get(POD).is_none(),
        "ours has no revision and is restarted"
    );
    for (path, _) in &copies {
        assert!(lab.api.get(path).is_some(), "{path}");
    }
}

#[tokio::test]
async fn a_deletion_that_waits_says_for_what() {
    let lab = lab(&json!({ "storage": { "size": "1Gi", "deletionPolicy": "Delete" } }));
    lab.settle().await;
    put_pending_pod(&lab);
    delete(&lab);
    lab.reconcile().await.unwrap();
    lab.reconcile().await.unwrap();
    let conditions = lab.cluster().unwrap().status.unwrap().conditions;
    let ready = conditions.iter().find(|c| c.kind == "Ready").unwrap();
    assert_eq!(ready.reason, "Leaving");
    assert!(ready.message.contains("demo-broker-0"), "{}", ready.message);
    lab.api.take_writes();
    lab.reconcile().await.unwrap();
    assert_eq!(lab.api.take_writes(), Vec::<String>::new(), "it is said once");
}

#[tokio::test]
async fn a_name_that_is_taken_is_said_and_nothing_of_others_is_touched() {
    let lab = lab(&spec());
    let theirs = "/api/v1/namespaces/ns/services/demo";
    lab.api.put(
        theirs,
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "demo", "namespace": "ns" } }),
    );
    let before = lab.api.get(theirs);
    assert!(
        lab.reconcile().await.is_err(),
        "it is tried again with growing waits"
    );
    assert_eq!(lab.api.get(theirs), before);
    let cluster = lab.cluster().unwrap();
    let ready = cluster
        .status
        .unwrap()
        .conditions
        .into_iter()
        .find(|c| c.kind == "Ready")
        .unwrap();
    assert_eq!(ready.reason, "NameTaken");
}

#[tokio::test]
async fn a_paused_cluster_gets_a_status_and_nothing_else() {
    let lab = lab(&json!({ "storage": { "size": "1Gi" }, "paused": true }));
    lab.reconcile().await.unwrap();
    let writes = lab.api.take_writes();
    let only_status = writes
        .iter()
        .all(|write| write.ends_with("/demo/status") || write.contains("/events"));
    assert!(only_status, "{writes:#?}");
}

#[tokio::test]
async fn an_invalid_cluster_says_so_and_makes_nothing() {
    let lab = lab(&json!({ "storage": { "size": "1Gi" }, "replicas": 3 }));
    lab.reconcile().await.unwrap();
    let conditions = lab.cluster().unwrap().status.unwrap().conditions;
    assert!(
        conditions
            .iter()
            .any(|c| c.kind == "Ready" && c.reason == "Invalid" && c.message.contains("replicas"))
    );
    assert_eq!(lab.api.paths().len(), 2);
}
