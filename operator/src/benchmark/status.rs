//! From what a run has come to, to the status of its FelixBenchmark. Pure.

use felix_crds::{BenchmarkPhase, FelixBenchmarkStatus, Finding, ResultReference, merge};
use k8s_openapi::{api::batch::v1::Job, jiff::Timestamp};

use super::{summary::Summary, verdict::Progress};

/// What a reconcile found out about a run.
pub(crate) struct Findings<'a> {
    /// How far it has come.
    pub(crate) progress: &'a Progress,
    /// Name of the Job and its ConfigMap, once they were made.
    pub(crate) run_name: Option<&'a str>,
    /// The Job, where it exists.
    pub(crate) job: Option<&'a Job>,
    /// The summary, where there is one.
    pub(crate) summary: Option<&'a Summary>,
    /// metadata.generation of the spec.
    pub(crate) generation: i64,
    /// The time of this reconcile.
    pub(crate) now: Timestamp,
}

/// The status that follows `before`. Figures are kept: a Job that is gone takes none of them along.
pub(crate) fn status(before: &FelixBenchmarkStatus, findings: &Findings<'_>) -> FelixBenchmarkStatus {
    let progress = findings.progress;
    let mut status = FelixBenchmarkStatus {
        observed_generation: Some(findings.generation),
        phase: Some(progress.phase),
        reason: Some(progress.reason.to_owned()),
        message: Some(progress.message.chars().take(1000).collect()),
        conditions: conditions(before, findings),
        ..before.clone()
    };
    if let Some(name) = findings.run_name {
        status.job_name = Some(name.to_owned());
    }
    if let Some(started) = findings
        .job
        .and_then(|job| job.status.as_ref()?.start_time.as_ref())
    {
        status.start_time = Some(rfc3339(started.0));
    }
    if progress.phase.is_final() && status.completion_time.is_none() {
        status.completion_time = Some(rfc3339(ended(findings.job).unwrap_or(findings.now)));
    }
    if progress.phase.is_final() {
        status.passed = Some(progress.phase == BenchmarkPhase::Succeeded);
    }
    if let Some(summary) = findings.summary {
        status.rows = summary.rows.clone();
        status.environment = Some(summary.environment.clone());
        status.result_refs = findings.run_name.map(results).into_iter().collect();
    }
    status
}

/// In whole seconds, as Kubernetes writes its own.
fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn results(name: &str) -> ResultReference {
    ResultReference {
        kind: "ConfigMap".to_owned(),
        name: name.to_owned(),
    }
}

/// Complete and Failed, as a Job has them: a script can wait for either.
fn conditions(before: &FelixBenchmarkStatus, findings: &Findings<'_>) -> Vec<felix_crds::Condition> {
    let Progress {
        phase,
        reason,
        message,
    } = findings.progress;
    let complete = match phase {
        BenchmarkPhase::Succeeded => Finding::yes("Complete", reason, message.as_str()),
        BenchmarkPhase::Failed
        | BenchmarkPhase::Pending
        | BenchmarkPhase::Running
        | BenchmarkPhase::Suspended => Finding::no("Complete", reason, message.as_str()),
    };
    let failed = match phase {
        BenchmarkPhase::Failed => Finding::yes("Failed", reason, message.as_str()),
        BenchmarkPhase::Succeeded
        | BenchmarkPhase::Pending
        | BenchmarkPhase::Running
        | BenchmarkPhase::Suspended => Finding::no("Failed", reason, message.as_str()),
    };
    merge(
        &before.conditions,
        &[complete, failed],
        findings.generation,
        &rfc3339(findings.now),
    )
}

/// When the Job ended, by its own status.
fn ended(job: Option<&Job>) -> Option<Timestamp> {
    let status = job?.status.as_ref()?;
    if let Some(completed) = &status.completion_time {
        return Some(completed.0);
    }
    let failed = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == "Failed" && c.status == "True")?;
    failed.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::summary::tests::document, *};

    fn after(
        progress: &Progress,
        job: Option<&Job>,
        summary: Option<&Summary>,
        now: &str,
    ) -> FelixBenchmarkStatus {
        let findings = Findings {
            progress,
            run_name: Some("run"),
            job,
            summary,
            generation: 1,
            now: now.parse().unwrap(),
        };
        status(&FelixBenchmarkStatus::default(), &findings)
    }

    #[test]
    fn a_run_that_passed_carries_its_figures_and_times() {
        let job: Job = serde_json::from_value(json!({ "status": {
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z",
        } }))
        .unwrap();
        let summary = Summary::parse(&document(true)).unwrap();
        let progress = Progress::new(BenchmarkPhase::Succeeded, "ChecksPassed", "all");
        let status = after(&progress, Some(&job), Some(&summary), "2026-01-01T00:02:00Z");
        assert_eq!(status.passed, Some(true));
        assert_eq!(status.rows, summary.rows);
        assert_eq!(status.completion_time.as_deref(), Some("2026-01-01T00:01:00Z"));
        assert_eq!(
            status.result_refs,
            [ResultReference {
                kind: "ConfigMap".into(),
                name: "run".into()
            }]
        );
        let kinds: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (c.kind.as_str(), c.status))
            .collect();
        use felix_crds::ConditionStatus::{False, True};
        assert_eq!(kinds, [("Complete", True), ("Failed", False)]);
    }

    #[test]
    fn the_same_findings_later_change_nothing() {
        let progress = Progress::new(BenchmarkPhase::Failed, "OutOfMemory", "more than it may");
        let first = after(&progress, None, None, "2026-01-01T00:00:00Z");
        let findings = Findings {
            progress: &progress,
            run_name: Some("run"),
            job: None,
            summary: None,
            generation: 1,
            now: "2026-01-02T00:00:00Z".parse().unwrap(),
        };
        assert_eq!(status(&first, &findings), first);
        assert_eq!(first.passed, Some(false));
    }

    #[test]
    fn a_run_under_way_has_not_passed_and_not_failed() {
        let progress = Progress::new(BenchmarkPhase::Running, "Measuring", "the pod measures");
        let status = after(&progress, None, None, "2026-01-01T00:00:00Z");
        assert_eq!((status.passed, status.completion_time), (None, None));
    }
}
