//! The control group, with version 1 or 2 of the memory controller, and the broker in it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use felix_client::Client;
use hyper::Method;
use serde_json::{Value, json};

use crate::support::{
    metric,
    process::{self, Process},
    within,
};

const LIMIT: u64 = 512 << 20;
const TOP: &str = "/sys/fs/cgroup";

/// A broker in a control group; both end with it.
pub(crate) struct Pod {
    pub(crate) broker: Process,
    group: Group,
    data_dir: tempfile::TempDir,
}

struct Group {
    path: PathBuf,
    version: u8,
}

impl Pod {
    /// Starts a broker with further arguments.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let pod = Self::start_on(tempfile::tempdir().unwrap(), LIMIT, arguments).await;
        // The budget follows from the limit: the broker knows where it is.
        let rings = pod.metric("felix_memory_budget_bytes{share=\"rings\"}").await;
        assert_eq!(rings, LIMIT / 2 * 5 / 16);
        pod
    }

    /// Starts a broker on a data directory in a control group of `limit` bytes.
    pub(crate) async fn start_on(data_dir: tempfile::TempDir, limit: u64, arguments: &[&str]) -> Self {
        allow_many_files();
        let group = Group::make(limit);
        let broker = process::start_in(&group.path.join("cgroup.procs"), data_dir.path(), arguments).await;
        Self {
            broker,
            group,
            data_dir,
        }
    }

    /// Stops the broker and gives its data directory.
    pub(crate) async fn stop(self) -> tempfile::TempDir {
        assert!(self.broker.terminate().await.success());
        self.data_dir
    }

    /// Time that the broker has had a core, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.broker.id())).unwrap();
        // Fields are counted behind the name, which may hold anything. A tick is 10 ms on every Linux that matters.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
    }

    /// Creates a stream whose spec differs from the default by `fields`.
    pub(crate) async fn create_stream(&self, name: &str, fields: Value) {
        let body = json!({ "owner": "test", "spec": fields });
        let path = format!("/api/v1/streams/{name}");
        let (status, answer) = self.broker.api().call(Method::PUT, &path, Some(body)).await;
        assert!((200..300).contains(&status), "{status} {answer}");
    }

    /// Creates streams whose publishers a subscription with a window of 1 MiB may block.
    pub(crate) async fn create_blocking_streams(&self, names: &[&str], ring_bytes: u64) {
        for name in names {
            let slow = json!({ "windowBytes": 1 << 20, "allowBlock": true });
            let fields = json!({ "ringBytes": ring_bytes, "slowSubscriber": slow });
            self.create_stream(name, fields).await;
        }
    }

    /// A client that may have so much unread.
    pub(crate) async fn client(&self, unread_bytes: u64) -> Client {
        let builder = Client::builder(&self.broker.quic.to_string()).ca_pem(self.broker.ca_pem());
        let builder = builder
            .server_name("localhost")
            .unwrap()
            .unread_bytes(unread_bytes);
        within(builder.connect()).await.unwrap()
    }

    /// The value of a series.
    pub(crate) async fn metric(&self, series: &str) -> u64 {
        let text = self.broker.metrics_text().await;
        metric(&text, series).unwrap_or_else(|| panic!("no {series} in\n{text}"))
    }

    /// Waits until a series has a value that is `wanted`.
    pub(crate) async fn until_metric(&self, series: &str, wanted: impl Fn(u64) -> bool) {
        within(async { while !wanted(self.metric(series).await) {} }).await;
    }

    /// Bytes of the broker's memory that are not files.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.broker.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
    }

    /// What must hold at the end of each test: nobody was killed, and every share of the budget holds.
    pub(crate) async fn check(self) {
        let text = self.broker.metrics_text().await;
        for share in [
            "rings",
            "in_flight",
            "send",
            "receive",
            "connections",
            "handshakes",
        ] {
            let value =
                |what| metric(&text, &format!("felix_memory_{what}_bytes{{share=\"{share}\"}}")).unwrap();
            // A batch may come before others have given way.
            let (used, budget) = (value("used"), value("budget") + (1 << 20));
            assert!(used <= budget, "{share}: {used} of {budget}");
        }
        assert_eq!(self.group.kills(), 0, "somebody was killed for want of memory");
        eprintln!(
            "resident {} MiB, at most charged {} MiB of 512",
            self.resident_bytes() >> 20,
            self.group.peak().unwrap_or_default() >> 20
        );
        assert!(self.broker.terminate().await.success());
    }
}

impl Group {
    fn make(limit_bytes: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "felix-small-pod-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let (top, version) = if Path::new(TOP).join("memory/memory.limit_in_bytes").exists() {
            (Path::new(TOP).join("memory"), 1)
        } else {
            // Where it is given to children already, this changes nothing.
            fs::write(Path::new(TOP).join("cgroup.subtree_control"), "+memory").ok();
            (PathBuf::from(TOP), 2)
        };
        let group = Self {
            path: top.join(name),
            version,
        };
        fs::create_dir(&group.path).expect("making a control group needs root and the memory controller");
        let limit = if version == 1 {
            "memory.limit_in_bytes"
        } else {
            "memory.max"
        };
        fs::write(group.path.join(limit), limit_bytes.to_string()).unwrap();
        if version == 2 {
            // Absent where the kernel has no swap.
            fs::write(group.path.join("memory.swap.max"), "0").ok();
        }
        group
    }

    fn kills(&self) -> u64 {
        let file = if self.version == 1 {
            "memory.oom_control"
        } else {
            "memory.events"
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect("the kernel counts kills").trim().parse().unwrap()
    }

    fn peak(&self) -> Option<u64> {
        let file = if self.version == 1 {
            "memory.max_usage_in_bytes"
        } else {
            "memory.peak"
        };
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was just killed is in it for a moment longer; what is left is an empty directory.
        for _ in 0..1000 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// A thousand clients have a socket each.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}
