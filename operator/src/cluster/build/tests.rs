//! Golden tests: the objects of two clusters, and the rules that every pod template keeps.

use serde_json::{Value, json};

use super::build;
use crate::cluster::{
    material::{KeyPairPem, Material},
    storage::ClaimTemplate,
    test_support::{defaults, observed, validated},
    validate::{ValidatedCluster, validate},
};

fn material() -> Material {
    let pair = |what: &str| KeyPairPem {
        certificate: format!("{what} certificate\n"),
        key: format!("{what} key\n"),
    };
    Material {
        ca: pair("CA"),
        bundle: vec!["CA certificate\n".to_owned(), "older CA certificate\n".to_owned()],
        server: pair("server"),
        admin_token: "token".to_owned(),
    }
}

fn checked(spec: &Value) -> ValidatedCluster {
    validate(&observed(spec), &defaults()).unwrap()
}

fn claims(cluster: &ValidatedCluster) -> ClaimTemplate {
    ClaimTemplate {
        size: cluster.storage.size.clone(),
        class: cluster.storage.class.clone(),
    }
}

/// Every object, in the order of application.
fn objects(cluster: &ValidatedCluster) -> Vec<Value> {
    let objects = build(cluster, &material(), &claims(cluster)).unwrap();
    // The order of the snapshots: the bundle stands behind the CA that it comes from.
    let (bundle, rest) = objects.supporting.split_first().unwrap();
    let keys = [
        &objects.ca,
        bundle,
        &objects.server_certificate,
        &objects.admin_token,
    ];
    let all = keys.into_iter().chain(rest).chain([&objects.stateful_set]);
    all.map(|desired| desired.value().clone()).collect()
}

fn template(cluster: &ValidatedCluster) -> Value {
    objects(cluster).pop().unwrap()["spec"]["template"].clone()
}

