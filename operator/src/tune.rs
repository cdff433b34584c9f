//! The `tune-node` command: raises the UDP buffer limits of a node to what the FelixClusters ask for. Never lowers them.

use std::{
    fs::File,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::config::TuneNodeArgs;

/// How often files and limits are read again: other tools may lower the limits, and the kubelet replaces the files.
const INTERVAL: Duration = Duration::from_secs(5);
/// Where the kernel shows the limits of the network namespace that the reading thread is in.
const SYSCTLS: &str = "/proc/sys/net/core";

/// One limit and the file that says what it should be at least.
struct Limit {
    sysctl: PathBuf,
    wanted: PathBuf,
}

/// Raises the limits until SIGTERM, or once.
///
/// # Errors
/// Where the network namespace cannot be entered; with `--once` also where a limit cannot be raised.
pub fn tune_node(args: &TuneNodeArgs) -> anyhow::Result<()> {
    // Before any other thread exists: the namespace belongs to the thread.
    if let Some(path) = &args.netns {
        enter(path)?;
    }
    let limits = [
        Limit {
            sysctl: Path::new(SYSCTLS).join("rmem_max"),
            wanted: args.receive_file.clone(),
        },
        Limit {
            sysctl: Path::new(SYSCTLS).join("wmem_max"),
            wanted: args.send_file.clone(),
        },
    ];
    if args.once {
        return limits.iter().try_for_each(|limit| raise(limit).map(drop));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(keep_raised(&limits))
}

fn enter(path: &Path) -> anyhow::Result<()> {
    let namespace = File::open(path).with_context(|| format!("--netns {}", path.display()))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).with_context(|| {
        format!(
            "cannot enter the network namespace {}: a privileged container is needed",
            path.display()
        )
    })
}

async fn keep_raised(limits: &[Limit]) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut tick = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = tick.tick() => {}
        }
        for limit in limits {
            if let Err(error) = raise(limit) {
                tracing::warn!(error = format!("{error:#}"), "a limit was not raised");
            }
        }
    }
}

/// What was written, where something was.
fn raise(limit: &Limit) -> anyhow::Result<Option<i64>> {
    let Some(wanted) = wanted_bytes(&limit.wanted)? else {
        return Ok(None);
    };
    let now = read_bytes(&limit.sysctl)?;
    let Some(bytes) = raised(now, wanted) else {
        return Ok(None);
    };
    std::fs::write(&limit.sysctl, bytes.to_string())
        .with_context(|| format!("cannot write {bytes} to {}", limit.sysctl.display()))?;
    tracing::info!(sysctl = %limit.sysctl.display(), from = now, to = bytes, "raised");
    Ok(Some(bytes))
}

/// The new value, where the limit must be raised.
fn raised(now: i64, wanted: i64) -> Option<i64> {
    (wanted > now).then_some(wanted)
}

/// What the file asks for; nothing where there is no such file (no FelixCluster has asked yet).
fn wanted_bytes(path: &Path) -> anyhow::Result<Option<i64>> {
    match path.try_exists() {
        Ok(false) => Ok(None),
        Ok(true) | Err(_) => read_bytes(path).map(Some),
    }
}

fn read_bytes(path: &Path) -> anyhow::Result<i64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let bytes = text
        .trim()
        .parse::<i64>()
        .ok()
        .filter(|bytes| (0..=i64::from(i32::MAX)).contains(bytes));
    bytes.with_context(|| {
        format!(
            "{}: {:?} is not a number of bytes that the kernel takes",
            path.display(),
            text.trim()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(folder: &Path, now: &str, wanted: Option<&str>) -> Limit {
        let limit = Limit {
            sysctl: folder.join("rmem_max"),
            wanted: folder.join("receiveBytes"),
        };
        std::fs::write(&limit.sysctl, now).unwrap();
        if let Some(wanted) = wanted {
            std::fs::write(&limit.wanted, wanted).unwrap();
        }
        limit
    }

    #[test]
    fn a_limit_is_raised_and_never_lowered() {
        let folder = tempfile::tempdir().unwrap();
        let low = limit(folder.path(), "212992\n", Some("8388608"));
        assert_eq!(raise(&low).unwrap(), Some(8_388_608));
        assert_eq!(std::fs::read_to_string(&low.sysctl).unwrap(), "8388608");
        assert_eq!(raise(&low).unwrap(), None, "nothing is left to do");
        let high = limit(folder.path(), "16777216", Some("8388608\n"));
        assert_eq!(raise(&high).unwrap(), None);
        assert_eq!(std::fs::read_to_string(&high.sysctl).unwrap(), "16777216");
    }

    #[test]
    fn without_a_wish_nothing_is_done() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(raise(&limit(folder.path(), "212992", None)).unwrap(), None);
    }

    #[test]
    fn nonsense_in_the_file_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "8MiB", "-1", "9999999999"] {
            let error = raise(&limit(folder.path(), "212992", Some(text)))
                .unwrap_err()
                .to_string();
            assert!(error.contains("receiveBytes"), "{error}");
        }
    }
}
