//! What a benchmark's Job has come to: decided from the Job, its pods and the summary, without asking anybody.

use felix_crds::BenchmarkPhase;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition},
        core::v1::{ContainerStateTerminated, Pod},
    },
    jiff::{SignedDuration, Timestamp},
};

use super::summary::{Summary, SummaryError};

/// How long an image may fail to be pulled before the run is given up: a registry may hiccup.
const IMAGE_PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// Everything that the verdict rests on.
pub(crate) struct Evidence<'a> {
    /// The Job, where it exists.
    pub(crate) job: Option<&'a Job>,
    /// The pods of the Job.
    pub(crate) pods: &'a [Pod],
    /// The summary, where the Job left one.
    pub(crate) summary: Option<&'a Result<Summary, SummaryError>>,
    /// The time of this reconcile.
    pub(crate) now: Timestamp,
}

/// How far a run has come, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The phase.
    pub(crate) phase: BenchmarkPhase,
    /// Why, in one word.
    pub(crate) reason: &'static str,
    /// Why, for people.
    pub(crate) message: String,
}

impl Progress {
    /// A phase with its reason.
    pub(crate) fn new(phase: BenchmarkPhase, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            phase,
            reason,
            message: message.into(),
        }
    }

    fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(BenchmarkPhase::Failed, reason, message)
    }
}

/// Decides how far the run has come. A Job that was made and is gone counts as deleted: a run has one attempt.
pub(crate) fn progress(evidence: &Evidence<'_>) -> Progress {
    let Some(job) = evidence.job else {
        return Progress::failed(
            "JobDeleted",
            "the Job was deleted before its results were in; make another FelixBenchmark to run again",
        );
    };
    if condition(job, "Complete").is_some() {
        return completed(evidence.summary);
    }
    if let Some(failure) = condition(job, "Failed") {
        return failed(failure, evidence);
    }
    under_way(job, evidence)
}

/// The condition of this type, where it holds.
fn condition<'a>(job: &'a Job, kind: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == kind && c.status == "True")
}

fn completed(summary: Option<&Result<Summary, SummaryError>>) -> Progress {
    match summary {
        Some(Ok(summary)) if summary.passed => Progress::new(
            BenchmarkPhase::Succeeded,
            "ChecksPassed",
            format!(
                "every record of every row ({}) arrived, unchanged and once",
                summary.rows.len()
            ),
        ),
        Some(Ok(summary)) => checks_failed(summary),
        Some(Err(error)) => Progress::failed("ResultsUnreadable", error.to_string()),
        None => Progress::failed(
            "ResultsMissing",
            "the Job ended well but left no summary in its ConfigMap",
        ),
    }
}

fn checks_failed(summary: &Summary) -> Progress {
    let mut failed = summary.rows.iter().filter(|row| !row.passed);
    let Some(first) = failed.next() else {
        return Progress::failed("ChecksFailed", "not every row ran");
    };
    let mut message = format!(
        "{} of {} rows did not pass, the first with payload {}, fanout {}, batch {}: {} dropped, {} lost, {} twice, {} out \
         of order; see status.rows and the raw results",
        failed.count() + 1,
        summary.rows.len(),
        first.payload_bytes,
        first.fanout,
        first.batch,
        first.dropped,
        first.lost,
        first.duplicates,
        first.reordered,
    );
    if first.dropped > 0 {
        message.push_str(
            ". Nothing is dropped where the stream has slowSubscriber.allowBlock, or readers that keep up",
        );
    }
    Progress::failed("ChecksFailed", message)
}

