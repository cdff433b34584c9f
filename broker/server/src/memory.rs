//! The memory budget: how large it is, its shares, and the permits for requests under way.

use std::{fs, path::Path, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Without a limit of the control group there is no telling what the machine can spare: enough for a few streams.
const DEFAULT_BUDGET: u64 = 512 << 20;
/// A limit above this is none: control groups without one report a number near the largest.
const NO_LIMIT: u64 = 1 << 50;

/// The budget and its shares, in bytes.
///
/// | share | part | what |
/// |---|---|---|
/// | rings | 5/8 | batches that streams keep, and what slow subscriptions pin beside them |
/// | in flight | 1/8 | batches being read from publishers |
/// | send | 1/8 | what QUIC holds until subscribers acknowledge it, beyond what the rings hold |
/// | receive | 1/8 | what QUIC has received and nobody has read yet |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) rings: u64,
    pub(crate) in_flight: u64,
    pub(crate) send: u64,
    pub(crate) receive: u64,
}

impl Budget {
    /// Divides a budget of `total` bytes.
    pub(crate) fn new(total: u64) -> Self {
        let part = total / 8;
        Self {
            rings: total - 3 * part,
            in_flight: part,
            send: part,
            receive: part,
        }
    }

    /// The budget for a process that was told none: half of what its control group allows.
    pub(crate) fn of_this_process() -> u64 {
        cgroup_limit(
            Path::new("/sys/fs/cgroup"),
            &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
        )
        .map_or(DEFAULT_BUDGET, |limit| limit / 2)
    }
}

/// The lowest memory limit of the control group and those above it, as far as this process can see them.
fn cgroup_limit(root: &Path, own: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        // In a container the path is that of the host, and the container's own group is at the top.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            limits.extend(fs::read_to_string(top.join(group).join(file)));
        }
    }
    let numbers = limits.iter().filter_map(|text| text.trim().parse::<u64>().ok());
    numbers.filter(|limit| *limit < NO_LIMIT).min()
}

/// Permits for batches being read, one for each byte.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    permits: Arc<Semaphore>,
    total: u64,
}

/// The right to hold some bytes, given back when it is dropped.
pub(crate) type InFlightPermit = OwnedSemaphorePermit;

impl InFlight {
    pub(crate) fn new(bytes: u64) -> Self {
        let permits = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .min(Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            total: permits as u64,
        }
    }

    /// Waits for the right to hold `bytes`, first come, first served. `bytes` must not exceed the total.
    pub(crate) async fn take(&self, bytes: u32) -> Option<InFlightPermit> {
        match Arc::clone(&self.permits).try_acquire_many_owned(bytes) {
            Ok(permit) => Some(permit),
            Err(_) => Arc::clone(&self.permits).acquire_many_owned(bytes).await.ok(),
        }
    }

    /// Bytes held at present.
    pub(crate) fn used(&self) -> u64 {
        self.total - self.permits.available_permits() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let budget = Budget::new(1001);
        assert_eq!(
            budget.rings + budget.in_flight + budget.send + budget.receive,
            1001
        );
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("pods/broker");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("pods/memory.max"), "1048576\n").unwrap();
        assert_eq!(cgroup_limit(root.path(), "0::/pods/broker\n"), Some(1 << 20));
        assert_eq!(cgroup_limit(root.path(), "0::/elsewhere\n"), None);
    }

    #[test]
    fn version_1_has_its_own_tree_and_a_number_for_none() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("memory")).unwrap();
        let file = root.path().join("memory/memory.limit_in_bytes");
        fs::write(&file, "9223372036854771712\n").unwrap();
        assert_eq!(cgroup_limit(root.path(), "4:memory:/host/path\n3:cpu:/x\n"), None);
        fs::write(&file, "536870912\n").unwrap();
        assert_eq!(
            cgroup_limit(root.path(), "4:memory:/host/path\n3:cpu:/x\n"),
            Some(512 << 20)
        );
    }

    #[tokio::test]
    async fn a_permit_is_given_back() {
        let in_flight = InFlight::new(100);
        let permit = in_flight.take(80).await.unwrap();
        assert_eq!(in_flight.used(), 80);
        drop(permit);
        assert_eq!(in_flight.used(), 0);
        assert!(in_flight.take(100).await.is_some());
    }
}
