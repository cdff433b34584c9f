//! From a checked run to the objects that carry it out. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        batch::v1::{
            Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
        },
        core::v1::{
            Affinity, Capabilities, ConfigMap, ConfigMapVolumeSource, Container, ContainerPort, EnvVar,
            EnvVarSource, ObjectFieldSelector, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec,
            PodTemplateSpec, SeccompProfile, SecurityContext, ServiceAccount, Volume, VolumeMount,
            WeightedPodAffinityTerm,
        },
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use super::validate::ValidatedRun;
use crate::names::{CLUSTER_LABEL, ClusterNames, FIELD_MANAGER, MANAGED_BY_LABEL, string_map};

/// The label by which a pod is traced to its FelixBenchmark.
pub(crate) const BENCHMARK_LABEL: &str = "felix.dev/benchmark";

/// The uid that all our images run as.
const UID: i64 = 65532;

/// Where the Job serves its progress as metrics.
const METRICS_PORT: i32 = 8080;

/// What a run consists of, in the order in which it is made.
#[derive(Clone, Debug)]
pub(crate) struct RunObjects {
    /// What the pod acts as.
    pub(crate) account: ServiceAccount,
    /// The right to patch the one ConfigMap.
    pub(crate) role: Role,
    /// Joins the two.
    pub(crate) binding: RoleBinding,
    /// Takes the results. It has no data of ours, so that nothing here ever overwrites a result.
    pub(crate) results: ConfigMap,
    /// Runs the benchmark.
    pub(crate) job: Job,
}

/// All objects of a run.
pub(crate) fn build(run: &ValidatedRun) -> RunObjects {
    RunObjects {
        account: ServiceAccount {
            metadata: metadata(run),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        role: Role {
            metadata: metadata(run),
            rules: Some(vec![patch_results(run)]),
        },
        binding: RoleBinding {
            metadata: metadata(run),
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: "Role".to_owned(),
                name: run.name.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: run.name.clone(),
                namespace: Some(run.namespace.clone()),
                api_group: None,
            }]),
        },
        results: ConfigMap {
            metadata: metadata(run),
            ..ConfigMap::default()
        },
        job: job(run),
    }
}

fn labels(run: &ValidatedRun) -> BTreeMap<String, String> {
    string_map([
        ("app.kubernetes.io/name", "felix"),
        ("app.kubernetes.io/component", "benchmark"),
        ("app.kubernetes.io/instance", &run.benchmark),
        (MANAGED_BY_LABEL, FIELD_MANAGER),
        (CLUSTER_LABEL, &run.cluster),
        (BENCHMARK_LABEL, &run.benchmark),
    ])
}

fn metadata(run: &ValidatedRun) -> ObjectMeta {
    ObjectMeta {
        name: Some(run.name.clone()),
        namespace: Some(run.namespace.clone()),
        labels: Some(labels(run)),
        owner_references: Some(vec![run.owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// Patch alone: the Job sends a merge patch and reads nothing back.
fn patch_results(run: &ValidatedRun) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["configmaps".to_owned()]),
        resource_names: Some(vec![run.name.clone()]),
        verbs: vec!["patch".to_owned()],
        ..PolicyRule::default()
    }
}

/// An Indexed Job from the start, with one index for now; one attempt, because a second would mix its results in.
fn job(run: &ValidatedRun) -> Job {
    Job {
        metadata: metadata(run),
        spec: Some(JobSpec {
            completion_mode: Some("Indexed".to_owned()),
            completions: Some(1),
            parallelism: Some(1),
            backoff_limit: Some(0),
            active_deadline_seconds: Some(run.deadline_seconds),
            pod_replacement_policy: Some("Failed".to_owned()),
            pod_failure_policy: Some(tell_disruptions()),
            suspend: Some(run.suspend),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod_labels(run)),
                    annotations: Some(pod_annotations()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(run)),
            },
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// An eviction, a drain or a lost node then stands in the Job's own status, also after the pod is gone.
fn tell_disruptions() -> PodFailurePolicy {
    PodFailurePolicy {
        rules: vec![PodFailurePolicyRule {
            action: "FailJob".to_owned(),
            on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
                type_: "DisruptionTarget".to_owned(),
                status: "True".to_owned(),
            }]),
            ..PodFailurePolicyRule::default()
        }],
    }
}

