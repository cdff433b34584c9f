//! What the conditions say, case by case.

use felix_crds::{
    BrokerStatus, BufferStatus, Condition, ConditionStatus, FelixClusterStatus, UdpBufferStatus,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

use super::{Explanations, Obstacle, Outcome, refused, status};
use crate::cluster::{
    dereference::Workload,
    growth::Refusal,
    restart::RestartStep,
    test_support::{observed, validated},
};

const NOW: &str = "2026-01-01T00:00:00Z";

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "demo-broker-0", "uid": "u" }, "status": status }))
        .unwrap()
}

fn ready_pod() -> Pod {
    pod(json!({ "conditions": [{ "type": "Ready", "status": "True" }] }))
}

fn claim(phase: &str, class: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": "data-demo-broker-0" },
        "spec": { "storageClassName": class },
        "status": { "phase": phase, "capacity": { "storage": "1Gi" } },
    }))
    .unwrap()
}

fn broker(receive: (i64, i64), send: (i64, i64)) -> BrokerStatus {
    let buffer = |(asked_bytes, granted_bytes)| BufferStatus {
        asked_bytes,
        granted_bytes,
    };
    BrokerStatus {
        id: "b-1".to_owned(),
        pod: "demo-broker-0".to_owned(),
        version: "0.1.0".to_owned(),
        udp_buffers: UdpBufferStatus {
            receive: buffer(receive),
            send: buffer(send),
        },
    }
}

fn serving() -> Outcome {
    Outcome {
        workload: Workload {
            stateful_set: None,
            pods: vec![ready_pod()],
            claims: vec![claim("Bound", "fast")],
        },
        obstacle: None,
        restart: RestartStep::Settled,
        brokers: vec![broker((8, 8), (8, 8))],
        refusals: Vec::new(),
        said: Explanations::default(),
    }
}

fn status_of(outcome: &Outcome) -> FelixClusterStatus {
    status(
        &observed(&json!({ "storage": { "size": "1Gi" } })),
        &validated(),
        outcome,
        NOW,
    )
}

fn condition(status: &FelixClusterStatus, kind: &str) -> Condition {
    status.conditions.iter().find(|c| c.kind == kind).unwrap().clone()
}

#[track_caller]
fn expect(outcome: &Outcome, kind: &str, expected: ConditionStatus, reason: &str, part: &str) {
    let condition = condition(&status_of(outcome), kind);
    assert_eq!(
        (condition.status, condition.reason.as_str()),
        (expected, reason),
        "{}",
        condition.message
    );
    assert!(condition.message.contains(part), "{}", condition.message);
}

use ConditionStatus::{False, True, Unknown};

#[test]
fn a_serving_cluster() {
    let outcome = serving();
    let status = status_of(&outcome);
    expect(&outcome, "Ready", True, "Serving", "demo.ns.svc:5000");
    expect(&outcome, "Progressing", False, "Settled", "");
    expect(&outcome, "StorageBound", True, "Bound", "");
    expect(&outcome, "UdpBuffersGranted", True, "Granted", "");
    assert_eq!((status.replicas, status.ready_replicas), (1, 1));
    assert_eq!(status.observed_generation, Some(1));
    assert!(status.conditions.iter().all(|c| c.observed_generation == 1));
    assert_eq!(status.image.as_deref(), Some("localhost/felix-broker:0.1.0"));
    assert_eq!(
        status.default_image, status.image,
        "the default is written down once it was needed"
    );
    assert_eq!(status, status_of(&outcome), "the same facts give the same status");
}

