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
        if is_over(&benchmark) {
            self.end_job(&benchmark, run.job).await?;
            return Ok(Action::await_change());
        }
        let progress = match &run.job {
            None if !has_begun(&benchmark) => {
                // What was written a moment ago may not have come back yet, and a run is made once.
                if !self.is_current(&benchmark).await? {
                    return Ok(Action::await_change());
                }
                self.begin(&benchmark).await?
            }
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
    /// Whether the API server, too, knows this object as one whose run has not begun.
    async fn is_current(&self, benchmark: &FelixBenchmark) -> Result<bool, ReconcileError> {
        let api = self
            .context
            .api::<FelixBenchmark>(&benchmark.namespace().unwrap_or_default());
        let there = api.get_opt(&benchmark.name_any()).await?;
        Ok(there.is_some_and(|there| {
            there.uid() == benchmark.uid()
                && there.metadata.deletion_timestamp.is_none()
                && !has_begun(&there)
                && !is_over(&there)
        }))
    }

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

/// Whether a Job was made for it once.
fn has_begun(benchmark: &FelixBenchmark) -> bool {
    let status = benchmark.status.as_ref();
    status.is_some_and(|status| status.job_name.is_some())
}

/// Whether its phase is one that nothing follows.
fn is_over(benchmark: &FelixBenchmark) -> bool {
    let phase = benchmark.status.as_ref().and_then(|status| status.phase);
    phase.is_some_and(BenchmarkPhase::is_final)
}

/// Whether the Job will do nothing more.
fn has_ended(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ends = |c: &k8s_openapi::api::batch::v1::JobCondition| {
        matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True"
    };
    conditions.is_some_and(|conditions| conditions.iter().any(ends))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use prometheus_client::registry::Registry;
    use serde_json::Value;

    use super::*;
    use crate::{
        config::{Cli, Command},
        fake_api::FakeApi,
        metrics::Metrics,
    };

    const PATH: &str = "/apis/felix.dev/v1alpha1/namespaces/ns/felixbenchmarks/b";

    fn benchmark(uid: &str, status: &Value) -> Value {
        json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixBenchmark",
            "metadata": { "name": "b", "namespace": "ns", "uid": uid, "generation": 1 },
            "spec": {
                "clusterRef": { "name": "c" }, "streamRef": { "name": "s" },
                "latency": { "preset": "quick" }, "deadline": "5m",
            },
            "status": status,
        })
    }

    /// What the operator writes when its cache holds `seen` and the API server `there`.
    async fn writes(seen: Value, there: Option<Value>) -> Vec<String> {
        let api = FakeApi::default();
        if let Some(there) = there {
            api.put(PATH, there);
        }
        let Command::Run(args) =
            Cli::parse_from(["felix-operator", "run", "--operator-namespace=ns"]).command
        else {
            panic!("not the run command")
        };
        let context = Context::new(api.client(), &args, Metrics::register(&mut Registry::default()));
        let reconciler = BenchmarkReconciler {
            context: Arc::new(context),
        };
        let seen = serde_json::from_value(seen).unwrap();
        reconciler.reconcile(Arc::new(seen)).await.unwrap();
        api.take_writes()
    }

    #[tokio::test]
    async fn what_the_cache_does_not_know_yet_is_not_begun_again() {
        let new = || benchmark("1", &json!({}));
        let told = writes(new(), Some(new())).await;
        assert!(!told.is_empty(), "a new one is told that its cluster is missing");
        for there in [
            Some(benchmark("1", &json!({ "phase": "Running", "jobName": "j" }))),
            Some(benchmark("1", &json!({ "phase": "Failed" }))),
            Some(benchmark("2", &json!({}))),
            None,
        ] {
            assert_eq!(
                writes(new(), there.clone()).await,
                Vec::<String>::new(),
                "{there:?}"
            );
        }
    }
}
