//! The condition about UDP buffers tells the truth, and the node tuner makes it true without a restart. Needs the machine
//! that the nodes of `dev/kube` live on, and root on it: it binds the machine's network namespace to a file that pods can
//! be given, and puts the machine's limits back.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, ensure};
use felix_e2e::{Kind, QUICK, SLOW, Space, chart_dir, cluster, helm, run, scenario};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

const RECEIVE: &str = "/proc/sys/net/core/rmem_max";
const SEND: &str = "/proc/sys/net/core/wmem_max";

#[test]
fn the_tuner_turns_the_condition_true_without_a_restart() -> Result<()> {
    let _alone = super::alone();
    scenario("node-tuner", async |space| {
        let limits = Limits::read()?;
        let namespace = MachineNamespace::bind(space).await?;
        let outcome = tune(space, &limits, &namespace).await;
        // The tuner goes first, it would raise them again.
        let uninstalled = helm(&["uninstall", "felix", "--namespace", &space.name, "--wait"]).await;
        limits.restore().await?;
        namespace.release().await?;
        uninstalled?;
        ensure!(
            Limits::read()? == limits,
            "the machine's limits were not restored"
        );
        outcome
    })
}

async fn tune(space: &Space, limits: &Limits, namespace: &MachineNamespace) -> Result<()> {
    // Twice what the machine grants is more than a broker gets, on any machine.
    let asked = Limits {
        receive: limits.receive * 2,
        send: limits.send * 2,
    };
    let buffers = json!({ "udpBuffers": { "receiveBytes": asked.receive, "sendBytes": asked.send } });
    space.install_operator(&[]).await?;
    space.ready_cluster(&cluster("demo", &buffers), &[]).await?;
    let clamped = space
        .await_condition(
            (Kind::Cluster, "demo"),
            "UdpBuffersGranted",
            ("False", Some("Clamped")),
            QUICK,
        )
        .await?;
    check_reported(space, &clamped.data, &asked, limits).await?;
    let conditions = clamped.data["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let said = conditions
        .iter()
        .find(|condition| condition["type"] == "UdpBuffersGranted");
    let said = said
        .and_then(|condition| condition["message"].as_str())
        .unwrap_or_default();
    for figure in [asked.receive, limits.receive, asked.send, limits.send] {
        ensure!(
            said.contains(&figure.to_string()),
            "the message does not say {figure}: {said}"
        );
    }

    let broker = space.broker_pod("demo").await?;
    enable_tuner(space, namespace).await?;
    // A broker asks again every minute while it has less than it wants.
    let granted = space
        .await_condition((Kind::Cluster, "demo"), "UdpBuffersGranted", ("True", None), SLOW)
        .await?;
    check_reported(space, &granted.data, &asked, &asked).await?;
    let now = space.broker_pod("demo").await?;
    let restarts = |pod: &Pod| {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.clone())
            .unwrap_or_default();
        statuses
            .iter()
            .map(|container| container.restart_count)
            .sum::<i32>()
    };
    ensure!(
        now.uid() == broker.uid() && restarts(&now) == restarts(&broker),
        "the broker was restarted"
    );
    Ok(())
}

async fn enable_tuner(space: &Space, namespace: &MachineNamespace) -> Result<()> {
    let chart = chart_dir();
    let chart = chart.to_str().context("the checkout's path is not UTF-8")?;
    let netns = format!("nodeTuner.netns={}", namespace.path()?);
    let mut arguments = vec![
        "upgrade",
        "felix",
        chart,
        "--namespace",
        &space.name,
        "--reuse-values",
        "--wait",
    ];
    arguments.extend([
        "--timeout",
        "3m",
        "--set",
        "nodeTuner.enabled=true",
        "--set",
        &netns,
    ]);
    helm(&arguments).await.map(drop)
}

/// Status and metrics say these figures.
async fn check_reported(space: &Space, cluster: &Value, asked: &Limits, granted: &Limits) -> Result<()> {
    let buffers = &cluster["status"]["brokers"][0]["udpBuffers"];
    let samples = space.scrape("demo-broker-0", 8080).await?;
    for (direction, asked, granted) in [
        ("receive", asked.receive, granted.receive),
        ("send", asked.send, granted.send),
    ] {
        let status = &buffers[direction];
        ensure!(
            status["askedBytes"] == asked && status["grantedBytes"] == granted,
            "{direction}: asked {asked}, limit {granted}, status {status}"
        );
        for (name, value) in [
            ("felix_udp_buffer_asked_bytes", asked),
            ("felix_udp_buffer_granted_bytes", granted),
        ] {
            let sample = samples.value(name, &[("direction", direction)]);
            ensure!(
                sample == Some(value as f64),
                "{name} of {direction} is {sample:?}, expected {value}"
            );
        }
    }
    Ok(())
}

/// The machine's limits, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limits {
    receive: u64,
    send: u64,
}

impl Limits {
    fn read() -> Result<Self> {
        let value = |path: &str| -> Result<u64> { Ok(fs::read_to_string(path)?.trim().parse()?) };
        Ok(Self {
            receive: value(RECEIVE)?,
            send: value(SEND)?,
        })
    }

    async fn restore(&self) -> Result<()> {
        as_root(&[
            "sysctl",
            "-qw",
            &format!("net.core.rmem_max={}", self.receive),
            &format!("net.core.wmem_max={}", self.send),
        ])
        .await
    }
}

/// The machine's first network namespace, bound to a file.
struct MachineNamespace {
    file: PathBuf,
}

impl MachineNamespace {
    async fn bind(space: &Space) -> Result<Self> {
        let file = PathBuf::from(format!("/run/{}-netns", space.name));
        let namespace = Self { file };
        as_root(&["touch", namespace.path()?]).await?;
        as_root(&["mount", "--bind", "/proc/self/ns/net", namespace.path()?]).await?;
        Ok(namespace)
    }

    async fn release(&self) -> Result<()> {
        as_root(&["umount", self.path()?]).await?;
        as_root(&["rm", self.path()?]).await
    }

    fn path(&self) -> Result<&str> {
        self.file.to_str().context("not UTF-8")
    }
}

/// Runs a command as root: directly, or by sudo without a question.
async fn as_root(command: &[&str]) -> Result<()> {
    let root = run("id", &["-u"]).await?.trim() == "0";
    let arguments = if root {
        command.to_vec()
    } else {
        [&["sudo", "-n"], command].concat()
    };
    run(arguments[0], &arguments[1..]).await.map(drop)
}
