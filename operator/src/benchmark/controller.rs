//! Carries out a FelixBenchmark: makes its Job once, follows it to its end, and keeps the figures.

use std::{sync::Arc, time::Duration};

use felix_crds::{BenchmarkPhase, FelixBenchmark};
use k8s_openapi::{api::batch::v1::Job, jiff::Timestamp};
use kube::{
    Resource, ResourceExt,
    api::{Patch, PatchParams, PropagationPolicy},
    runtime::controller::Action,
};
use serde_json::json;

use super::{
    build::build,
    dereference::{self, Run},
    status::{Findings, status},
    validate::{run_name, validate},
    verdict::{self, Evidence, Progress},
};
use crate::{
    apply::{Desired, apply, delete_unchanged, is_not_found},
    context::Context,
    controllers::Reconciler,
    names::FIELD_MANAGER,
    retry::ReconcileError,
    status::write,
};

/// How often a run under way is looked at although nothing was heard of it: a pod that cannot start says nothing more.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Keeps FelixBenchmarks.
pub(crate) struct BenchmarkReconciler {
    /// The client and the settings.
    pub(crate) context: Arc<Context>,
}

impl Reconciler for BenchmarkReconciler {
    type Object = FelixBenchmark;
    const KIND: &'static str = "FelixBenchmark";

    async fn reconcile(&self, benchmark: Arc<FelixBenchmark>) -> Result<Action, ReconcileError> {
        // Everything of a run goes with its benchmark by owner references.
        if benchmark.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let run = dereference::run(&self.context, &benchmark).await?;
        let before = benchmark.status.as_ref();
        if before
            .and_then(|status| status.phase)
            .is_some_and(BenchmarkPhase::is_final)
        {
            self.end_job(&benchmark, run.job).await?;
            return Ok(Action::await_change());
        }
        let begun = before.is_some_and(|status| status.job_name.is_some());
        let progress = match &run.job {
            None if !begun => self.begin(&benchmark).await?,
            job => {
                self.follow_suspend(&benchmark, job.as_ref()).await?;
                verdict::progress(&Evidence {
                    job: job.as_ref(),
                    pods: &run.pods,
                    summary: run.summary.as_ref(),
                    now: Timestamp::now(),
                })
            }
        };
        self.write_status(&benchmark, &progress, &run).await?;
        if progress.phase.is_final() {
            self.end_job(&benchmark, run.job).await?;
            return Ok(Action::await_change());
        }
        Ok(Action::requeue(LOOK_AGAIN))
    }
}

impl BenchmarkReconciler {
    /// Makes everything of a run, the Job last: its pod finds its account, its right and its ConfigMap in place.
    async fn begin(&self, benchmark: &FelixBenchmark) -> Result<Progress, ReconcileError> {
        let found = dereference::found(&self.context, benchmark).await?;
        let run = match validate(benchmark, &found, &self.context.bench_image) {
            Ok(run) => run,
            Err(progress) => return Ok(progress),
        };
        let objects = build(&run);
        for desired in [
            Desired::new(&objects.account)?,
            Desired::new(&objects.role)?,
            Desired::new(&objects.binding)?,
            Desired::new(&objects.results)?,
            Desired::new(&objects.job)?,
        ] {
            apply(&self.context.client, &desired).await?;
        }
        Ok(Progress::new(
            BenchmarkPhase::Pending,
            "JobCreated",
            format!("Job {} was made", run.name),
        ))
    }

    /// The one field of a Job that follows the spec. All else was decided when the run began.
    async fn follow_suspend(
        &self,
        benchmark: &FelixBenchmark,
        job: Option<&Job>,
    ) -> Result<(), ReconcileError> {
        let Some(job) = job else { return Ok(()) };
        let held = job
            .spec
            .as_ref()
            .and_then(|spec| spec.suspend)
            .unwrap_or_default();
        if held == benchmark.spec.suspend || has_ended(job) {
            return Ok(());
        }
        let api = self
            .context
            .api::<Job>(&benchmark.namespace().unwrap_or_default());
        let body = json!({ "metadata": { "uid": job.uid() }, "spec": { "suspend": benchmark.spec.suspend } });
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        api.patch(&job.name_any(), &params, &Patch::Merge(&body)).await?;
        Ok(())
    }

    /// A run that is over needs no Job: one that never ends by itself (its image is missing) is deleted.
    async fn end_job(&self, benchmark: &FelixBenchmark, job: Option<Job>) -> Result<(), ReconcileError> {
        let Some(job) = job.filter(|job| !has_ended(job)) else {
            return Ok(());
        };
        let api = self
            .context
            .api::<Job>(&benchmark.namespace().unwrap_or_default());
        Ok(delete_unchanged(&api, &job, PropagationPolicy::Background).await?)
    }

    /// Writes the status where it differs, and an event where the phase does.
    async fn write_status(
        &self,
        benchmark: &FelixBenchmark,
        progress: &Progress,
        run: &Run,
    ) -> Result<(), ReconcileError> {
        let before = benchmark.status.clone().unwrap_or_default();
        let name = run_name(benchmark);
        let begun = run.job.is_some() || before.job_name.is_some() || progress.reason == "JobCreated";
        let findings = Findings {
            progress,
            run_name: begun.then_some(name.as_str()),
            job: run.job.as_ref(),
            summary: run.summary.as_ref().and_then(|summary| summary.as_ref().ok()),
            generation: benchmark.meta().generation.unwrap_or_default(),
            now: Timestamp::now(),
        };
        let after = status(&before, &findings);
        let api = self
            .context
            .api::<FelixBenchmark>(&benchmark.namespace().unwrap_or_default());
        match write(&api, benchmark, benchmark.status.as_ref(), &after).await {
            // It went meanwhile, and everything of the run goes with it.
            Err(error) if is_not_found(&error) => return Ok(()),
            result => result?,
        };
        if before.phase == after.phase {
            return Ok(());
        }
        let events = &self.context.events;
        match progress.phase {
            BenchmarkPhase::Failed => {
                events
                    .warning(benchmark, progress.reason, progress.message.as_str())
                    .await
            }
            BenchmarkPhase::Pending
            | BenchmarkPhase::Running
            | BenchmarkPhase::Suspended
            | BenchmarkPhase::Succeeded => {
                events
                    .normal(benchmark, progress.reason, progress.message.as_str())
                    .await;
            }
        }
        Ok(())
    }
}

/// Whether the Job will do nothing more.
fn has_ended(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ends = |c: &k8s_openapi::api::batch::v1::JobCondition| {
        matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True"
    };
    conditions.is_some_and(|conditions| conditions.iter().any(ends))
}
