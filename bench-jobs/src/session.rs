//! One invocation of `felix-bench latency`: rows one after the other, results to every place asked for, an exit code.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::LatencyArgs;
use crate::environment::{Environment, Tool};
use crate::measure::Bench;
use crate::metrics::{self, Metrics};
use crate::outcome::{self, Measured, ResultLine, RowSummary, SCHEMA, Summary, Workload};
use crate::progress::{self, Progress, Shown};
use crate::results_configmap::{self, Target as ConfigMap};
use crate::row::Row;
use crate::table;
use crate::target::{self, Target};

/// Exit code where a row failed, or results could not be written.
pub(crate) const FAILED: u8 = 1;

/// Exit code where the flags do not describe a run.
pub(crate) const BAD_INPUT: u8 = 2;

/// What the flags describe, checked before anything starts.
struct Plan {
    args: LatencyArgs,
    rows: Vec<Row>,
    configmaps: Vec<ConfigMap>,
}

/// Runs everything; the exit code says how it went.
pub(crate) async fn run(args: LatencyArgs) -> ExitCode {
    let plan = match Plan::new(args) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("felix-bench: {error:#}");
            return ExitCode::from(BAD_INPUT);
        }
    };
    match plan.run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(error) => {
            eprintln!("felix-bench: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

impl Plan {
    fn new(args: LatencyArgs) -> anyhow::Result<Self> {
        let rows = args.rows()?;
        let configmaps = args
            .results_configmap
            .iter()
            .map(|text| ConfigMap::parse(text))
            .collect::<Result<_, _>>()?;
        if let Some(ca) = &args.ca {
            std::fs::metadata(ca).with_context(|| format!("reading --ca {}", ca.display()))?;
        }
        Ok(Self {
            args,
            rows,
            configmaps,
        })
    }

    /// Whether all rows passed.
    async fn run(self) -> anyhow::Result<bool> {
        let cancel = CancellationToken::new();
        let watch = watch_for_the_end(cancel.clone(), self.args.deadline())?;
        let progress = Arc::new(Progress::new());
        let metrics = Arc::new(Metrics::new(progress.clone()));
        if let Some(bind) = self.args.metrics_bind {
            metrics::serve(metrics.clone(), bind)
                .await
                .with_context(|| format!("--metrics-bind {bind}"))?;
        }
        let mut session = Session::new(&self, progress, metrics);
        // Rows that never ran are in the summary as failed, so it is written whatever happened.
        let ran = session.run_rows(&cancel).await;
        let passed = session.finish(&self.configmaps).await?;
        watch.abort();
        ran.map(|()| passed)
    }
}

/// Cancels on SIGTERM, SIGINT and at the deadline.
fn watch_for_the_end(
    cancel: CancellationToken,
    deadline: Option<Duration>,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::spawn(async move {
        let over = async {
            match deadline {
                Some(deadline) => tokio::time::sleep(deadline).await,
                None => std::future::pending().await,
            }
        };
        let why = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = over => "the deadline has passed",
        };
        eprintln!("felix-bench: {why}: finishing with what is measured");
        cancel.cancel();
    }))
}

/// The results so far, and where they go.
struct Session<'a> {
    plan: &'a Plan,
    id: String,
    tool: Tool,
    environment: Environment,
    target_name: String,
    progress: Arc<Progress>,
    metrics: Arc<Metrics>,
    shown: Shown,
    lines: Vec<String>,
    rows: Vec<RowSummary>,
}

impl<'a> Session<'a> {
    fn new(plan: &'a Plan, progress: Arc<Progress>, metrics: Arc<Metrics>) -> Self {
        Self {
            plan,
            id: format!("{:016x}", rand::random::<u64>()),
            tool: Tool::this(),
            environment: Environment::read(),
            target_name: String::new(),
            shown: progress::show(progress.clone()),
            progress,
            metrics,
            lines: Vec::new(),
            rows: Vec::new(),
        }
    }

    async fn run_rows(&mut self, cancel: &CancellationToken) -> anyhow::Result<()> {
        let target = Target::from_args(&self.plan.args).await?;
        self.target_name.clone_from(&target.name);
        println!(
            "felix-bench {} on {}: {}",
            crate::environment::LONG_VERSION,
            target.name,
            self.environment.line()
        );
        println!("{}", table::heading());
        for row in &self.plan.rows {
            if cancel.is_cancelled() {
                self.record(
                    row,
                    "",
                    &outcome::failed(row, "not run: stopped before".into()),
                    0,
                )?;
                continue;
            }
            let started = jiff::Timestamp::now().to_string();
            let (measured, connections) = self.measure(&target, row, cancel).await;
            self.record(row, &started, &measured, connections)?;
        }
        println!("{}", table::legend());
        target.stop().await;
        Ok(())
    }