/// A mesh's proxy would keep the Job alive after its end and does not carry QUIC.
fn pod_labels(run: &ValidatedRun) -> BTreeMap<String, String> {
    let mut labels = labels(run);
    labels.insert("sidecar.istio.io/inject".to_owned(), "false".to_owned());
    labels
}

fn pod_annotations() -> BTreeMap<String, String> {
    string_map([("linkerd.io/inject", "disabled")])
}

fn pod(run: &ValidatedRun) -> PodSpec {
    PodSpec {
        service_account_name: Some(run.name.clone()),
        automount_service_account_token: Some(true),
        enable_service_links: Some(false),
        restart_policy: Some("Never".to_owned()),
        image_pull_secrets: (!run.pull_secrets.is_empty()).then(|| run.pull_secrets.clone()),
        affinity: Some(away_from_brokers(run)),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(UID),
            run_as_group: Some(UID),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        containers: vec![container(run)],
        volumes: Some(vec![Volume {
            name: "ca".to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: ClusterNames::new(&run.namespace, &run.cluster).ca(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        }]),
        ..PodSpec::default()
    }
}

/// On another node than a broker where there is one, so that the two do not share processors.
fn away_from_brokers(run: &ValidatedRun) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(ClusterNames::new(&run.namespace, &run.cluster).selector()),
            match_expressions: None,
        }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: term,
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

