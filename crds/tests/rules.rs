//! The rules of creation and of change, evaluated as the API server evaluates them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where something is not as it must be"
)]

use felix_crds::{FelixBenchmark, FelixCluster, FelixStream, check, check_update};
use kube::CustomResourceExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn object<K: DeserializeOwned>(kind: &str, name: &str, spec: &Value) -> K {
    let object = json!({ "apiVersion": "felix.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

fn cluster(spec: &Value) -> FelixCluster {
    object("FelixCluster", "demo", spec)
}

fn stream(spec: &Value) -> FelixStream {
    object("FelixStream", "orders", spec)
}

fn benchmark(spec: &Value) -> FelixBenchmark {
    object("FelixBenchmark", "bench", spec)
}

/// A spec with one value replaced (by its JSON pointer) or taken out (null).
fn with(spec: Value, pointer: &str, value: Value) -> Value {
    let mut spec = spec;
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let mut at = &mut spec;
    for part in parent.split('/').skip(1) {
        at = &mut at[part];
    }
    if value.is_null() {
        at.as_object_mut().unwrap().remove(key);
    } else {
        at[key] = value;
    }
    spec
}

#[track_caller]
fn refused<K: Serialize + CustomResourceExt>(object: &K, part_of_message: &str) {
    let errors = check(object).expect_err("should be refused").to_string();
    assert!(errors.contains(part_of_message), "{errors}");
}

#[track_caller]
fn change_refused<K: Serialize + CustomResourceExt>(new: &K, old: &K, part_of_message: &str) {
    let errors = check_update(new, old).expect_err("should be refused").to_string();
    assert!(errors.contains(part_of_message), "{errors}");
}

fn small() -> Value {
    json!({ "storage": { "size": "1Gi" } })
}

fn full() -> Value {
    json!({
        "replicas": 1,
        "image": { "repository": "localhost:5000/felix-broker", "tag": "0.1.0", "pullPolicy": "Always" },
        "imagePullSecrets": [{ "name": "registry" }],
        "resources": { "requests": { "cpu": "0.5", "memory": "1Gi" }, "limits": { "cpu": "2", "memory": "2048Mi" } },
        "storage": { "size": "1.5Gi", "className": "fast", "deletionPolicy": "Delete" },
        "udpBuffers": { "receiveBytes": 1_048_576, "sendBytes": 2_097_152 },
        "tls": { "managed": {}, "extraNames": ["felix.example.com", "*.felix.example.com", "10.0.0.1", "fd00::1"] },
        "authentication": { "type": "None" },
        "clientService": { "labels": { "team": "a" }, "annotations": { "note": "b" } },
        "scheduling": { "nodeSelector": { "disk": "nvme" }, "tolerations": [{ "key": "a", "operator": "Exists" }],
                        "priorityClassName": "high" },
        "paused": true,
        "config": { "memoryBudgetBytes": 67_108_864, "logLevel": "debug" },
    })
}

#[test]
fn good_clusters_are_taken() {
    for spec in [small(), full()] {
        let cluster = cluster(&spec);
        check(&cluster).unwrap();
        check_update(&cluster, &cluster).unwrap();
    }
}

#[test]
fn cluster_names_leave_room_for_what_is_derived_from_them() {
    let named = |name: &str| object::<FelixCluster>("FelixCluster", name, &small());
    for name in ["a", "felix", "a-1", &"x".repeat(40)] {
        check(&named(name)).unwrap();
    }
    for name in [&"x".repeat(41), "a.b", "1a", "a-", "Demo"] {
        refused(&named(name), "1 to 40 lower-case letters");
    }
    refused(&named("demo-brokers"), "does not end with -brokers");
}

#[test]
fn bad_clusters_are_refused_with_what_to_do() {
    for (pointer, value, message) in [
        ("/replicas", json!(3), "set replicas to 1"),
        ("/replicas", json!(0), "set replicas to 1"),
        ("/storage/size", json!("0"), "at least 16Mi"),
        ("/storage/size", json!("100m"), "thousandths of a byte"),
        ("/storage/size", json!("2g"), "thousandths of a byte"),
        (
            "/resources",
            json!({ "requests": { "memory": "512m" } }),
            "thousandths of a byte",
        ),
        (
            "/resources",
            json!({ "requests": { "cpu": "half" } }),
            "thousandths of a core",
        ),
        (
            "/resources",
            json!({ "limits": { "memory": "1Mi" } }),
            "at least 64Mi",
        ),
        (
            "/resources",
            json!({ "requests": { "memory": "2Gi" }, "limits": { "memory": "1Gi" } }),
            "lower requests.memory",
        ),
        (
            "/resources",
            json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1500m" } }),
            "lower requests.cpu",
        ),
        (
            "/image",
            json!({ "repository": "felix-broker" }),
            "together with a tag or a digest",
        ),
        (
            "/image",
            json!({ "tag": "0.1.0" }),
            "together with a tag or a digest",
        ),
        (
            "/image",
            json!({ "repository": "a b", "tag": "1" }),
            "write the repository alone",
        ),
        (
            "/image",
            json!({ "repository": "a", "digest": format!("sha256:{}", "g".repeat(64)) }),
            "64 hexadecimal digits",
        ),
        (
            "/config",
            json!({ "initialMtu": 1400, "mtuUpperBound": 1350 }),
            "lower initialMtu",
        ),
        ("/tls", json!({ "extraNames": ["a"] }), "managed: {}"),
        (
            "/tls",
            json!({ "managed": {}, "extraNames": ["a b"] }),
            "DNS names",
        ),
    ] {
        refused(&cluster(&with(small(), pointer, value)), message);
    }
}

#[test]
fn a_volume_does_not_shrink_once_it_is_bound() {
    let old = cluster(&small());
    for size in ["1Gi", "1024Mi", "2Gi", "1.5Gi"] {
        check_update(&cluster(&with(small(), "/storage/size", json!(size))), &old).unwrap();
    }
    let smaller = cluster(&with(small(), "/storage/size", json!("512Mi")));
    change_refused(&smaller, &old, "a volume cannot shrink");

    let mut reported = old.clone();
    for (status, allowed) in [("True", false), ("Unknown", false), ("False", true)] {
        let condition = json!({
            "type": "StorageBound", "status": status, "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Pending", "message": "",
        });
        reported.status = Some(serde_json::from_value(json!({ "conditions": [condition] })).unwrap());
        assert_eq!(check_update(&smaller, &reported).is_ok(), allowed, "{status}");
    }
}

fn small_stream() -> Value {
    json!({ "clusterRef": { "name": "demo" } })
}

#[test]
fn bad_streams_are_refused_with_what_to_do() {
    check(&stream(&small_stream())).unwrap();
    check(&stream(&with(
        small_stream(),
        "/streamName",
        json!("Orders.eu_1-x"),
    )))
    .unwrap();
    for (pointer, value, message) in [
        ("/class", json!("durable"), "do not exist yet"),
        ("/class", json!("quorum"), "do not exist yet"),
        ("/streamName", json!("../../etc"), "ASCII letters"),
        ("/streamName", json!("заказы"), "ASCII letters"),
        ("/streamName", json!("a/b"), "ASCII letters"),
        ("/streamName", json!("e\u{301}"), "ASCII letters"),
        ("/streamName", json!(".hidden"), "ASCII letters"),
        ("/streamName", json!("trailing-"), "ASCII letters"),
        (
            "/slowSubscriber",
            json!({ "policy": "block" }),
            "allowBlock: true",
        ),
        ("/ringBytes", json!(65_536), "windowBytes: lower it"),
    ] {
        refused(&stream(&with(small_stream(), pointer, value)), message);
    }
}

#[test]
fn what_a_stream_is_made_of_cannot_change() {
    let old = stream(&with(small_stream(), "/streamName", json!("orders")));
    for (pointer, value, message) in [
        (
            "/clusterRef",
            json!({ "name": "other" }),
            "clusterRef cannot change",
        ),
        ("/streamName", json!("other"), "streamName cannot change"),
        ("/streamName", Value::Null, "cannot be added or removed"),
        ("/shards", json!(2), "shards cannot change"),
    ] {
        let spec = with(
            with(small_stream(), "/streamName", json!("orders")),
            pointer,
            value,
        );
        change_refused(&stream(&spec), &old, message);
    }
    let unnamed = stream(&small_stream());
    change_refused(&old, &unnamed, "cannot be added or removed");

    let mut other = stream(&with(small_stream(), "/ringBytes", json!(16_777_216)));
    other.spec.deletion_policy = felix_crds::DeletionPolicy::Delete;
    check_update(&other, &unnamed).unwrap();
}

fn small_benchmark() -> Value {
    json!({ "clusterRef": { "name": "demo" }, "streamRef": { "name": "s" }, "latency": { "preset": "quick" } })
}

#[test]
fn a_benchmark_takes_a_preset_or_rows() {
    let row = json!({ "payloadBytes": 0, "fanout": 1, "batch": 1 });
    check(&benchmark(&small_benchmark())).unwrap();
    check(&benchmark(&with(
        small_benchmark(),
        "/latency",
        json!({ "rows": [row] }),
    )))
    .unwrap();
    for latency in [json!({}), json!({ "preset": "full", "rows": [row] })] {
        refused(
            &benchmark(&with(small_benchmark(), "/latency", latency)),
            "either preset or rows",
        );
    }
    refused(
        &benchmark(&with(small_benchmark(), "/deadline", json!("soon"))),
        "1h30m",
    );
    let long: FelixBenchmark = object("FelixBenchmark", &"x".repeat(64), &small_benchmark());
    refused(&long, "at most 63");
}

#[test]
fn of_a_benchmark_only_suspend_can_change() {
    let old = benchmark(&small_benchmark());
    check_update(
        &benchmark(&with(small_benchmark(), "/suspend", json!(true))),
        &old,
    )
    .unwrap();
    for (pointer, value, message) in [
        (
            "/clusterRef",
            json!({ "name": "other" }),
            "clusterRef cannot change",
        ),
        (
            "/streamRef",
            json!({ "name": "other" }),
            "streamRef cannot change",
        ),
        ("/latency", json!({ "preset": "full" }), "latency cannot change"),
        ("/deadline", json!("1m"), "deadline cannot change"),
        (
            "/resources",
            json!({ "limits": { "memory": "2Gi" } }),
            "resources cannot change",
        ),
    ] {
        change_refused(
            &benchmark(&with(small_benchmark(), pointer, value)),
            &old,
            message,
        );
    }
}