#[test]
fn clamped_buffers_are_told_with_the_remedy_and_do_not_matter_for_ready() {
    let mut outcome = serving();
    outcome.brokers = vec![broker((8_388_608, 212_992), (8_388_608, 4_194_304))];
    let told = "asked for 8388608 bytes to receive and was granted 212992, asked for 8388608 bytes to send and was \
                granted 4194304. Raise net.core.rmem_max to 8388608";
    expect(&outcome, "UdpBuffersGranted", False, "Clamped", told);
    expect(&outcome, "Ready", True, "Serving", "");
    outcome.brokers = vec![broker((8, 8), (8, 4))];
    expect(&outcome, "UdpBuffersGranted", False, "Clamped", "granted 4");
    outcome.brokers.clear();
    expect(&outcome, "UdpBuffersGranted", Unknown, "NoBroker", "");
}

#[test]
fn an_unknown_storage_class_is_named() {
    let mut outcome = serving();
    outcome.workload.pods = vec![pod(json!({}))];
    outcome.workload.claims = vec![claim("Pending", "fsat")];
    outcome.said = Explanations {
        unknown_class: Some("fsat".to_owned()),
        claim_event: Some("storageclass \"fsat\" not found".to_owned()),
        pod_refused: None,
    };
    for kind in ["Ready", "StorageBound"] {
        expect(
            &outcome,
            kind,
            False,
            "UnknownStorageClass",
            "\"fsat\", which does not exist",
        );
    }
    outcome.said.unknown_class = None;
    expect(&outcome, "StorageBound", False, "Pending", "Kubernetes says");
    outcome.workload.claims.clear();
    expect(&outcome, "StorageBound", Unknown, "NoClaim", "data-demo-broker-0");
}

#[test]
fn a_bound_volume_that_is_too_small_is_told_and_serves() {
    let mut outcome = serving();
    let claim = &mut outcome.workload.claims[0];
    claim.status.as_mut().unwrap().capacity = serde_json::from_value(json!({ "storage": "512Mi" })).unwrap();
    let sizes = "keeps 536870912 bytes, spec.storage.size asks for 1073741824";
    expect(&outcome, "StorageBound", True, "Differs", sizes);
    outcome.refusals = vec![Refusal {
        claim: "data-demo-broker-0".to_owned(),
        why: "the class says no".to_owned(),
    }];
    expect(&outcome, "StorageBound", True, "CannotGrow", sizes);
    expect(&outcome, "StorageBound", True, "CannotGrow", "the class says no");
    expect(&outcome, "Ready", True, "Serving", "");
    outcome.refusals.clear();
    outcome.said.claim_event = Some("waiting for a driver".to_owned());
    let spec = outcome.workload.claims[0].spec.as_mut().unwrap();
    spec.resources = serde_json::from_value(json!({ "requests": { "storage": "1Gi" } })).unwrap();
    expect(
        &outcome,
        "StorageBound",
        True,
        "Growing",
        "from 536870912 to 1073741824 bytes",
    );
    expect(&outcome, "StorageBound", True, "Growing", "waiting for a driver");
    expect(&outcome, "Ready", True, "Serving", "");
}

#[test]
fn a_volume_that_is_lost_or_about_to_go_is_told() {
    let mut outcome = serving();
    outcome.workload.claims = vec![claim("Lost", "fast")];
    outcome.workload.claims[0].spec.as_mut().unwrap().volume_name = Some("pv".to_owned());
    expect(&outcome, "StorageBound", False, "Lost", "delete the claim");
    expect(&outcome, "Ready", False, "Lost", "");
    let mut outcome = serving();
    outcome.workload.claims[0].metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    expect(&outcome, "StorageBound", True, "Leaving", "when its pod goes");
    expect(&outcome, "Ready", True, "Serving", "");
}

#[test]
fn a_claim_that_waits_for_the_scheduler_tells_what_the_scheduler_lacks() {
    let mut outcome = serving();
    outcome.workload.claims = vec![claim("Pending", "late")];
    outcome.workload.pods = vec![pod(json!({
        "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/3 nodes: Insufficient cpu" }],
    }))];
    for kind in ["Ready", "StorageBound"] {
        expect(
            &outcome,
            kind,
            False,
            "Pending",
            "finds no node: 0/3 nodes: Insufficient cpu",
        );
    }
}