fn full() -> Value {
    json!({
        "image": { "repository": "registry.example.com/felix-broker", "tag": "0.2.0", "pullPolicy": "Always" },
        "imagePullSecrets": [{ "name": "registry" }],
        "resources": { "requests": { "cpu": "0.5", "memory": "1024Mi" }, "limits": { "cpu": "2", "memory": "2Gi" } },
        "storage": { "size": "1.5Gi", "className": "fast", "deletionPolicy": "Delete" },
        "udpBuffers": { "receiveBytes": 1_048_576, "sendBytes": 2_097_152 },
        "tls": { "managed": {}, "extraNames": ["felix.example.com", "10.0.0.1"] },
        "clientService": { "labels": { "team": "a", "felix.dev/cluster": "mine" }, "annotations": { "note": "b" } },
        "scheduling": {
            "nodeSelector": { "disk": "nvme" },
            "tolerations": [{ "key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60 }],
            "priorityClassName": "high",
        },
        "config": { "memoryBudgetBytes": 67_108_864, "drainTimeoutSeconds": 30, "logFormat": "text", "logLevel": "debug" },
    })
}

#[test]
fn the_smallest_cluster() {
    insta::assert_yaml_snapshot!(objects(&validated()));
}

#[test]
fn a_cluster_that_sets_everything() {
    insta::assert_yaml_snapshot!(objects(&checked(&full())));
}

#[test]
fn the_template_depends_on_neither_replicas_nor_labels_nor_storage() {
    let base = validated();
    let mut other = base.clone();
    other.replicas = 3;
    other.service_labels.insert("a".to_owned(), "b".to_owned());
    other.certificate_names.push("more".to_owned());
    other.storage.size = "2Gi".to_owned();
    other.deletion_policy = felix_crds::DeletionPolicy::Delete;
    assert_eq!(template(&base), template(&other));
}

#[test]
fn equal_spellings_of_quantities_give_equal_templates() {
    let spelled = |cpu: &str, memory: &str| {
        template(&checked(&json!({
            "storage": { "size": "1Gi" },
            "resources": { "limits": { "cpu": cpu, "memory": memory } },
        })))
    };
    assert_eq!(spelled("0.5", "2048Mi"), spelled("500m", "2Gi"));
    assert_ne!(spelled("0.5", "2048Mi"), spelled("501m", "2Gi"));
}

#[test]
fn a_changed_setting_image_or_resource_changes_the_template() {
    let base = template(&validated());
    for (field, value) in [
        ("config", json!({ "maxConnections": 7 })),
        ("udpBuffers", json!({ "sendBytes": 65_536 })),
        ("image", json!({ "repository": "other", "tag": "1" })),
        ("resources", json!({ "limits": { "memory": "3Gi" } })),
        ("scheduling", json!({ "nodeSelector": { "a": "b" } })),
    ] {
        let mut spec = json!({ "storage": { "size": "1Gi" } });
        spec[field] = value;
        assert_ne!(base, template(&checked(&spec)), "{field}");
    }
}

#[test]
fn the_pod_is_restricted_and_has_time_to_stop() {
    let pod = template(&checked(&full()))["spec"].clone();
    let container = &pod["containers"][0];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(
        container["securityContext"]["capabilities"]["drop"],
        json!(["ALL"])
    );
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(pod["enableServiceLinks"], false);
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert!(
        pod["securityContext"].get("sysctls").is_none(),
        "no pod sysctl raises UDP buffers"
    );
    let sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        .as_i64()
        .unwrap();
    assert!(
        sleep + 30 < pod["terminationGracePeriodSeconds"].as_i64().unwrap(),
        "sleep and drain fit the grace period"
    );
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert!(
            container[probe]["httpGet"].is_object(),
            "{probe} is no HTTP probe"
        );
    }
}

#[test]
fn no_pod_mounts_the_key_of_the_ca() {
    let text = template(&checked(&full())).to_string();
    assert!(!text.contains("demo-ca"), "{text}");
}

#[test]
fn what_outlives_a_cluster_has_no_owner_and_all_else_has() {
    for object in objects(&checked(&full())) {
        let lasting = object["kind"] == "Secret" && object["metadata"]["name"] == "demo-ca";
        assert_eq!(
            object["metadata"].get("ownerReferences").is_none(),
            lasting,
            "{object}"
        );
        if object["kind"] == "StatefulSet" {
            let policy = &object["spec"]["persistentVolumeClaimRetentionPolicy"];
            assert_eq!(
                *policy,
                json!({ "whenDeleted": "Retain", "whenScaled": "Retain" })
            );
            assert!(
                object["spec"]["volumeClaimTemplates"][0]["metadata"]
                    .get("ownerReferences")
                    .is_none()
            );
        }
    }
}

#[test]
fn the_settings_file_is_yaml_with_the_settings_of_the_spec() {
    let objects = objects(&checked(&full()));
    let config = objects
        .iter()
        .find(|o| o["metadata"]["name"] == "demo-config")
        .unwrap();
    let file: Value = serde_yaml::from_str(config["data"]["config.yaml"].as_str().unwrap()).unwrap();
    assert_eq!(file["udp_recv_buffer"], 1_048_576);
    assert_eq!(file["memory_budget"], 67_108_864);
    assert_eq!(file["shutdown_drain_timeout_ms"], 30_000);
    assert_eq!(file["cluster_id"], crate::cluster::test_support::CLUSTER_ID);
}

#[test]
fn labels_of_the_user_never_win_over_ours() {
    let objects = objects(&checked(&full()));
    let service = objects
        .iter()
        .find(|o| o["kind"] == "Service" && o["metadata"]["name"] == "demo")
        .unwrap();
    assert_eq!(service["metadata"]["labels"]["felix.dev/cluster"], "demo");
    assert_eq!(service["metadata"]["labels"]["team"], "a");
    assert_eq!(service["metadata"]["annotations"]["note"], "b");
}
