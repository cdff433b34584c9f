//! A bound volume that should be larger, with what a storage class and the API server may say to that.

use super::*;

const CLASS: &str = "/apis/storage.k8s.io/v1/storageclasses/fast";

/// A settled cluster whose claim is bound with 1 GiB and which now asks for 2.
async fn short_of_space(class: Option<Value>) -> Lab {
    let lab = lab(&spec());
    lab.settle().await;
    put_pending_pod(&lab);
    lab.edit(
        CLAIM,
        "/status",
        json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } }),
    );
    if let Some(class) = class {
        lab.api.put(CLASS, class);
    }
    lab.settle().await;
    lab.edit(CLUSTER, "/spec/storage/size", json!("2Gi"));
    lab.edit(CLUSTER, "/metadata/generation", json!(2));
    lab.api.take_writes();
    lab
}

fn class(expands: bool) -> Option<Value> {
    Some(json!({ "metadata": { "name": "fast" }, "provisioner": "x", "allowVolumeExpansion": expands }))
}

fn asked(lab: &Lab) -> Value {
    lab.api.get(CLAIM).unwrap()["spec"]["resources"]["requests"]["storage"].clone()
}

fn storage_bound(lab: &Lab) -> (String, String) {
    let conditions = lab.cluster().unwrap().status.unwrap().conditions;
    let condition = conditions.into_iter().find(|c| c.kind == "StorageBound").unwrap();
    (condition.reason, condition.message)
}

fn claim_writes(lab: &Lab) -> usize {
    let writes = lab.api.take_writes();
    writes.iter().filter(|write| write.ends_with(CLAIM)).count()
}

#[tokio::test]
async fn where_the_class_allows_it_the_claim_is_asked_for_more_once() {
    let lab = short_of_space(class(true)).await;
    let uid = lab.api.get(CLAIM).unwrap()["metadata"]["uid"].clone();
    lab.reconcile().await.unwrap();
    assert_eq!((asked(&lab), claim_writes(&lab)), (json!("2Gi"), 1));
    assert_eq!(storage_bound(&lab).0, "Growing");
    lab.settle().await;
    assert_eq!(claim_writes(&lab), 0);
    lab.edit(CLAIM, "/status/capacity/storage", json!("2Gi"));
    lab.settle().await;
    assert_eq!(storage_bound(&lab).0, "Bound");
    // A smaller size is no reason to touch it, wherever it comes from.
    lab.edit(CLUSTER, "/spec/storage/size", json!("1Gi"));
    lab.settle().await;
    let claim = lab.api.get(CLAIM).unwrap();
    assert_eq!((&claim["metadata"]["uid"], asked(&lab)), (&uid, json!("2Gi")));
}

#[tokio::test]
async fn where_the_class_does_not_allow_it_nothing_is_asked_and_the_remedy_is_told() {
    for (class, part) in [
        (class(false), "set allowVolumeExpansion: true"),
        (None, "does not exist any more"),
    ] {
        let lab = short_of_space(class).await;
        lab.reconcile().await.unwrap();
        lab.reconcile().await.unwrap();
        assert_eq!((asked(&lab), claim_writes(&lab)), (json!("1Gi"), 0));
        let (reason, message) = storage_bound(&lab);
        assert_eq!(reason, "CannotGrow");
        assert!(
            message.contains("keeps 1073741824 bytes") && message.contains(part),
            "{message}"
        );
    }
}

#[tokio::test]
async fn who_may_not_read_classes_asks_once_for_each_spec_and_tells_the_refusal() {
    let lab = short_of_space(class(true)).await;
    lab.api.refuse(&format!("GET {CLASS}"), 403, "Forbidden");
    lab.api
        .refuse(&format!("PATCH {CLAIM}"), 403, "the class must support resize");
    lab.reconcile().await.unwrap();
    let (reason, message) = storage_bound(&lab);
    assert_eq!(reason, "CannotGrow");
    assert!(message.contains("the class must support resize"), "{message}");
    assert_eq!(claim_writes(&lab), 1);
    lab.settle().await;
    lab.reconcile().await.unwrap();
    assert_eq!(
        claim_writes(&lab),
        0,
        "a refused request is not sent again and again"
    );
    assert!(storage_bound(&lab).1.contains("write spec.storage.size anew"));
    lab.edit(CLUSTER, "/metadata/generation", json!(3));
    lab.reconcile().await.unwrap();
    assert_eq!(claim_writes(&lab), 1);
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_growth_changes_nothing_in_the_end() {
    let prepare = async |lab: &Lab| {
        lab.settle().await;
        put_pending_pod(lab);
        lab.edit(
            CLAIM,
            "/status",
            json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } }),
        );
        lab.api.put(CLASS, class(true).unwrap());
        lab.settle().await;
        lab.edit(CLUSTER, "/spec/storage/size", json!("2Gi"));
    };
    Lab::survives_every_crash(prepare, &spec()).await;
}