fn container(run: &ValidatedRun) -> Container {
    Container {
        name: "bench".to_owned(),
        image: Some(run.image.clone()),
        image_pull_policy: Some(run.pull_policy.as_str().to_owned()),
        command: Some(vec![
            "/usr/local/bin/felix-bench".to_owned(),
            "latency".to_owned(),
        ]),
        args: Some(arguments(run)),
        env: Some(vec![EnvVar {
            name: "NODE_NAME".to_owned(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    field_path: "spec.nodeName".to_owned(),
                    ..ObjectFieldSelector::default()
                }),
                ..EnvVarSource::default()
            }),
            value: None,
        }]),
        ports: Some(vec![ContainerPort {
            name: Some("metrics".to_owned()),
            container_port: METRICS_PORT,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        resources: Some(run.resources.clone()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        // The last lines of a failed run reach the status this way, without a right to read logs.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![VolumeMount {
            name: "ca".to_owned(),
            mount_path: "/etc/felix/ca".to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

fn arguments(run: &ValidatedRun) -> Vec<String> {
    let mut arguments = vec![
        format!("--address={}", run.address),
        "--ca=/etc/felix/ca/ca.crt".to_owned(),
        format!("--stream={}", run.stream),
        format!("--results-configmap={}/{}", run.namespace, run.name),
        format!("--metrics-bind=0.0.0.0:{METRICS_PORT}"),
    ];
    arguments.extend(run.rows.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use felix_crds::{FelixBenchmark, FelixCluster, FelixStream};
    use serde_json::json;

    use super::{
        super::validate::{Found, validate},
        *,
    };

    fn cluster() -> FelixCluster {
        serde_json::from_value(json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixCluster",
            "metadata": { "name": "main", "namespace": "team-a" },
            "spec": { "storage": { "size": "1Gi" }, "imagePullSecrets": [{ "name": "mirror" }] },
            "status": { "conditions": [ready()] },
        }))
        .unwrap()
    }

    fn stream() -> FelixStream {
        serde_json::from_value(json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixStream",
            "metadata": { "name": "orders", "namespace": "team-a" },
            "spec": { "clusterRef": { "name": "main" } },
            "status": { "streamName": "Orders", "conditions": [ready()] },
        }))
        .unwrap()
    }

    fn ready() -> serde_json::Value {
        json!({
            "type": "Ready", "status": "True", "observedGeneration": 1, "reason": "Serving", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    fn benchmark(name: &str, latency: serde_json::Value) -> FelixBenchmark {
        serde_json::from_value(json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixBenchmark",
            "metadata": { "name": name, "namespace": "team-a", "uid": "0b8b5b0e-7d5c-4c06-9c1a-0d6f3f5d4a11" },
            "spec": {
                "clusterRef": { "name": "main" }, "streamRef": { "name": "orders" }, "latency": latency,
                "deadline": "5m", "resources": { "limits": { "cpu": "0.5", "memory": "1.5Gi" } },
            },
        }))
        .unwrap()
    }

    const IMAGE: &str = "registry.example.com/felix-bench:1";

    fn found() -> Found {
        Found {
            cluster: Some(cluster()),
            stream: Some(stream()),
        }
    }

    #[test]
    fn the_objects_of_a_run_are_as_recorded() {
        let rows = json!({ "rows": [
            { "payloadBytes": 0, "fanout": 1, "batch": 1 },
            { "payloadBytes": 1024, "fanout": 10, "batch": 64, "records": 200_000, "warmupRecords": 0 },
        ] });
        let objects = build(&validate(&benchmark("nightly", rows), &found(), IMAGE).unwrap());
        insta::assert_yaml_snapshot!("account", objects.account);
        insta::assert_yaml_snapshot!("role", objects.role);
        insta::assert_yaml_snapshot!("binding", objects.binding);
        insta::assert_yaml_snapshot!("results", objects.results);
        insta::assert_yaml_snapshot!("job", objects.job);
    }

    #[test]
    fn names_fit_a_host_name_and_carry_the_uid() {
        let long = format!("{}.b", "a".repeat(61));
        for name in ["nightly", "x", &long, "aaaaaaaaaaaaaaaaaaa-bbb"] {
            let run = validate(&benchmark(name, json!({ "preset": "quick" })), &found(), IMAGE).unwrap();
            assert!(format!("{}-0", run.name).len() <= 63, "{}", run.name);
            assert!(run.name.ends_with("-0b8b5b0e-7d5c-4c06-9c1a-0d6f3f5d4a11") && !run.name.contains("--"));
            assert!(!run.name.contains('.'), "{}", run.name);
            assert_eq!(run.rows, ["--preset=quick"]);
        }
    }

    #[test]
    fn what_may_still_come_is_waited_for_and_what_cannot_is_refused() {
        let quick = benchmark("nightly", json!({ "preset": "quick" }));
        let reason =
            |benchmark: &FelixBenchmark, found: Found| validate(benchmark, &found, IMAGE).unwrap_err().reason;
        assert_eq!(
            reason(
                &quick,
                Found {
                    cluster: None,
                    ..found()
                }
            ),
            "ClusterMissing"
        );
        assert_eq!(
            reason(
                &quick,
                Found {
                    stream: None,
                    ..found()
                }
            ),
            "StreamMissing"
        );
        let mut young = cluster();
        young.status = None;
        assert_eq!(
            reason(
                &quick,
                Found {
                    cluster: Some(young),
                    ..found()
                }
            ),
            "ClusterNotReady"
        );
        let mut young = stream();
        young.status = None;
        assert_eq!(
            reason(
                &quick,
                Found {
                    stream: Some(young),
                    ..found()
                }
            ),
            "StreamNotReady"
        );
        let mut elsewhere = stream();
        elsewhere.spec.cluster_ref.name = "other".to_owned();
        assert_eq!(
            reason(
                &quick,
                Found {
                    stream: Some(elsewhere),
                    ..found()
                }
            ),
            "Invalid"
        );
        let mut hasty = quick.clone();
        hasty.spec.deadline = felix_crds::DurationText::new("0s");
        assert_eq!(reason(&hasty, found()), "Invalid");
        assert_eq!(reason(&benchmark("nightly", json!({})), found()), "Invalid");
    }
}