fn failed(failure: &JobCondition, evidence: &Evidence<'_>) -> Progress {
    if failure.reason.as_deref() == Some("DeadlineExceeded") {
        return Progress::failed("DeadlineExceeded", "the run took longer than spec.deadline");
    }
    if let Some(message) = evidence.pods.iter().find_map(evicted) {
        return Progress::failed("Evicted", format!("the pod was evicted: {message}"));
    }
    if failure.reason.as_deref() == Some("PodFailurePolicy") {
        let message = failure.message.as_deref().unwrap_or_default();
        return Progress::failed("Evicted", format!("the pod was evicted: {message}"));
    }
    let ends = || evidence.pods.iter().filter_map(terminated);
    if ends().any(|end| end.reason.as_deref() == Some("OOMKilled")) {
        return Progress::failed(
            "OutOfMemory",
            "the benchmark used more than spec.resources.limits.memory: raise it",
        );
    }
    if let Some(Ok(summary)) = evidence.summary
        && !summary.passed
    {
        return checks_failed(summary);
    }
    match ends().find(|end| end.exit_code != 0) {
        Some(end) => Progress::failed("ProcessFailed", said(end)),
        None => Progress::failed(
            "PodLost",
            format!(
                "the pod is gone, perhaps with its node: {}",
                failure.message.as_deref().unwrap_or("no reason given")
            ),
        ),
    }
}

/// Why a pod was taken away, where the kubelet, the scheduler or a drain did that.
fn evicted(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    if status.reason.as_deref() == Some("Evicted") {
        return Some(status.message.clone().unwrap_or_default());
    }
    let mut conditions = status.conditions.iter().flatten();
    let disrupted = conditions.find(|c| c.type_ == "DisruptionTarget" && c.status == "True")?;
    Some(disrupted.message.clone().unwrap_or_default())
}

fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    status.state.as_ref()?.terminated.as_ref()
}

/// The exit code with the last lines that the kubelet kept of the output.
fn said(end: &ContainerStateTerminated) -> String {
    let last = end.message.as_deref().unwrap_or("").trim();
    let tail: String = last
        .chars()
        .rev()
        .take(600)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    format!("the benchmark ended with exit code {}: {tail}", end.exit_code)
}

fn under_way(job: &Job, evidence: &Evidence<'_>) -> Progress {
    if job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true) {
        return Progress::new(
            BenchmarkPhase::Suspended,
            "Suspended",
            "set spec.suspend to false to run",
        );
    }
    match evidence
        .pods
        .iter()
        .find(|pod| pod.metadata.deletion_timestamp.is_none())
    {
        Some(pod) => pod_under_way(pod, evidence.now),
        None => Progress::new(
            BenchmarkPhase::Pending,
            "WaitingForPod",
            "the Job has no pod yet; if that lasts, its events say why (a quota, for example)",
        ),
    }
}

fn pod_under_way(pod: &Pod, now: Timestamp) -> Progress {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .find_map(|container| container.state.as_ref()?.waiting.as_ref());
    if let Some(waiting) = waiting {
        let reason = waiting.reason.as_deref().unwrap_or("");
        let message = waiting.message.as_deref().unwrap_or(reason);
        let never = matches!(reason, "InvalidImageName" | "ErrImageNeverPull");
        let not_yet = matches!(reason, "ErrImagePull" | "ImagePullBackOff");
        if never || (not_yet && age(pod, now) >= IMAGE_PATIENCE) {
            return Progress::failed(
                "ImageMissing",
                format!("the benchmark's image cannot be had: {message}"),
            );
        }
        return Progress::new(BenchmarkPhase::Pending, "Starting", message);
    }
    if status.phase.as_deref() == Some("Running") {
        return Progress::new(BenchmarkPhase::Running, "Measuring", "the pod measures");
    }
    let unschedulable = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == "PodScheduled" && c.status == "False")
        .and_then(|c| c.message.clone());
    match unschedulable {
        Some(message) => Progress::new(BenchmarkPhase::Pending, "Unschedulable", message),
        None if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) => Progress::new(
            BenchmarkPhase::Running,
            "Ending",
            "the pod has ended, its Job not yet",
        ),
        None => Progress::new(BenchmarkPhase::Pending, "Starting", "the pod starts"),
    }
}

