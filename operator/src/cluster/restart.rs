//! Which pod to restart: the StatefulSet leaves that to the operator (OnDelete). Pure.
//!
//! Progress is read off the pods every time, so a crash of the operator loses none.

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::ResourceExt;

use super::dereference::Workload;

/// The label with a pod's revision, which the StatefulSet controller sets.
const REVISION_LABEL: &str = "controller-revision-hash";

/// What to do about pods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RestartStep {
    /// Every pod has the revision that it should have.
    Settled,
    /// Something must happen first.
    Wait(String),
    /// Delete this pod; it comes back with the right revision.
    Restart(Box<Pod>),
}

/// Decides the next step for the pods of a StatefulSet.
pub(crate) fn next(workload: &Workload, replicas: i32) -> RestartStep {
    let wait = |why: String| RestartStep::Wait(why);
    let Some(revision) = workload.stateful_set.as_ref().and_then(update_revision) else {
        return wait("the StatefulSet controller has not seen the change yet".to_owned());
    };
    if let Some(leaving) = workload.pods.iter().find(|pod| is_leaving(pod)) {
        return wait(format!("pod {} is stopping", leaving.name_any()));
    }
    let (right, wrong): (Vec<&Pod>, Vec<&Pod>) = workload
        .pods
        .iter()
        .partition(|pod| revision_of(pod) == Some(revision.as_str()));
    let Some(first) = wrong.first() else {
        let count = i32::try_from(right.len()).unwrap_or(i32::MAX);
        return if count < replicas {
            wait("a pod is missing".to_owned())
        } else {
            RestartStep::Settled
        };
    };
    // One that does not serve has nothing to lose, and waiting for it would wait for ever.
    if let Some(stuck) = wrong.iter().find(|pod| !is_ready(pod)) {
        return RestartStep::Restart(Box::new((*stuck).clone()));
    }
    if let Some(starting) = right.iter().find(|pod| !is_ready(pod)) {
        return wait(format!("pod {} is starting", starting.name_any()));
    }
    RestartStep::Restart(Box::new((*first).clone()))
}

/// Whether a pod serves clients.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    !is_leaving(pod)
        && conditions
            .into_iter()
            .flatten()
            .any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Whether a pod is being deleted.
pub(crate) fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn revision_of(pod: &Pod) -> Option<&str> {
    pod.labels().get(REVISION_LABEL).map(String::as_str)
}

/// The revision that pods should have, once the controller has seen the present template.
fn update_revision(stateful_set: &StatefulSet) -> Option<String> {
    let status = stateful_set.status.as_ref()?;
    let seen = status.observed_generation.unwrap_or_default()
        >= stateful_set.metadata.generation.unwrap_or_default();
    status.update_revision.clone().filter(|_| seen)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ordinal: usize, revision: &str, ready: bool) -> Pod {
        let pod = json!({
            "metadata": { "name": format!("demo-broker-{ordinal}"), "uid": format!("uid-{ordinal}"),
                          "labels": { "controller-revision-hash": revision } },
            "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
        });
        serde_json::from_value(pod).unwrap()
    }

    fn workload(pods: Vec<Pod>) -> Workload {
        let set = json!({
            "metadata": { "generation": 2 },
            "status": { "observedGeneration": 2, "updateRevision": "new", "replicas": 0 },
        });
        Workload {
            stateful_set: Some(serde_json::from_value(set).unwrap()),
            pods,
            claims: Vec::new(),
        }
    }

    #[track_caller]
    fn restarts(pods: Vec<Pod>, name: &str) {
        let RestartStep::Restart(pod) = next(&workload(pods), 3) else {
            panic!("nothing is restarted")
        };
        assert_eq!(pod.name_any(), name);
    }

    #[test]
    fn nothing_is_restarted_before_the_controller_has_seen_the_template() {
        let mut workload = workload(vec![pod(0, "old", true)]);
        workload.stateful_set.as_mut().unwrap().metadata.generation = Some(3);
        assert!(matches!(next(&workload, 1), RestartStep::Wait(_)));
    }

    #[test]
    fn one_pod_at_a_time_and_only_while_the_others_serve() {
        restarts(
            vec![pod(0, "old", true), pod(1, "old", true), pod(2, "old", true)],
            "demo-broker-0",
        );
        let waiting = vec![pod(0, "new", false), pod(1, "old", true), pod(2, "old", true)];
        assert_eq!(
            next(&workload(waiting), 3),
            RestartStep::Wait("pod demo-broker-0 is starting".to_owned())
        );
        restarts(
            vec![pod(0, "new", true), pod(1, "old", true), pod(2, "old", true)],
            "demo-broker-1",
        );
        let mut leaving = pod(0, "old", true);
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert!(matches!(
            next(&workload(vec![leaving, pod(1, "old", true)]), 2),
            RestartStep::Wait(_)
        ));
    }

    #[test]
    fn a_pod_that_is_stuck_on_a_wrong_revision_goes_first_and_at_once() {
        restarts(
            vec![pod(0, "new", false), pod(1, "old", true), pod(2, "old", false)],
            "demo-broker-2",
        );
        restarts(vec![pod(0, "bad", false)], "demo-broker-0");
    }

    #[test]
    fn all_on_the_right_revision_is_settled_and_a_missing_one_is_waited_for() {
        let right = || vec![pod(0, "new", true), pod(1, "new", false), pod(2, "new", true)];
        assert_eq!(next(&workload(right()), 3), RestartStep::Settled);
        assert!(matches!(next(&workload(right()), 4), RestartStep::Wait(_)));
    }
}
