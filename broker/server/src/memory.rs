//! The memory budget: how large it is, its shares, and the permits for requests under way.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Without a limit of the control group there is no telling what the machine can spare: enough for a few streams.
const DEFAULT_BUDGET: u64 = 512 << 20;
/// A limit above this is none: control groups without one report a number near the largest.
const NO_LIMIT: u64 = 1 << 50;

/// Streams that every connection may have open, whatever others do: who comes while others hold all places can still
/// publish and subscribe.
pub(crate) const OWN_STREAMS: usize = 2;
/// Bytes that a connection takes, its QUIC and TLS state and its tasks, and its own streams: `tests/small_pod` prints 42,369
/// without streams.
const CONNECTION_BYTES: u64 = (42 << 10) + OWN_STREAMS as u64 * STREAM_BYTES;
/// Bytes that an open QUIC stream takes: its task, its state in QUIC, a cursor or a place among the publishers.
const STREAM_BYTES: u64 = 8 << 10;
/// Bytes that a handshake takes beside the connection: TLS messages and keys of its own.
const HANDSHAKE_BYTES: u64 = 32 << 10;

/// The budget and its shares, in bytes.
///
/// | share | parts of 16 | what |
/// |---|---|---|
/// | rings | 5 | batches that streams keep, and what slow subscriptions pin beside them |
/// | in flight | 1 | batches being read from publishers |
/// | send | 2 | what QUIC holds until subscribers acknowledge it, and the batches that this pins |
/// | receive | 2 | what QUIC has received and nobody has read yet |
/// | connections | 5 | connections, three quarters, and what streams they have open beyond two each |
/// | handshakes | 1 | connections that are not established yet |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) rings: u64,
    pub(crate) in_flight: u64,
    pub(crate) send: u64,
    pub(crate) receive: u64,
    pub(crate) connections: u64,
    pub(crate) handshakes: u64,
}

impl Budget {
    /// Divides a budget of `total` bytes.
    pub(crate) fn new(total: u64) -> Self {
        let part = total / 16;
        Self {
            rings: total - 11 * part,
            in_flight: part,
            send: 2 * part,
            receive: 2 * part,
            connections: 5 * part,
            handshakes: part,
        }
    }

    /// Most connections that the share for them holds.
    pub(crate) fn max_connections(&self) -> usize {
        whole(self.connections * 3 / 4 / CONNECTION_BYTES)
    }

    /// Most open QUIC streams beyond [`OWN_STREAMS`] of each connection, all connections together.
    pub(crate) fn max_streams(&self) -> usize {
        whole(self.connections / 4 / STREAM_BYTES)
    }

    /// Most handshakes under way.
    pub(crate) fn max_handshakes(&self) -> usize {
        whole(self.handshakes / HANDSHAKE_BYTES)
    }

    /// Largest batch that is read: two fit at a time, so that one does not wait for all others.
    pub(crate) fn max_batch_bytes(&self) -> u64 {
        self.in_flight / 2
    }

    /// What connections, streams and handshakes take, by how many there are.
    pub(crate) fn connections_used(connections: usize, streams: usize) -> u64 {
        connections as u64 * CONNECTION_BYTES + streams as u64 * STREAM_BYTES
    }

    /// What handshakes take, by how many there are.
    pub(crate) fn handshakes_used(handshakes: usize) -> u64 {
        handshakes as u64 * HANDSHAKE_BYTES
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

fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
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

/// Permits for batches being read, one for each byte, for all connections or for one of them.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    all: Arc<Permits>,
    /// The part that one connection may have; `None` where this stands for all.
    own: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
struct Permits {
    semaphore: Arc<Semaphore>,
    total: u64,
    /// How many wait for permits.
    waiting: AtomicUsize,
}

/// The right to hold some bytes, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    _all: OwnedSemaphorePermit,
    _own: Option<OwnedSemaphorePermit>,
}

impl InFlight {
    pub(crate) fn new(bytes: u64) -> Self {
        let permits = whole(bytes).min(Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Permits {
                semaphore: Arc::new(Semaphore::new(permits)),
                total: permits as u64,
                waiting: AtomicUsize::new(0),
            }),
            own: None,
        }
    }

    /// The part that one connection may take: half, so that no connection alone can take all.
    pub(crate) fn for_connection(&self) -> Self {
        Self {
            all: Arc::clone(&self.all),
            own: Some(Arc::new(Semaphore::new(whole(self.all.total / 2)))),
        }
    }

    /// Takes the right to hold `bytes` if there is room at once.
    pub(crate) fn try_take(&self, bytes: u32) -> Option<InFlightPermit> {
        let own = match &self.own {
            Some(own) => Some(Arc::clone(own).try_acquire_many_owned(bytes).ok()?),
            None => None,
        };
        let all = Arc::clone(&self.all.semaphore)
            .try_acquire_many_owned(bytes)
            .ok()?;
        Some(InFlightPermit { _all: all, _own: own })
    }

    /// Waits for the right to hold `bytes`, first come, first served. `bytes` must not exceed half of all.
    pub(crate) async fn take(&self, bytes: u32) -> Option<InFlightPermit> {
        if let Some(permit) = self.try_take(bytes) {
            return Some(permit);
        }
        let own = match &self.own {
            Some(own) => Some(Arc::clone(own).acquire_many_owned(bytes).await.ok()?),
            None => None,
        };
        let _waiting = Waiting::new(&self.all.waiting);
        let all = Arc::clone(&self.all.semaphore)
            .acquire_many_owned(bytes)
            .await
            .ok()?;
        Some(InFlightPermit { _all: all, _own: own })
    }

    /// Whether somebody waits for what others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.all.waiting.load(Relaxed) > 0
    }

    /// Bytes held at present.
    pub(crate) fn used(&self) -> u64 {
        self.all.total - self.all.semaphore.available_permits() as u64
    }
}

/// Counts one that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        task::{Context, Waker},
    };

    use super::*;

    #[test]
    fn shares_add_up() {
        let budget = Budget::new(1001);
        let sum = budget.rings + budget.in_flight + budget.send + budget.receive;
        assert_eq!(sum + budget.connections + budget.handshakes, 1001);
    }

    #[test]
    fn a_small_pod_has_room_for_a_thousand_clients() {
        // Of a control group of 512 MiB.
        let budget = Budget::new(256 << 20);
        assert!(budget.max_connections() >= 1000, "{}", budget.max_connections());
        assert!(budget.max_streams() >= 2000, "{}", budget.max_streams());
        assert!(budget.max_handshakes() >= 500, "{}", budget.max_handshakes());
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
        assert!(in_flight.try_take(21).is_none() && in_flight.try_take(20).is_some());
        drop(permit);
        assert_eq!(in_flight.used(), 0);
        assert!(in_flight.take(100).await.is_some());
    }

    #[tokio::test]
    async fn no_connection_takes_all_and_who_waits_is_seen() {
        let in_flight = InFlight::new(100);
        let (one, other) = (in_flight.for_connection(), in_flight.for_connection());
        let held = one.take(50).await.unwrap();
        assert!(one.try_take(1).is_none(), "one connection has half");
        let _also_held = other.take(40).await.unwrap();
        assert!(!in_flight.is_short());
        let third = in_flight.for_connection();
        let mut waiting = Box::pin(third.take(20));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending() && in_flight.is_short());
        drop(held);
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
        assert!(!in_flight.is_short());
    }
}
