//! Why the brokers do not serve: from the states of their pods.

use felix_crds::Finding;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod};
use kube::ResourceExt;

use super::{Outcome, READY};
use crate::cluster::{restart, validate::ValidatedCluster};

/// Reasons of a waiting container that pass by themselves.
const PASSING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// What keeps the pods from being ready; `why` is what the operator waits for where nothing more is known.
pub(super) fn diagnose(cluster: &ValidatedCluster, outcome: &Outcome, why: &str) -> Finding {
    let pods = &outcome.workload.pods;
    if pods.len() < usize::try_from(cluster.replicas).unwrap_or_default() {
        let told = outcome
            .said
            .pod_refused
            .as_ref()
            .map(|e| format!(" Kubernetes says: {e}"))
            .unwrap_or_default();
        let message = format!(
            "StatefulSet {} has not made its pod yet.{told}",
            cluster.names.broker()
        );
        return Finding::no(READY, "NoPod", message);
    }
    let trouble = pods
        .iter()
        .filter(|pod| !restart::is_ready(pod))
        .find_map(trouble);
    let (reason, message) = trouble.unwrap_or_else(|| ("Starting", why.to_owned()));
    Finding::no(READY, reason, message)
}

/// What a pod itself says about its trouble.
fn trouble(pod: &Pod) -> Option<(&'static str, String)> {
    let name = pod.name_any();
    if restart::is_leaving(pod) {
        return Some(("Stopping", format!("pod {name} is stopping")));
    }
    if let Some(message) = unscheduled(pod) {
        return Some(("Unschedulable", format!("pod {name} finds no node: {message}")));
    }
    let status = pod.status.as_ref()?;
    let container = status.container_statuses.iter().flatten().next()?;
    let waiting = container
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref())?;
    waiting_trouble(&name, &container.image, waiting)
}

/// Why the scheduler finds no node for a pod, in its words.
pub(super) fn unscheduled(pod: &Pod) -> Option<&str> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let condition = conditions.find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    Some(condition.message.as_deref().unwrap_or_default())
}

fn waiting_trouble(
    pod: &str,
    image: &str,
    waiting: &ContainerStateWaiting,
) -> Option<(&'static str, String)> {
    let word = waiting.reason.as_deref()?;
    if PASSING.contains(&word) {
        return None;
    }
    let reason = match word {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => "ImagePull",
        "CrashLoopBackOff" => "CrashLoop",
        _ => "ContainerWaiting",
    };
    // The kubelet's text counts seconds and names containers by random ids: its word is enough, and stays the same.
    let hint = match reason {
        "ImagePull" => "correct spec.image or spec.imagePullSecrets",
        "CrashLoop" => "its log says why; a change of spec.config or spec.image restarts it at once",
        _ => "the events of the pod say why",
    };
    let what = if reason == "ImagePull" {
        format!(" of {image}")
    } else {
        String::new()
    };
    Some((reason, format!("pod {pod}: {word}{what}; {hint}")))
}
