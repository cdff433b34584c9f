//! Helm, as a user runs it.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{Space, run};

/// The chart in this checkout.
#[must_use]
pub fn chart_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../charts/felix")
}

/// Runs `helm` with these arguments.
///
/// # Errors
/// If it is not on the PATH or fails.
pub async fn helm(arguments: &[&str]) -> Result<String> {
    run("helm", arguments)
        .await
        .context("helm (dev/kube builds one; `dev/kube shell` has it on its PATH)")
}

/// Installs the operator as release `felix`, watching its own namespace. The definitions are already there: every
/// scenario shares them, so no release may own them.
pub(crate) async fn install(space: &Space, values: &[&str]) -> Result<()> {
    let chart = chart_dir();
    let chart = chart.to_str().context("the checkout's path is not UTF-8")?;
    let mut arguments = vec![
        "install",
        "felix",
        chart,
        "--namespace",
        &space.name,
        "--wait",
        "--timeout",
        "3m",
    ];
    for value in ["crds.enabled=false"].iter().chain(values) {
        arguments.extend(["--set", value]);
    }
    helm(&arguments).await.map(drop)
}
