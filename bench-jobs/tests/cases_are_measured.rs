//! `felix-bench case` as it is run by hand: every target in every layout that needs no more than this workspace, and NATS
//! where `FELIX_BENCH_NATS_SERVER` names a server and the client is built in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::SystemTime;

use serde_json::Value;

/// How long is measured at first, in seconds: what is asked is whether it works, not how fast it is.
const SECONDS: f64 = 0.3;

/// Longest that is measured on a machine so busy that nothing arrives within less.
const SECONDS_MAX: f64 = 20.0;

fn case(flags: &str, seconds: f64) -> Output {
    Command::new(env!("CARGO_BIN_EXE_felix-bench"))
        .arg("case")
        .args(flags.split(' '))
        .args(["--warmup", "0.1", "--seconds", &seconds.to_string()])
        .output()
        .unwrap()
}

/// Runs a case and checks what every one must show.
#[track_caller]
fn measured(flags: &str) -> Value {
    let mut seconds = SECONDS;
    let mut output = case(flags, seconds);
    while seconds < SECONDS_MAX
        && String::from_utf8_lossy(&output.stderr).contains("nothing arrived in the window")
    {
        seconds *= 2.0;
        output = case(flags, seconds);
    }
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{flags}\n{out}\n{err}");
    let object: Value = serde_json::from_str(out.trim()).unwrap();
    assert_eq!(
        (&object["verified"], &object["dropped"]),
        (&true.into(), &0.into()),
        "{object}"
    );
    let deliveries = object["published"].as_u64().unwrap() * object["fanout"].as_u64().unwrap();
    assert_eq!(object["delivered"].as_u64(), Some(deliveries), "{object}");
    for figure in ["deliveredBytesPerSecond", "deliveriesPerSecond"] {
        assert!(object[figure].as_f64().unwrap() > 0.0, "{figure} in {object}");
    }
    object
}

/// When the newest file below a folder was changed.
fn newest(folder: &Path) -> SystemTime {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let changed = entries.map(|path| {
        if path.is_dir() {
            newest(&path)
        } else {
            path.metadata().unwrap().modified().unwrap()
        }
    });
    changed.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The broker's program beside this one, built if only this package was, or if it is older than its sources.
fn broker() -> String {
    let own = Path::new(env!("CARGO_BIN_EXE_felix-bench"));
    let broker = own.with_file_name("felix-broker");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker");
    let built = broker.metadata().and_then(|file| file.modified());
    if built.is_ok_and(|built| built > newest(&sources)) {
        return broker.display().to_string();
    }
    let mut build = Command::new(env!("CARGO"));
    build.args([
        "build",
        "--quiet",
        "--locked",
        "-p",
        "felix-broker",
        "--bin",
        "felix-broker",
    ]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "building felix-broker");
    broker.display().to_string()
}

#[test]
fn felix_in_one_process() {
    measured("--target felix --layout 1 --batch 64 --fanout 2");
    let latency = measured("--target felix --layout 1 --acked --fanout 2");
    assert!(latency["p50Nanoseconds"].as_u64() <= latency["p99Nanoseconds"].as_u64());
    assert!(latency["latencies"].as_u64().unwrap() > 0);
    measured("--target felix --layout 1 --publishers 8");
}

#[test]
fn felix_in_three_processes() {
    let broker = broker();
    measured(&format!(
        "--target felix --layout 2 --batch 64 --fanout 2 --broker {broker}"
    ));
    measured(&format!("--target felix --layout 2 --acked --broker {broker}"));
    measured(&format!(
        "--target felix --layout 2 --publishers 8 --broker {broker}"
    ));
}

#[test]
fn the_raw_relay() {
    for layout in [1, 2] {
        measured(&format!("--target relay --layout {layout} --batch 64 --fanout 2"));
        let latency = measured(&format!("--target relay --layout {layout} --acked --fanout 2"));
        assert!(latency["latencies"].as_u64().unwrap() > 0, "{latency}");
    }
}

#[test]
fn the_relay_with_our_ends() {
    for layout in [1, 2] {
        measured(&format!(
            "--target relay-ends --layout {layout} --batch 64 --payload 1024 --fanout 2"
        ));
        measured(&format!(
            "--target relay-ends --layout {layout} --acked --fanout 2"
        ));
        measured(&format!("--target relay-ends --layout {layout} --publishers 8"));
        measured(&format!("--target relay-ends --layout {layout} --fanout 20"));
    }
}

#[test]
fn behind_a_path_that_loses_reorders_and_doubles() {
    let broker = broker();
    for target in [
        "felix --layout 1".to_owned(),
        format!("felix --layout 2 --broker {broker}"),
        "relay --layout 2".to_owned(),
        "relay-ends --layout 2".to_owned(),
    ] {
        let object = measured(&format!(
            "--target {target} --batch 64 --lost 5 --late 5 --twice 5"
        ));
        for fault in ["datagrams", "lost", "late", "twice"] {
            assert!(object["path"][fault].as_u64().unwrap() > 0, "{fault} in {object}");
        }
    }
    let nothing = measured("--target relay --layout 1 --batch 64 --through-path");
    assert_eq!(nothing["path"]["lost"], 0, "{nothing}");
    assert!(nothing["path"]["datagrams"].as_u64().unwrap() > 0, "{nothing}");
}

#[cfg(feature = "nats")]
#[test]
fn nats_with_and_without_tls() {
    let Some(server) = std::env::var_os("FELIX_BENCH_NATS_SERVER") else {
        eprintln!("FELIX_BENCH_NATS_SERVER names no server: nothing to measure");
        return;
    };
    assert!(Path::new(&server).is_file(), "{server:?} is no file");
    for target in ["nats", "nats-plain"] {
        measured(&format!("--target {target} --batch 64 --fanout 2"));
        measured(&format!("--target {target} --acked --fanout 2"));
        measured(&format!("--target {target} --publishers 8"));
    }
}

#[test]
fn a_case_that_makes_no_sense_is_refused() {
    for (flags, remedy) in [
        ("--target nats --layout 1", "--layout 2"),
        ("--target nats --lost 1", "leave out --lost"),
        ("--target relay --late 34", "between 0 and 33"),
    ] {
        let output = case(flags, SECONDS);
        assert!(!output.status.success());
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains(remedy), "{err}");
    }
}
