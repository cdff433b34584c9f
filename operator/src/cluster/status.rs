//! Step five: from what is there now to conditions and status. Pure.

mod storage;
mod workload;

use felix_crds::{BrokerStatus, FelixClusterStatus, Finding, merge};
use kube::ResourceExt;

use self::{storage::storage_bound, workload::diagnose};
use super::{
    dereference::{Observed, Workload},
    growth::Refusal,
    restart::{self, RestartStep},
    validate::ValidatedCluster,
};
use crate::names::selector_text;

/// Whether clients can use the cluster as it is written.
pub(crate) const READY: &str = "Ready";
/// Whether the operator or Kubernetes is still at work.
pub(crate) const PROGRESSING: &str = "Progressing";
/// Whether every broker has its volume.
pub(crate) const STORAGE_BOUND: &str = "StorageBound";
/// Whether the nodes grant the UDP buffers that are asked for.
pub(crate) const UDP_BUFFERS_GRANTED: &str = "UdpBuffersGranted";

/// What a reconcile found out after it had done its work.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// What is there now.
    pub(crate) workload: Workload,
    /// Why not everything could be done, if so.
    pub(crate) obstacle: Option<Obstacle>,
    /// What happened about pods.
    pub(crate) restart: RestartStep,
    /// What the brokers said of themselves, or did before they became unreachable.
    pub(crate) brokers: Vec<BrokerStatus>,
    /// Why claims cannot be asked for larger volumes.
    pub(crate) refusals: Vec<Refusal>,
    /// What Kubernetes says about what is missing.
    pub(crate) said: Explanations,
}

/// Something that keeps the operator from going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// In one word.
    pub(crate) reason: &'static str,
    /// What and what to do.
    pub(crate) message: String,
}

/// What Kubernetes says about claims without a volume and pods that do not come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Explanations {
    /// The class of an unbound claim that does not exist.
    pub(crate) unknown_class: Option<String>,
    /// What Kubernetes last said about a claim that is not bound, or grows.
    pub(crate) claim_event: Option<String>,
    /// Why the StatefulSet could not make a pod, in Kubernetes' words.
    pub(crate) pod_refused: Option<String>,
}

/// The status of a cluster that was built.
pub(crate) fn status(
    observed: &Observed,
    cluster: &ValidatedCluster,
    outcome: &Outcome,
    now: &str,
) -> FelixClusterStatus {
    let ready = outcome
        .workload
        .pods
        .iter()
        .filter(|pod| restart::is_ready(pod))
        .count();
    let storage = storage_bound(cluster, outcome);
    let findings = [
        readiness(cluster, outcome, &storage),
        progress(observed.cluster.spec.paused, outcome),
        storage,
        udp_buffers(&outcome.brokers),
    ];
    FelixClusterStatus {
        cluster_id: Some(cluster.cluster_id.clone()),
        image: Some(cluster.image.reference.clone()),
        default_image: cluster.image.kept_default.clone(),
        replicas: count(outcome.workload.pods.len()),
        ready_replicas: count(ready),
        selector: Some(selector_text(&cluster.names.selector())),
        address: Some(cluster.names.client_address()),
        brokers: outcome.brokers.clone(),
        ..with_findings(observed, &findings, now)
    }
}

/// The status of a cluster that cannot be built: what is known stays, Ready says why.
pub(crate) fn refused(observed: &Observed, obstacle: &Obstacle, now: &str) -> FelixClusterStatus {
    let before = observed.cluster.status.clone().unwrap_or_default();
    let ready = Finding::no(READY, obstacle.reason, &obstacle.message);
    let progressing = Finding::no(
        PROGRESSING,
        obstacle.reason,
        "nothing is done until the object is changed",
    );
    let findings = with_findings(observed, &[ready, progressing], now);
    FelixClusterStatus {
        conditions: findings.conditions,
        observed_generation: findings.observed_generation,
        ..before
    }
}

