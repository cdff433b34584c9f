//! What somebody else does in the middle of a reconcile, before each of its requests.

use super::*;

const SERVER: &str = "/api/v1/namespaces/ns/secrets/demo-tls";
const TOKEN: &str = "/api/v1/namespaces/ns/secrets/demo-admin-token";

/// The requests that one reconcile makes after `prepare`.
async fn requests(prepare: impl AsyncFn(&Lab)) -> Vec<String> {
    let lab = lab(&spec());
    prepare(&lab).await;
    lab.api.take_requests();
    lab.reconcile().await.unwrap();
    lab.api.take_requests()
}

#[tokio::test]
async fn a_ca_that_is_deleted_right_after_its_cluster_stays_away() {
    let new = async |_: &Lab| {};
    let without_ca = async |lab: &Lab| {
        lab.settle().await;
        lab.api.remove(CA);
    };
    for number in 1..=requests(new).await.len() {
        nothing_is_left(new, number).await;
    }
    for number in 1..=requests(without_ca).await.len() {
        nothing_is_left(without_ca, number).await;
    }
}

async fn nothing_is_left(prepare: impl AsyncFn(&Lab), number: usize) {
    let lab = lab(&spec());
    prepare(&lab).await;
    lab.api.before_request(number, |server| {
        server.remove(CLUSTER);
        server.remove(CA);
    });
    // Whether it fails or ends early is its own affair.
    let _ = lab.reconcile().await;
    lab.reconcile().await.unwrap();
    lab.api.collect_garbage();
    assert_eq!(
        lab.api.paths(),
        ["/api/v1/namespaces/ns"],
        "before request {number}"
    );
}

#[tokio::test]
async fn a_cluster_of_the_same_name_that_follows_at_once_gets_a_ca_of_its_own() {
    for number in 1..=requests(async |_: &Lab| {}).await.len() {
        let lab = lab(&spec());
        let mut next = lab.api.get(CLUSTER).unwrap();
        next["metadata"]["uid"] = json!("uid-of-the-next");
        lab.api.before_request(number, move |server| {
            server.remove(CLUSTER);
            server.remove(CA);
            server.store(CLUSTER, next);
        });
        let _ = lab.reconcile().await;
        // What was born for the one before may be in the way until the garbage collector has been there.
        let _ = lab.reconcile().await;
        lab.api.collect_garbage();
        lab.settle().await;
        let ca = lab.api.get(CA).unwrap();
        assert_eq!(
            ca["metadata"]["labels"]["felix.dev/cluster-id"], "uid-of-the-next",
            "before request {number}"
        );
        assert!(
            ca["metadata"]["ownerReferences"].is_null(),
            "before request {number}"
        );
    }
}

#[tokio::test]
async fn a_key_or_token_that_is_deleted_never_comes_back_as_the_same() {
    let settled = async |lab: &Lab| lab.settle().await;
    let changed = async |lab: &Lab| {
        lab.settle().await;
        lab.edit(
            CLUSTER,
            "/spec",
            json!({ "storage": { "size": "1Gi", "className": "fast" }, "tls": { "managed": {}, "extraNames": ["a.example"] } }),
        );
    };
    for number in 1..=requests(settled).await.len() {
        is_made_anew(settled, number, CA, "tls.key").await;
    }
    for (path, key) in [(SERVER, "tls.key"), (TOKEN, "token")] {
        for number in 1..=requests(changed).await.len() {
            is_made_anew(changed, number, path, key).await;
        }
    }
}

async fn is_made_anew(prepare: impl AsyncFn(&Lab), number: usize, path: &'static str, key: &str) {
    let lab = lab(&spec());
    prepare(&lab).await;
    let old = lab.api.get(path).unwrap()["data"][key].clone();
    lab.api.before_request(number, move |server| {
        server.remove(path);
    });
    let _ = lab.reconcile().await;
    lab.settle().await;
    let new = &lab.api.get(path).unwrap()["data"][key];
    assert!(new.is_string(), "{path} before request {number}");
    assert_ne!(*new, old, "{path} before request {number}");
}

#[tokio::test]
async fn a_ca_that_somebody_puts_there_meanwhile_is_not_overwritten() {
    let other = lab(&spec());
    other.settle().await;
    let theirs = other.api.get(CA).unwrap();
    let requests = requests(async |_: &Lab| {}).await;
    // Once the request that makes the CA is on its way there is only one moment left, the server's own.
    let birth = requests
        .iter()
        .position(|request| *request == format!("PATCH {CA}"))
        .unwrap();
    for number in 1..=birth {
        let lab = lab(&spec());
        let put = theirs.clone();
        lab.api.before_request(number, move |server| {
            server.store(CA, put);
        });
        let _ = lab.reconcile().await;
        lab.settle().await;
        let held = &lab.api.get(CA).unwrap()["data"]["tls.key"];
        assert_eq!(
            *held,
            theirs["data"]["tls.key"],
            "before {}",
            requests[number - 1]
        );
    }
}

#[tokio::test]
async fn what_is_deleted_between_look_and_change_is_not_made_from_an_old_look() {
    let lab = lab(&spec());
    lab.settle().await;
    lab.edit(STATEFUL_SET, "/spec/updateStrategy/type", json!("RollingUpdate"));
    let before = lab.api.get(STATEFUL_SET).unwrap()["metadata"]["uid"].clone();
    lab.reconcile().await.unwrap();
    lab.edit(STATEFUL_SET, "/spec/updateStrategy/type", json!("RollingUpdate"));
    let requests = requests(async |lab: &Lab| {
        lab.settle().await;
        lab.edit(STATEFUL_SET, "/spec/updateStrategy/type", json!("RollingUpdate"));
    })
    .await;
    for number in 1..=requests.len() {
        lab.edit(STATEFUL_SET, "/spec/updateStrategy/type", json!("RollingUpdate"));
        lab.api.before_request(number, |server| {
            server.remove(STATEFUL_SET);
        });
        let _ = lab.reconcile().await;
        lab.settle().await;
        let set = lab.api.get(STATEFUL_SET).unwrap();
        assert_eq!(
            set["spec"]["updateStrategy"]["type"], "OnDelete",
            "before request {number}"
        );
        assert_ne!(set["metadata"]["uid"], before, "before request {number}");
    }
}
