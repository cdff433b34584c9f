//! A broker as a process of its own.

use std::{
    ffi::OsStr,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use felix_client::Client;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

use super::within;

/// A running process; killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    /// Kept open, so that later log lines find a reader.
    _log: Lines<BufReader<ChildStderr>>,
    pub(crate) quic: SocketAddr,
    pub(crate) metrics: SocketAddr,
    pub(crate) admin: SocketAddr,
    data_dir: PathBuf,
}

/// A command without any variable of the caller's.
pub(crate) fn command(arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_felix-broker"));
    command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs a command that is expected to end by itself, and gives its status and what it said on standard error.
pub(crate) async fn run_to_end(mut command: Command) -> (ExitStatus, String) {
    let output = within(command.output()).await.unwrap();
    (
        output.status,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Starts a broker on a data directory, at the addresses of a former process or at ports of the system's choice.
pub(crate) async fn start(data_dir: &Path, at: Option<&Process>) -> Process {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let addresses = at.map_or([any; 3], |former| [former.quic, former.metrics, former.admin]);
    start_at(data_dir, addresses).await
}

/// Starts a broker on a data directory at three addresses: QUIC, metrics, admin.
pub(crate) async fn start_at(data_dir: &Path, addresses: [SocketAddr; 3]) -> Process {
    start_with(data_dir, addresses, &[]).await
}

/// Starts a broker at three addresses with further arguments.
pub(crate) async fn start_with(data_dir: &Path, addresses: [SocketAddr; 3], more: &[&str]) -> Process {
    let mut command = command(&[
        "--log-format".as_ref(),
        "json".as_ref(),
        "--data-dir".as_ref(),
        data_dir.as_ref(),
    ]);
    for (flag, address) in ["--quic-bind", "--metrics-bind", "--admin-bind"]
        .into_iter()
        .zip(addresses)
    {
        command.arg(flag).arg(address.to_string());
    }
    let mut child = command.args(more).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let fields = within(async {
        loop {
            let line = log
                .next_line()
                .await
                .unwrap()
                .expect("the broker says that it serves");
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if line["fields"]["message"] == "the broker serves" {
                return line["fields"].clone();
            }
        }
    })
    .await;
    let address = |name: &str| fields[name].as_str().unwrap().parse().unwrap();
    Process {
        child,
        quic: address("quic"),
        metrics: address("metrics"),
        admin: address("admin"),
        _log: log,
        data_dir: data_dir.to_owned(),
    }
}

impl Process {
    pub(crate) fn addresses(&self) -> [SocketAddr; 3] {
        [self.quic, self.metrics, self.admin]
    }

    pub(crate) fn ca_pem(&self) -> Vec<u8> {
        std::fs::read(self.data_dir.join("tls/ca.crt")).unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        let builder = Client::builder(&self.quic.to_string()).ca_pem(self.ca_pem());
        within(builder.server_name("localhost").unwrap().connect())
            .await
            .unwrap()
    }

    /// Kills the process as `kill -9` does.
    pub(crate) async fn kill(mut self) {
        within(self.child.kill()).await.unwrap();
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        within(self.child.wait()).await.unwrap()
    }
}
