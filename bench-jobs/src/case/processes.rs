//! The processes of layout 2: this program again for a role, or somebody else's server.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::pace::STALL;
use super::role::{Answer, Ask};

/// Longest that a process takes to start, connect, or answer, beyond the time that is measured.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// This program in a role. It ends when this is dropped.
pub(super) struct Role {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Role {
    /// Starts one with a runtime of so many threads.
    pub(super) fn start(workers: usize) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut child = Command::new(program)
            .args(["role", "--workers", &workers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting this program again")?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).context("no pipes")?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    pub(super) async fn ask(&mut self, ask: &Ask) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(ask)?;
        line.push('\n');
        self.input
            .write_all(line.as_bytes())
            .await
            .context("asking a role")
    }

    pub(super) async fn answer(&mut self) -> anyhow::Result<Answer> {
        let line = tokio::time::timeout(PATIENCE + STALL, self.output.next_line())
            .await
            .context("a role did not answer")??
            .context("a role ended without an answer")?;
        let answer = serde_json::from_str(&line).with_context(|| format!("reading {line:?}"))?;
        if let Answer::Failed(why) = answer {
            bail!("{why}");
        }
        Ok(answer)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }
}

/// A server that tells by a line on standard error that it serves. It is killed when this is dropped.
pub(super) struct Server {
    child: Child,
}

impl Server {
    /// Starts a program without this one's environment and returns what `serving` finds in its lines.
    pub(super) async fn start<T>(
        program: &Path,
        arguments: Vec<String>,
        mut serving: impl FnMut(&str) -> Option<T>,
    ) -> anyhow::Result<(Self, T)> {
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let mut lines = BufReader::new(child.stderr.take().context("no pipe")?).lines();
        let mut last = String::new();
        let found = tokio::time::timeout(PATIENCE, async {
            while let Some(line) = lines.next_line().await? {
                if let Some(found) = serving(&line) {
                    return Ok(Some(found));
                }
                last = line;
            }
            anyhow::Ok(None)
        });
        let found = found
            .await
            .with_context(|| format!("{} did not say that it serves", program.display()))??
            .with_context(|| format!("{} ended; its last line: {last}", program.display()))?;
        // A pipe that nobody reads would stop it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok((Self { child }, found))
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }
}

/// The program of this name beside this one.
pub(super) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let path = own.with_file_name(name);
    if path.is_file() {
        Ok(path)
    } else {
        bail!(
            "{} does not exist: build it, or name it with --broker",
            path.display()
        )
    }
}
