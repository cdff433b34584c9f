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
    let running = Command::new(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(LIMIT, running)
        .await
        .with_context(|| format!("{program} {arguments:?} was not done in {LIMIT:?}"))?
        .with_context(|| format!("cannot start {program}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{printed}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(printed)
}
