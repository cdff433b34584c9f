//! Processes that a scenario starts: short commands, and the operator itself outside of the cluster.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::process::{Child, Command};

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// If it cannot be started, fails, or takes longer than ten minutes.
pub async fn run(program: &str, arguments: &[&str]) -> Result<String> {
    const LIMIT: Duration = Duration::from_secs(600);
    let running = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, running)
        .await
        .with_context(|| format!("{program} {arguments:?} was not done in {LIMIT:?}"))?
        .with_context(|| format!("cannot start {program}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{complaint}",
        output.status
    );
    Ok(printed)
}

/// The operator as a process of this machine.
pub struct OperatorProcess {
    child: Child,
}

impl OperatorProcess {
    /// Builds the operator of this checkout and returns the path of its binary, or the one that FELIX_OPERATOR names.
    ///
    /// # Errors
    /// If it does not build.
    pub async fn build() -> Result<PathBuf> {
        if let Some(binary) = std::env::var_os("FELIX_OPERATOR") {
            return Ok(PathBuf::from(binary));
        }
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let arguments = [
            "build",
            "--package",
            "felix-operator",
            "--bin",
            "felix-operator",
            "--message-format",
            "json",
        ];
        let printed = run(&cargo, &arguments).await?;
        let messages = printed
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut binaries = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
        binaries.next_back().context("cargo named no binary")
    }

    /// Starts it for one namespace; what it logs is appended to `log`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(binary: &Path, kubeconfig: &Path, namespace: &str, log: &Path) -> Result<Self> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(binary)
            .arg("run")
            .env("KUBECONFIG", kubeconfig)
            .env("FELIX_OPERATOR_NAMESPACE", namespace)
            .env("FELIX_OPERATOR_WATCH_NAMESPACES", namespace)
            .env("FELIX_OPERATOR_BROKER_IMAGE", "localhost/felix-broker:0.1.0")
            .env("FELIX_OPERATOR_BENCH_IMAGE", "localhost/felix-bench:0.1.0")
            .env("FELIX_OPERATOR_HTTP_BIND", "127.0.0.1:0")
            // The only one: the next one need not wait until the Lease of the one that was killed runs out.
            .env("FELIX_OPERATOR_LEADER_ELECTION", "false")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Self { child })
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// If it had exited by itself: then it was not the scenario that ended it.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the operator had exited by itself: {status}");
        }
        self.child.kill().await?;
        Ok(())
    }
}
