//! A broker as a process of its own.

use std::{
    ffi::OsStr,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use felix_client::Client;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
};

use super::{http::Api, within};

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
    start_by(command(&[]), data_dir, addresses, more).await
}

/// Starts a broker as a member of a control group, whose list of processes is `members`, with further arguments.
pub(crate) async fn start_in(members: &Path, data_dir: &Path, more: &[&str]) -> Process {
    // The shell joins the group and becomes the broker.
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ >\"$0\" && exec \"$@\""])
        .arg(members)
        .arg(env!("CARGO_BIN_EXE_felix-broker"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    start_by(command, data_dir, [any; 3], more).await
}

async fn start_by(
    mut command: Command,
    data_dir: &Path,
    addresses: [SocketAddr; 3],
    more: &[&str],
) -> Process {
    command.args(["--log-format", "json", "--data-dir"]).arg(data_dir);
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

    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn api(&self) -> Api {
        let token = std::fs::read_to_string(self.data_dir.join("admin/token")).unwrap();
        Api {
            address: self.admin,
            ca_pem: self.ca_pem(),
            token: token.trim().to_owned(),
        }
    }

    /// What the broker's metrics say.
    pub(crate) async fn metrics_text(&self) -> String {
        let stream = within(TcpStream::connect(self.metrics)).await.unwrap();
        let (mut sender, connection) = within(http1::handshake(TokioIo::new(stream))).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("/metrics")
            .header("host", "localhost")
            .body(Empty::<Bytes>::new())
            .unwrap();
        let answer = within(sender.send_request(request)).await.unwrap();
        let body = within(answer.into_body().collect()).await.unwrap();
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
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