fn age(pod: &Pod, now: Timestamp) -> SignedDuration {
    pod.metadata
        .creation_timestamp
        .as_ref()
        .map_or(SignedDuration::ZERO, |made| now.duration_since(made.0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::summary::tests::document, *};

    fn job(value: Value) -> Job {
        serde_json::from_value(value).unwrap()
    }

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "status": status,
        }))
        .unwrap()
    }

    fn failed_job(reason: &str) -> Job {
        job(json!({ "status": { "conditions": [
            { "type": "Failed", "status": "True", "reason": reason, "message": "Job has reached the limit" },
        ] } }))
    }

    fn terminated_pod(terminated: Value) -> Pod {
        pod(json!({ "phase": "Failed", "containerStatuses": [
            { "name": "bench", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": terminated } },
        ] }))
    }

    fn waiting_pod(reason: &str) -> Pod {
        pod(json!({ "phase": "Pending", "containerStatuses": [
            { "name": "bench", "image": "", "imageID": "", "ready": false, "restartCount": 0,
              "state": { "waiting": { "reason": reason, "message": "no such image" } } },
        ] }))
    }

    /// The phase and reason, 10 seconds after the pods were made.
    fn check(job: Option<&Job>, pods: &[Pod], summary: Option<&str>) -> (BenchmarkPhase, &'static str) {
        check_at("2026-01-01T00:00:10Z", job, pods, summary)
    }

    fn check_at(
        now: &str,
        job: Option<&Job>,
        pods: &[Pod],
        summary: Option<&str>,
    ) -> (BenchmarkPhase, &'static str) {
        let summary = summary.map(Summary::parse);
        let progress = progress(&Evidence {
            job,
            pods,
            summary: summary.as_ref(),
            now: now.parse().unwrap(),
        });
        assert!(!progress.message.is_empty());
        (progress.phase, progress.reason)
    }

    #[test]
    fn a_job_that_ended_well_is_judged_by_its_summary() {
        let done = job(json!({ "status": { "conditions": [{ "type": "Complete", "status": "True" }] } }));
        assert_eq!(
            check(Some(&done), &[], Some(&document(true))),
            (BenchmarkPhase::Succeeded, "ChecksPassed")
        );
        assert_eq!(
            check(Some(&done), &[], Some(&document(false))),
            (BenchmarkPhase::Failed, "ChecksFailed")
        );
        assert_eq!(
            check(Some(&done), &[], Some("{")),
            (BenchmarkPhase::Failed, "ResultsUnreadable")
        );
        assert_eq!(
            check(Some(&done), &[], None),
            (BenchmarkPhase::Failed, "ResultsMissing")
        );
    }

    #[test]
    fn a_row_that_dropped_is_named_with_the_remedy() {
        let row = |batch: i32, dropped: i64| {
            json!({
                "payloadBytes": 1024, "fanout": 10, "batch": batch, "records": 1, "p50Nanoseconds": 1,
                "p99Nanoseconds": 1, "p999Nanoseconds": 1, "deliveredPerSecond": 1, "deliveredBytesPerSecond": 1,
                "publishedPerSecond": 1, "dropped": dropped, "lost": 0, "duplicates": 0, "reordered": 0,
                "passed": dropped == 0,
            })
        };
        let text = json!({
            "schema": 1, "tool": { "version": "1", "commit": "c" }, "environment": {},
            "rows": [row(1, 0), row(64, 7)], "passed": false,
        });
        let told = checks_failed(&Summary::parse(&text.to_string()).unwrap()).message;
        for part in ["1 of 2 rows", "batch 64: 7 dropped", "allowBlock"] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn each_way_to_fail_has_its_reason() {
        let limit = failed_job("BackoffLimitExceeded");
        let of = |pods: &[Pod], summary: Option<&str>| check(Some(&limit), pods, summary);
        let killed = terminated_pod(json!({ "exitCode": 137, "reason": "OOMKilled" }));
        let ended = terminated_pod(json!({ "exitCode": 1, "reason": "Error", "message": "3 records lost" }));
        let evicted = pod(json!({ "phase": "Failed", "reason": "Evicted", "message": "disk pressure" }));
        let drained = pod(json!({ "phase": "Failed", "conditions": [
            { "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained" },
        ] }));
        assert_eq!(of(&[killed], None), (BenchmarkPhase::Failed, "OutOfMemory"));
        assert_eq!(of(&[evicted], None), (BenchmarkPhase::Failed, "Evicted"));
        assert_eq!(of(&[drained], None), (BenchmarkPhase::Failed, "Evicted"));
        assert_eq!(
            of(std::slice::from_ref(&ended), Some(&document(false))),
            (BenchmarkPhase::Failed, "ChecksFailed")
        );
        assert_eq!(of(&[ended], None), (BenchmarkPhase::Failed, "ProcessFailed"));
        assert_eq!(of(&[], None), (BenchmarkPhase::Failed, "PodLost"));
        let taken = failed_job("PodFailurePolicy");
        assert_eq!(
            check(Some(&taken), &[], Some(&document(false))),
            (BenchmarkPhase::Failed, "Evicted"),
            "the pod is gone, and what it could still write is no result"
        );
        assert_eq!(
            check(Some(&failed_job("DeadlineExceeded")), &[], None),
            (BenchmarkPhase::Failed, "DeadlineExceeded")
        );
        assert_eq!(check(None, &[], None), (BenchmarkPhase::Failed, "JobDeleted"));
    }

    #[test]
    fn the_last_words_of_the_program_are_kept() {
        let pods = [terminated_pod(
            json!({ "exitCode": 1, "message": format!("{}the end", "x".repeat(5000)) }),
        )];
        let job = failed_job("BackoffLimitExceeded");
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        let progress = progress(&Evidence {
            job: Some(&job),
            pods: &pods,
            summary: None,
            now,
        });
        assert!(
            progress.message.ends_with("the end") && progress.message.len() < 1000,
            "{}",
            progress.message
        );
    }

    #[test]
    fn a_missing_image_ends_the_run_after_a_while() {
        let active = job(
            json!({ "spec": { "template": { "spec": { "containers": [] } } }, "status": { "active": 1 } }),
        );
        let pods = [waiting_pod("ImagePullBackOff")];
        assert_eq!(
            check(Some(&active), &pods, None),
            (BenchmarkPhase::Pending, "Starting")
        );
        let later = "2026-01-01T00:00:30Z";
        assert_eq!(
            check_at(later, Some(&active), &pods, None),
            (BenchmarkPhase::Failed, "ImageMissing")
        );
        let never = [waiting_pod("ErrImageNeverPull")];
        assert_eq!(
            check(Some(&active), &never, None),
            (BenchmarkPhase::Failed, "ImageMissing")
        );
        let creating = [waiting_pod("ContainerCreating")];
        assert_eq!(
            check_at(later, Some(&active), &creating, None),
            (BenchmarkPhase::Pending, "Starting")
        );
    }

    #[test]
    fn a_run_under_way_says_where_it_is() {
        let active = job(
            json!({ "spec": { "template": { "spec": { "containers": [] } } }, "status": { "active": 1 } }),
        );
        let held = job(json!({ "spec": { "suspend": true, "template": { "spec": { "containers": [] } } } }));
        let running = pod(json!({ "phase": "Running" }));
        let full = pod(json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "message": "0/3 nodes are available" },
        ] }));
        assert_eq!(
            check(Some(&active), &[running], None),
            (BenchmarkPhase::Running, "Measuring")
        );
        assert_eq!(
            check(Some(&active), &[full], None),
            (BenchmarkPhase::Pending, "Unschedulable")
        );
        assert_eq!(
            check(Some(&active), &[], None),
            (BenchmarkPhase::Pending, "WaitingForPod")
        );
        assert_eq!(
            check(Some(&held), &[], None),
            (BenchmarkPhase::Suspended, "Suspended")
        );
    }
}