    /// One row on connections of its own, so that rows do not inherit each other's congestion windows.
    async fn measure(&mut self, target: &Target, row: &Row, cancel: &CancellationToken) -> (Measured, u32) {
        let args = &self.plan.args;
        let connections = if args.sub_conns == 0 {
            row.fanout
        } else {
            args.sub_conns.min(row.fanout)
        };
        let bench = tokio::select! {
            bench = self.connect(target, connections) => bench,
            () = cancel.cancelled() => Err(anyhow::anyhow!("stopped while connecting")),
        };
        let measured = match bench {
            Ok(bench) => {
                let measured = bench.measure(row, cancel).await;
                self.note_transport(&bench).await;
                bench.close().await;
                measured
            }
            Err(error) => Err(error),
        };
        (
            measured.unwrap_or_else(|error| outcome::failed(row, format!("{error:#}"))),
            connections,
        )
    }

    async fn connect(&self, target: &Target, connections: u32) -> anyhow::Result<Bench> {
        let args = &self.plan.args;
        let publisher = target.connect().await.context("connecting the publisher")?;
        let mut subscribers = Vec::with_capacity(connections as usize);
        for _ in 0..connections {
            subscribers.push(target.connect().await.context("connecting a subscriber")?);
        }
        Ok(Bench {
            publisher,
            subscribers,
            stream: args.stream.clone(),
            policy: target::policy(args.policy),
            await_delivery: args.await_delivery,
            stall: Duration::from_secs(args.stall_seconds),
            progress: self.progress.clone(),
        })
    }

    async fn note_transport(&mut self, bench: &Bench) {
        if let Some(stats) = bench.publisher.transport_stats().await {
            self.environment.mtu = stats.mtu_bytes.into();
        }
    }

    /// Shows a finished row and keeps it in all forms.
    fn record(
        &mut self,
        row: &Row,
        started: &str,
        measured: &Measured,
        connections: u32,
    ) -> anyhow::Result<()> {
        let (summary, detail) = (measured.summary(row), measured.detail(row));
        self.shown.clear();
        for warning in &detail.warnings {
            eprintln!("warning: {warning}");
        }
        println!("{}", table::line(&summary, &detail));
        self.metrics.observe(&summary);
        let line = ResultLine {
            schema: SCHEMA,
            kind: "latency".into(),
            session: self.id.clone(),
            started_at: started.into(),
            tool: self.tool.clone(),
            environment: self.environment.clone(),
            target: self.target_name.clone(),
            workload: self.workload(row, connections),
            result: summary.clone(),
            detail,
        };
        let line = serde_json::to_string(&line)?;
        if self.plan.args.print_json {
            println!("{line}");
        }
        if let Some(path) = &self.plan.args.json {
            append(path, &line)?;
        }
        self.lines.push(line);
        self.rows.push(summary);
        Ok(())
    }

    fn workload(&self, row: &Row, connections: u32) -> Workload {
        let args = &self.plan.args;
        let pacing = match (row.is_latency(), args.await_delivery) {
            (true, true) => "ack-and-delivery",
            (true, false) => "ack",
            (false, _) => "saturation",
        };
        Workload {
            warmup_records: row.warmup,
            value_bytes: row.value_bytes() as u64,
            subscriber_connections: connections,
            pacing: pacing.into(),
            policy: target::policy(args.policy)
                .map_or("stream", |policy| policy.as_str())
                .into(),
        }
    }

    /// Writes the summary; whether every row asked for ran and passed.
    async fn finish(mut self, configmaps: &[ConfigMap]) -> anyhow::Result<bool> {
        for row in self.plan.rows.iter().skip(self.rows.len()) {
            self.rows.push(outcome::failed(row, String::new()).summary(row));
        }
        let passed = self.rows.iter().all(|row| row.passed);
        if !configmaps.is_empty() {
            let summary = Summary {
                schema: SCHEMA,
                tool: self.tool,
                environment: self.environment,
                rows: self.rows,
                passed,
            };
            let summary = serde_json::to_string(&summary)?;
            results_configmap::write(configmaps, &self.lines, &summary).await?;
        }
        Ok(passed)
    }
}

/// Adds a line to a file that other invocations may also have written to.
fn append(path: &Path, line: &str) -> anyhow::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("opening --json {}", path.display()))?;
    writeln!(file, "{line}").with_context(|| format!("writing --json {}", path.display()))
}
