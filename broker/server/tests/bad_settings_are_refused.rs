//! A broker that is given what it cannot use says which setting it is and ends with a failure.

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

mod support;

use std::{ffi::OsStr, net::UdpSocket, path::Path};

use support::process::{command, run_to_end, start, start_with};
use tokio::process::Command;

fn with(arguments: &[&str]) -> Command {
    command(&arguments.iter().map(OsStr::new).collect::<Vec<_>>())
}

/// Arguments that would do, on a directory of the test's.
fn usable(data_dir: &Path) -> Vec<&str> {
    let any = "127.0.0.1:0";
    let directory = data_dir.to_str().unwrap();
    vec![
        "--data-dir",
        directory,
        "--quic-bind",
        any,
        "--metrics-bind",
        any,
        "--admin-bind",
        any,
    ]
}

async fn refused(command: Command, names: &str) {
    let (status, said) = run_to_end(command).await;
    assert!(!status.success(), "{names} was taken");
    assert!(said.contains(names), "{names} is not named in: {said}");
}

#[tokio::test]
async fn unknown_settings_and_wrong_types() {
    let directory = tempfile::tempdir().unwrap();
    refused(with(&["--no-such-flag"]), "--no-such-flag").await;
    refused(with(&["--max-connections", "many"]), "--max-connections").await;
    let mut variable = with(&usable(directory.path()));
    variable.env("FELIX_NO_SUCH", "1");
    refused(variable, "FELIX_NO_SUCH").await;
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, "quick_bind: 0.0.0.0:1\n").unwrap();
    refused(with(&["--config", file.to_str().unwrap()]), "quick_bind").await;
    std::fs::write(&file, "quic_bind: [1]\n").unwrap();
    refused(with(&["--config", file.to_str().unwrap()]), "quic_bind").await;
}

#[tokio::test]
async fn service_links_are_no_settings() {
    let mut printed = with(&["--print-config"]);
    printed
        .env("FELIX_PORT", "udp://10.96.0.1:5000")
        .env("FELIX_SERVICE_HOST", "10.96.0.1");
    printed.env("FELIX_MAX_CONNECTIONS", "7");
    let output = printed.output().await.unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("max_connections: 7"), "{printed}");
}

#[tokio::test]
async fn a_port_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut arguments = usable(directory.path());
    arguments[3] = &address;
    refused(with(&arguments), "quic_bind").await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (at, setting) in [(5, "metrics_bind"), (7, "admin_bind")] {
        let mut arguments = usable(directory.path());
        arguments[at] = &address;
        refused(with(&arguments), setting).await;
    }
}

#[tokio::test]
async fn a_port_of_another_broker_that_has_several_sockets_on_it() {
    let (directory, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let any = "127.0.0.1:0".parse().unwrap();
    let running = start_with(others.path(), [any; 3], &["--lanes", "4"]).await;
    let address = running.quic.to_string();
    for lanes in ["1", "4"] {
        let mut arguments = usable(directory.path());
        arguments[3] = &address;
        arguments.extend(["--lanes", lanes]);
        refused(with(&arguments), "quic_bind").await;
    }
    running.kill().await;
}

#[tokio::test]
async fn a_data_directory_that_is_locked_or_of_another_cluster_or_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let running = start(directory.path(), None).await;
    refused(with(&usable(directory.path())), "in use by another broker").await;
    running.kill().await;
    let mut arguments = usable(directory.path());
    arguments.extend(["--cluster-id", "another"]);
    refused(with(&arguments), "belongs to cluster").await;
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    refused(with(&usable(&file)), "data directory").await;
}

/// The tests may run as root, whom no permission stops: the kernel's own read-only directory does.
#[tokio::test]
async fn a_data_directory_that_is_not_writable() {
    refused(with(&usable(Path::new("/proc/felix-data"))), "make it writable").await;
}

#[tokio::test]
async fn a_missing_certificate_or_token() {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = usable(directory.path());
    arguments.extend(["--tls-cert", "/no/such.crt", "--tls-key", "/no/such.key"]);
    refused(with(&arguments), "/no/such.crt").await;
    let mut arguments = usable(directory.path());
    arguments.extend(["--tls-cert", "/no/such.crt"]);
    refused(with(&arguments), "tls_key").await;
    let mut arguments = usable(directory.path());
    arguments.extend(["--admin-token-file", "/no/such/token"]);
    refused(with(&arguments), "/no/such/token").await;
}
