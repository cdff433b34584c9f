//! The pod template of the brokers. It depends on no replica count, no list of peers and no version of the operator.

use std::collections::BTreeMap;

use felix_crds::{SchedulingSpec, TaintEffect, TolerationOperator, TolerationSpec};
use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMap, ConfigMapProjection, Container, ContainerPort, HTTPGetAction, KeyToPath,
        Lifecycle, LifecycleHandler, LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec,
        Probe, ProjectedVolumeSource, ResourceRequirements, SeccompProfile, SecretProjection,
        SecurityContext, SleepAction, Toleration, Volume, VolumeMount, VolumeProjection,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use super::config::{CONFIG_FILE, CONFIG_FOLDER, DATA_FOLDER, digest};
use crate::{
    cluster::validate::ValidatedCluster,
    names::{ADMIN_PORT, CLAIM_TEMPLATE, CONFIG_HASH, METRICS_PORT, PEER_PORT, QUIC_PORT, string_map},
};

/// User and group of the images.
const UID: i64 = 65532;
/// The volume with configuration, certificate and token.
const CONFIG_VOLUME: &str = "config";

/// The template.
pub(super) fn template(cluster: &ValidatedCluster, config: &ConfigMap) -> PodTemplateSpec {
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(cluster.names.labels()),
            annotations: Some(string_map([(CONFIG_HASH, digest(config).as_str())])),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(cluster)),
    }
}

fn pod(cluster: &ValidatedCluster) -> PodSpec {
    let secrets = cluster
        .pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    PodSpec {
        automount_service_account_token: Some(false),
        containers: vec![container(cluster)],
        enable_service_links: Some(false),
        image_pull_secrets: not_empty(secrets.collect()),
        security_context: Some(PodSecurityContext {
            fs_group: Some(UID),
            // Only the root of the volume is looked at: a walk over all files would delay each start.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            run_as_group: Some(UID),
            run_as_non_root: Some(true),
            run_as_user: Some(UID),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        service_account_name: Some(cluster.names.broker()),
        termination_grace_period_seconds: Some(cluster.stop.grace),
        volumes: Some(vec![config_volume(cluster)]),
        ..scheduling(&cluster.scheduling)
    }
}

fn container(cluster: &ValidatedCluster) -> Container {
    Container {
        name: "broker".to_owned(),
        image: Some(cluster.image.reference.clone()),
        image_pull_policy: Some(cluster.image.pull_policy.as_str().to_owned()),
        command: Some(vec!["/usr/local/bin/felix-broker".to_owned()]),
        args: Some(vec![
            "--config".to_owned(),
            format!("{CONFIG_FOLDER}/{CONFIG_FILE}"),
        ]),
        ports: Some(vec![
            port("quic", "UDP", QUIC_PORT),
            port("peer", "UDP", PEER_PORT),
            port("metrics", "TCP", METRICS_PORT),
            port("admin", "TCP", ADMIN_PORT),
        ]),
        resources: Some(ResourceRequirements {
            requests: quantities(&cluster.resources.requests),
            limits: quantities(&cluster.resources.limits),
            ..ResourceRequirements::default()
        }),
        volume_mounts: Some(vec![
            VolumeMount {
                name: CONFIG_VOLUME.to_owned(),
                mount_path: CONFIG_FOLDER.to_owned(),
                read_only: Some(true),
                ..VolumeMount::default()
            },
            VolumeMount {
                name: CLAIM_TEMPLATE.to_owned(),
                mount_path: DATA_FOLDER.to_owned(),
                ..VolumeMount::default()
            },
        ]),
        // A broker that reads a large volume at its start gets ten minutes for it; liveness asks for the process alone.
        startup_probe: Some(probe("/livez", 2, 300)),
        liveness_probe: Some(probe("/livez", 10, 6)),
        readiness_probe: Some(probe("/readyz", 2, 2)),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction {
                    seconds: cluster.stop.pre_stop,
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// One projected volume: certificate and token change in it without a restart. The CA's key is not part of it.
fn config_volume(cluster: &ValidatedCluster) -> Volume {
    let file = |key: &str, path: &str| KeyToPath {
        key: key.to_owned(),
        path: path.to_owned(),
        mode: None,
    };
    let secret = |name: String, items: Vec<KeyToPath>| VolumeProjection {
        secret: Some(SecretProjection {
            name,
            items: Some(items),
            optional: None,
        }),
        ..VolumeProjection::default()
    };
    let settings = VolumeProjection {
        config_map: Some(ConfigMapProjection {
            name: cluster.names.config(),
            items: Some(vec![file(CONFIG_FILE, CONFIG_FILE)]),
            optional: None,
        }),
        ..VolumeProjection::default()
    };
    let certificate = vec![file("tls.crt", "tls/tls.crt"), file("tls.key", "tls/tls.key")];
    Volume {
        name: CONFIG_VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(0o440),
            sources: Some(vec![
                settings,
                secret(cluster.names.server_certificate(), certificate),
                secret(cluster.names.admin_token(), vec![file("token", "admin/token")]),
            ]),
        }),
        ..Volume::default()
    }
}

fn scheduling(scheduling: &SchedulingSpec) -> PodSpec {
    PodSpec {
        node_selector: Some(scheduling.node_selector.clone()).filter(|labels| !labels.is_empty()),
        priority_class_name: scheduling.priority_class_name.clone(),
        tolerations: not_empty(scheduling.tolerations.iter().map(toleration).collect()),
        ..PodSpec::default()
    }
}

fn toleration(spec: &TolerationSpec) -> Toleration {
    let operator = match spec.operator {
        TolerationOperator::Equal => "Equal",
        TolerationOperator::Exists => "Exists",
    };
    let effect = spec.effect.map(|effect| match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    });
    Toleration {
        key: spec.key.clone(),
        operator: Some(operator.to_owned()),
        value: spec.value.clone(),
        effect: effect.map(str::to_owned),
        toleration_seconds: spec.toleration_seconds,
    }
}

fn port(name: &str, protocol: &str, port: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        protocol: Some(protocol.to_owned()),
        container_port: port,
        ..ContainerPort::default()
    }
}

fn probe(path: &str, period_seconds: i32, failure_threshold: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("metrics".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        failure_threshold: Some(failure_threshold),
        timeout_seconds: Some(5),
        ..Probe::default()
    }
}

fn quantities(amounts: &BTreeMap<String, String>) -> Option<BTreeMap<String, Quantity>> {
    not_empty_map(
        amounts
            .iter()
            .map(|(key, value)| (key.clone(), Quantity(value.clone())))
            .collect(),
    )
}

fn not_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

fn not_empty_map<V>(map: BTreeMap<String, V>) -> Option<BTreeMap<String, V>> {
    Some(map).filter(|map| !map.is_empty())
}