#[test]
fn trouble_of_pods_is_named_in_words_that_stay_the_same() {
    let waiting = |reason: &str| json!({ "containerStatuses": [{ "state": { "waiting": { "reason": reason, "message": "back-off 20s" } } }] });
    let unscheduled =
        json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/3 nodes" }] });
    for (state, reason, part) in [
        (
            waiting("ImagePullBackOff"),
            "ImagePull",
            "of registry/felix:2; correct spec.image",
        ),
        (waiting("CrashLoopBackOff"), "CrashLoop", "its log says why"),
        (waiting("ContainerCreating"), "Starting", "a pod is starting"),
        (
            waiting("CreateContainerConfigError"),
            "ContainerWaiting",
            "CreateContainerConfigError",
        ),
        (unscheduled, "Unschedulable", "0/3 nodes"),
        (json!({}), "Starting", "a pod is starting"),
    ] {
        let mut outcome = serving();
        let mut state = state;
        if let Some(statuses) = state.get_mut("containerStatuses").and_then(Value::as_array_mut) {
            for status in statuses {
                status["name"] = json!("broker");
                status["image"] = json!("registry/felix:2");
                status["imageID"] = json!("");
                status["ready"] = json!(false);
                status["restartCount"] = json!(0);
            }
        }
        outcome.workload.pods = vec![pod(state)];
        expect(&outcome, "Ready", False, reason, part);
        assert!(
            !condition(&status_of(&outcome), "Ready").message.contains("20s"),
            "a text that changes by itself"
        );
        expect(&outcome, "Progressing", True, "Starting", "");
    }
}

#[test]
fn a_pod_that_is_not_made_is_told_with_what_kubernetes_says() {
    let mut outcome = serving();
    outcome.workload.pods.clear();
    outcome.restart = RestartStep::Wait("a pod is missing".to_owned());
    outcome.said.pod_refused = Some("exceeded quota".to_owned());
    expect(&outcome, "Ready", False, "NoPod", "exceeded quota");
    outcome.workload.claims = vec![claim("Pending", "late")];
    expect(&outcome, "Ready", False, "NoPod", "exceeded quota");
    expect(&outcome, "StorageBound", False, "Pending", "no volume yet");
}

#[test]
fn a_change_under_way_is_not_ready_although_the_old_pod_serves() {
    let mut outcome = serving();
    outcome.restart = RestartStep::Restart(Box::new(ready_pod()));
    expect(&outcome, "Ready", False, "Updating", "demo-broker-0");
    expect(&outcome, "Progressing", True, "Restarting", "demo-broker-0");
    outcome.restart = RestartStep::Wait("the StatefulSet controller has not seen the change yet".to_owned());
    expect(&outcome, "Ready", False, "Starting", "has not seen");
}

#[test]
fn an_obstacle_and_an_invalid_spec_are_ready_false() {
    let mut outcome = serving();
    let obstacle = Obstacle {
        reason: "NameTaken",
        message: "Service demo exists".to_owned(),
    };
    outcome.obstacle = Some(obstacle.clone());
    expect(&outcome, "Ready", False, "NameTaken", "Service demo exists");
    let mut observed = observed(&json!({ "storage": { "size": "1Gi" } }));
    observed.cluster.status = Some(status_of(&serving()));
    let refused = refused(&observed, &obstacle, NOW);
    assert_eq!(condition(&refused, "Ready").status, False);
    assert_eq!(
        refused.cluster_id.as_deref(),
        Some(crate::cluster::test_support::CLUSTER_ID),
        "what was known stays"
    );
}

#[test]
fn paused_is_told() {
    let observed = observed(&json!({ "storage": { "size": "1Gi" }, "paused": true }));
    let status = status(&observed, &validated(), &serving(), NOW);
    assert_eq!(condition(&status, "Progressing").reason, "Paused");
    assert_eq!(condition(&status, "Ready").status, True);
}