fn with_findings(observed: &Observed, findings: &[Finding], now: &str) -> FelixClusterStatus {
    let before = observed
        .cluster
        .status
        .as_ref()
        .map_or(&[][..], |status| &status.conditions);
    let generation = observed.cluster.metadata.generation.unwrap_or_default();
    FelixClusterStatus {
        observed_generation: Some(generation),
        conditions: merge(before, findings, generation, now),
        ..FelixClusterStatus::default()
    }
}

fn readiness(cluster: &ValidatedCluster, outcome: &Outcome, storage: &Finding) -> Finding {
    if let Some(obstacle) = &outcome.obstacle {
        return Finding::no(READY, obstacle.reason, &obstacle.message);
    }
    // Without its pod a claim may wait for ever: the refusal of the pod is what matters then.
    let pod_refused = outcome.workload.pods.is_empty() && outcome.said.pod_refused.is_some();
    if storage.status != felix_crds::ConditionStatus::True && !pod_refused {
        return Finding::no(READY, storage.reason, &storage.message);
    }
    match &outcome.restart {
        RestartStep::Restart(pod) => {
            return Finding::no(
                READY,
                "Updating",
                format!("pod {} is restarted to take the change", pod.name_any()),
            );
        }
        RestartStep::Wait(why) => return diagnose(cluster, outcome, why),
        RestartStep::Settled => {}
    }
    if outcome.workload.pods.iter().all(restart::is_ready) {
        Finding::yes(
            READY,
            "Serving",
            format!("clients connect to {}", cluster.names.client_address()),
        )
    } else {
        diagnose(cluster, outcome, "a pod is starting")
    }
}

fn progress(paused: bool, outcome: &Outcome) -> Finding {
    if paused {
        return Finding::no(
            PROGRESSING,
            "Paused",
            "spec.paused is true: nothing is written but this status",
        );
    }
    if let Some(obstacle) = &outcome.obstacle {
        return Finding::yes(PROGRESSING, obstacle.reason, "it is tried again");
    }
    match &outcome.restart {
        RestartStep::Restart(pod) => Finding::yes(
            PROGRESSING,
            "Restarting",
            format!("pod {} is restarted", pod.name_any()),
        ),
        RestartStep::Wait(why) => Finding::yes(PROGRESSING, "Waiting", why),
        RestartStep::Settled if outcome.workload.pods.iter().all(restart::is_ready) => {
            Finding::no(PROGRESSING, "Settled", "everything is as it is written")
        }
        RestartStep::Settled => Finding::yes(PROGRESSING, "Starting", "a pod is starting"),
    }
}

fn udp_buffers(brokers: &[BrokerStatus]) -> Finding {
    if brokers.is_empty() {
        return Finding::unknown(
            UDP_BUFFERS_GRANTED,
            "NoBroker",
            "no broker has told its buffers yet",
        );
    }
    let clamped = |broker: &&BrokerStatus| {
        broker.udp_buffers.receive.is_clamped() || broker.udp_buffers.send.is_clamped()
    };
    let Some(broker) = brokers.iter().find(clamped) else {
        return Finding::yes(
            UDP_BUFFERS_GRANTED,
            "Granted",
            "every broker has the UDP buffers that it asks for",
        );
    };
    let buffers = &broker.udp_buffers;
    let message = format!(
        "pod {} asked for {} bytes to receive and was granted {}, asked for {} bytes to send and was granted {}. Raise \
         net.core.rmem_max to {} and net.core.wmem_max to {} on its node (the chart's nodeTuner does), then the brokers \
         take them without a restart",
        broker.pod,
        buffers.receive.asked_bytes,
        buffers.receive.granted_bytes,
        buffers.send.asked_bytes,
        buffers.send.granted_bytes,
        buffers.receive.asked_bytes,
        buffers.send.asked_bytes,
    );
    Finding::no(UDP_BUFFERS_GRANTED, "Clamped", message)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
