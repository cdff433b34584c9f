//! Where a result was measured: host, limits, versions. A figure without these cannot be compared with another.

use std::net::UdpSocket;

use serde::{Deserialize, Serialize};

/// Version and commit, as `--version` prints them.
pub(crate) const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("FELIX_BUILD_COMMIT"), ")");

/// What the probe socket asks for, in bytes: the broker's default.
const UDP_BUFFER_ASKED_BYTES: usize = 8 << 20;

/// Which program measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tool {
    /// Version of the workspace.
    pub(crate) version: String,
    /// Commit it was built from, `unknown` where the build was not told.
    pub(crate) commit: String,
}

/// Where it measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Environment {
    /// Kernel release.
    pub(crate) kernel: String,
    /// Processors that this process may use.
    pub(crate) cpus: u64,
    /// Processor model, as the kernel names it.
    pub(crate) cpu_model: String,
    /// Node or host name.
    pub(crate) node: String,
    /// Memory limit of the control group, in bytes; 0 where there is none.
    pub(crate) memory_limit_bytes: u64,
    /// UDP receive buffer that a socket of this process is granted when it asks for 8 MiB, in bytes.
    pub(crate) udp_receive_granted_bytes: u64,
    /// UDP send buffer likewise, in bytes.
    pub(crate) udp_send_granted_bytes: u64,
    /// Largest datagram of the publisher's QUIC connection, in bytes, once known.
    pub(crate) mtu: u64,
    /// Version that the broker reports for itself, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) broker_version: Option<String>,
    /// Build profile of this program: figures of a debug build mean nothing.
    pub(crate) profile: String,
}

impl Tool {
    /// This program.
    pub(crate) fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            commit: env!("FELIX_BUILD_COMMIT").into(),
        }
    }
}

impl Environment {
    /// Reads what the host tells. What cannot be read is left empty rather than guessed.
    pub(crate) fn read() -> Self {
        let (receive, send) = granted_udp_buffers().unwrap_or_default();
        Self {
            kernel: file("/proc/sys/kernel/osrelease"),
            cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u64),
            cpu_model: cpu_model(&file("/proc/cpuinfo")),
            node: node_name(),
            memory_limit_bytes: memory_limit(),
            udp_receive_granted_bytes: receive,
            udp_send_granted_bytes: send,
            mtu: 0,
            broker_version: None,
            profile: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            }
            .into(),
        }
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} x {}, kernel {}, UDP buffers granted {} / {} (receive / send), {} build",
            self.cpus,
            self.cpu_model,
            self.kernel,
            mebibytes(self.udp_receive_granted_bytes),
            mebibytes(self.udp_send_granted_bytes),
            self.profile
        )
    }
}

/// The kernel doubles what it grants for its own bookkeeping, so what is read is halved.
fn granted_udp_buffers() -> std::io::Result<(u64, u64)> {
    let socket = socket2::Socket::from(UdpSocket::bind("127.0.0.1:0")?);
    socket.set_recv_buffer_size(UDP_BUFFER_ASKED_BYTES)?;
    socket.set_send_buffer_size(UDP_BUFFER_ASKED_BYTES)?;
    let halved = |read: usize| (read / 2).min(UDP_BUFFER_ASKED_BYTES) as u64;
    Ok((
        halved(socket.recv_buffer_size()?),
        halved(socket.send_buffer_size()?),
    ))
}

fn cpu_model(cpuinfo: &str) -> String {
    let named = |key: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    named("model name")
        .or_else(|| named("CPU part"))
        .unwrap_or_default()
}

/// In a Job the node's name is handed in by the downward API; elsewhere the host's name serves.
fn node_name() -> String {
    std::env::var("NODE_NAME").unwrap_or_else(|_| file("/proc/sys/kernel/hostname"))
}

/// Control group version 2, then 1. Version 1 says "no limit" with a number near 2^63.
fn memory_limit() -> u64 {
    [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .find_map(|path| file(path).parse::<u64>().ok())
    .filter(|limit| *limit < 1 << 60)
    .unwrap_or(0)
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_among_other_lines() {
        let text = "processor\t: 0\nvendor_id\t: X\nmodel name\t: Some CPU @ 2 GHz\nflags\t: a b\n";
        assert_eq!(cpu_model(text), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model(""), "");
    }

    #[test]
    fn a_socket_is_never_reported_above_what_it_asked_for() {
        let (receive, send) = granted_udp_buffers().unwrap();
        assert!(receive > 0 && receive <= UDP_BUFFER_ASKED_BYTES as u64);
        assert!(send > 0 && send <= UDP_BUFFER_ASKED_BYTES as u64);
    }
}
