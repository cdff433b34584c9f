//! Leaving a group of settings out, leaving it empty and setting it to null give the same values, and those are the
//! ones that the API server stores.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where something is not as it must be"
)]

use felix_crds::{FelixBenchmarkSpec, FelixClusterSpec, FelixStreamSpec};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// The schema of `spec` of a kind.
fn spec_schema(kind: &str) -> Value {
    let definition = felix_crds::definitions()
        .into_iter()
        .find(|d| d.spec.names.kind == kind)
        .unwrap();
    let schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
    schema["openAPIV3Schema"]["properties"]["spec"].clone()
}

/// What the API server does before it stores an object.
fn stored(schema: &Value, value: &Value) -> Value {
    let Some(fields) = value.as_object() else {
        return value.clone();
    };
    let mut out: serde_json::Map<String, Value> = fields
        .iter()
        .filter(|(_, v)| !v.is_null())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(default) = field.get("default") {
            out.entry(name.clone()).or_insert_with(|| default.clone());
        }
        if let Some(inner) = out.get(name) {
            let inner = stored(field, inner);
            out.insert(name.clone(), inner);
        }
    }
    Value::Object(out)
}

/// The stored form of the smallest spec must be what the type itself would write, for each way to leave `group` out.
fn check<S: Serialize + DeserializeOwned>(kind: &str, smallest: &Value, groups: &[&str]) {
    let schema = spec_schema(kind);
    let expected = stored(&schema, smallest);
    let typed: S = serde_json::from_value(smallest.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(&typed).unwrap(),
        expected,
        "{kind}: the type and the schema disagree"
    );
    for group in groups {
        for left_out in [json!({}), Value::Null] {
            let mut spec = smallest.clone();
            spec[*group] = left_out.clone();
            let got = stored(&schema, &spec);
            assert_eq!(got, expected, "{kind}: {group} as {left_out}");
            let typed: S = serde_json::from_value(got).unwrap();
            assert_eq!(
                serde_json::to_value(&typed).unwrap(),
                expected,
                "{kind}: {group} as {left_out}"
            );
        }
    }
}

#[test]
fn clusters() {
    let smallest = json!({ "storage": { "size": "1Gi" } });
    check::<FelixClusterSpec>(
        "FelixCluster",
        &smallest,
        &["udpBuffers", "authentication", "config"],
    );
}

#[test]
fn streams() {
    check::<FelixStreamSpec>(
        "FelixStream",
        &json!({ "clusterRef": { "name": "demo" } }),
        &["slowSubscriber"],
    );
}

#[test]
fn benchmarks() {
    let smallest = json!({
        "clusterRef": { "name": "demo" }, "streamRef": { "name": "s" }, "latency": { "preset": "quick" },
    });
    check::<FelixBenchmarkSpec>("FelixBenchmark", &smallest, &[]);
}

#[test]
fn an_unsafe_default_is_stored_so_that_a_safer_one_later_changes_no_cluster() {
    let spec = stored(
        &spec_schema("FelixCluster"),
        &json!({ "storage": { "size": "1Gi" } }),
    );
    assert_eq!(spec["authentication"]["type"], "None");
    assert_eq!(spec["tls"], json!({ "managed": {} }));
    assert_eq!(spec["storage"]["deletionPolicy"], "Retain");
    assert_eq!(
        spec["udpBuffers"],
        json!({ "receiveBytes": 8_388_608, "sendBytes": 8_388_608 })
    );
}

#[test]
fn an_absent_storage_class_is_not_an_empty_one() {
    let absent: FelixClusterSpec = serde_json::from_value(json!({ "storage": { "size": "1Gi" } })).unwrap();
    assert_eq!(absent.storage.class_name, None);
    let empty: FelixClusterSpec =
        serde_json::from_value(json!({ "storage": { "size": "1Gi", "className": "" } })).unwrap();
    assert_eq!(serde_json::to_value(&empty).unwrap()["storage"]["className"], "");
}
