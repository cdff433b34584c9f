//! The operator is killed at each call by which it changes something, once before the call is forwarded and once after
//! it was done but not answered, and started again: what it ends with is what it ends with undisturbed.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result, ensure};
use felix_e2e::{
    CrashPoint, CrashProxy, Kind, Moment, OperatorProcess, QUICK, Space, USUAL, await_object, chart_dir,
    cluster, helm, normalised, poll, scenario,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use serde_json::{Value, json};

/// Looks, a fifth of a second apart, over which nothing may change for a run to count as over.
const STILL: usize = 12;

/// Runs in which a call may fail to come, before it counts as one that does not.
const ATTEMPTS: usize = 2;

type Objects = BTreeMap<String, Value>;

#[test]
fn create_survives_a_crash_at_every_call() -> Result<()> {
    scenario("crash-create", async |space| sweep(space, Phase::Create).await)
}

#[test]
fn template_change_survives_a_crash_at_every_call() -> Result<()> {
    scenario("crash-change", async |space| sweep(space, Phase::Change).await)
}

#[test]
fn delete_survives_a_crash_at_every_call() -> Result<()> {
    scenario("crash-delete", async |space| sweep(space, Phase::Delete).await)
}

/// What happens to the cluster while the operator is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Create,
    Change,
    Delete,
}

async fn sweep(space: &Space, phase: Phase) -> Result<()> {
    let mut lab = Lab::prepare(space, phase).await?;
    let clean = lab.clean_run(phase).await.context("the clean run")?;
    let calls = clean.calls.len();
    eprintln!("{phase:?}: N = {calls} calls change something");
    for (number, call) in clean.calls.iter().enumerate() {
        eprintln!("  {:>2} {call}", number + 1);
    }
    ensure!(calls > 0, "the clean run changed nothing");
    for (index, call) in clean.calls.iter().enumerate() {
        let occurrence = clean.calls[..=index]
            .iter()
            .filter(|earlier| *earlier == call)
            .count();
        for moment in [Moment::Before, Moment::After] {
            let point = CrashPoint {
                call: call.clone(),
                occurrence,
                moment,
            };
            let reached = lab.crash_at(phase, index + 1, &point, &clean.objects).await;
            if !reached.with_context(|| format!("{phase:?}, {point:?}"))? {
                // How often a status or an event is told again is a matter of timing.
                ensure!(
                    occurrence > 1 || call.contains("/events"),
                    "in {ATTEMPTS} runs never: {point:?}"
                );
                eprintln!("{phase:?}: no run came to {point:?}");
            }
        }
    }
    lab.process.kill().await
}

/// What an undisturbed run called and left.
struct Clean {
    calls: Vec<String>,
    objects: Objects,
}

/// An operator of this machine that reaches the API server through the proxy, with the rights that the chart gives.
struct Lab<'a> {
    space: &'a Space,
    proxy: CrashProxy,
    process: OperatorProcess,
    binary: PathBuf,
    kubeconfig: PathBuf,
    folder: tempfile::TempDir,
    /// Under Retain a deletion is the garbage collector's work alone; under Delete the operator has a part in it.
    deletion_policy: &'static str,
}

impl<'a> Lab<'a> {
    async fn prepare(space: &'a Space, phase: Phase) -> Result<Self> {
        let chart = chart_dir();
        let chart = chart.to_str().context("the checkout's path is not UTF-8")?;
        let mut arguments = vec![
            "template",
            "felix",
            chart,
            "--kube-version",
            "1.34.0",
            "--namespace",
            &space.name,
        ];
        for template in ["templates/serviceaccount.yaml", "templates/rbac.yaml"] {
            arguments.extend(["--show-only", template]);
        }
        space.apply_manifests(&helm(&arguments).await?).await?;
        let binary = OperatorProcess::build().await?;
        let user = format!("system:serviceaccount:{}:felix-operator", space.name);
        let proxy = CrashProxy::start(&user).await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        proxy.write_kubeconfig(&kubeconfig, &space.name)?;
        let log = folder.path().join("operator.log");
        let process = OperatorProcess::start(&binary, &kubeconfig, &space.name, &log)?;
        Ok(Self {
            space,
            proxy,
            process,
            binary,
            kubeconfig,
            folder,
            deletion_policy: if phase == Phase::Delete {
                "Delete"
            } else {
                "Retain"
            },
        })
    }

    async fn clean_run(&self, phase: Phase) -> Result<Clean> {
        let name = "crash-clean";
        self.lead_up_to(phase, name).await?;
        self.proxy.begin(None);
        self.act(phase, name).await?;
        let objects = self.settled(phase, name).await?;
        let calls = self
            .proxy
            .calls()
            .iter()
            .map(|call| call.replace(name, "NAME"))
            .collect();
        self.clear(name).await?;
        Ok(Clean { calls, objects })
    }

    /// Runs until a run comes to the point; tells whether one did.
    async fn crash_at(
        &mut self,
        phase: Phase,
        number: usize,
        point: &CrashPoint,
        clean: &Objects,
    ) -> Result<bool> {
        let moment = if point.moment == Moment::Before { "b" } else { "a" };
        for attempt in 1..=ATTEMPTS {
            let name = format!("crash-{number}-{moment}-{attempt}");
            if self.crash_run(phase, &name, point, clean).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One run that is disturbed if it comes to the point; tells whether it did. Either way it must end like the clean one.
    async fn crash_run(
        &mut self,
        phase: Phase,
        name: &str,
        point: &CrashPoint,
        clean: &Objects,
    ) -> Result<bool> {
        self.lead_up_to(phase, name).await?;
        self.proxy.begin(Some(CrashPoint {
            call: point.call.replace("NAME", name),
            ..point.clone()
        }));
        self.act(phase, name).await?;
        let reached = tokio::select! {
            () = self.proxy.stopped() => true,
            settled = self.settled(phase, name) => settled.map(|_| false)?,
        };
        if reached {
            self.restart().await?;
        }
        let mut seen = Objects::new();
        let equal = poll("what the clean run left", USUAL, async || {
            seen = normalised(self.space, name).await?;
            Ok((seen == *clean).then_some(()))
        });
        if let Err(error) = equal.await {
            return Err(error.context(differences(clean, &seen)).context(self.log()));
        }
        self.clear(name).await?;
        Ok(reached)
    }

    async fn restart(&mut self) -> Result<()> {
        let log = self.folder.path().join("operator.log");
        let next = || OperatorProcess::start(&self.binary, &self.kubeconfig, &self.space.name, &log);
        self.process.kill().await?;
        self.proxy.resume();
        self.process = next()?;
        Ok(())
    }

    /// Brings the cluster, undisturbed, to where the phase begins.
    async fn lead_up_to(&self, phase: Phase, name: &str) -> Result<()> {
        self.proxy.begin(None);
        if phase != Phase::Create {
            self.act(Phase::Create, name).await?;
            self.settled(Phase::Create, name).await?;
        }
        Ok(())
    }

    async fn act(&self, phase: Phase, name: &str) -> Result<()> {
        match phase {
            // On no node: the control plane alone is what this is about.
            Phase::Create => {
                let spec = json!({
                    "scheduling": { "nodeSelector": { "felix-e2e": "nowhere" } },
                    "storage": { "deletionPolicy": self.deletion_policy },
                });
                self.space.apply(Kind::Cluster, &cluster(name, &spec)).await?;
            }
            Phase::Change => {
                let change = json!({ "spec": { "resources": { "limits": { "memory": "320Mi" } } } });
                self.space.patch(Kind::Cluster, name, &change).await?;
            }
            Phase::Delete => {
                self.space
                    .felix(Kind::Cluster)
                    .delete(name, &DeleteParams::default())
                    .await?;
            }
        }
        Ok(())
    }

    /// Awaits that the phase is over: the operator has dealt with the present generation, and neither it nor what is
    /// there has moved for a while.
    async fn settled(&self, phase: Phase, name: &str) -> Result<Objects> {
        if phase == Phase::Delete {
            let api = self.space.felix(Kind::Cluster);
            await_object(&api, name, "the cluster is gone", QUICK, |c| {
                c.is_none().then_some(())
            })
            .await?;
        } else {
            self.space
                .await_condition((Kind::Cluster, name), "Ready", ("False", None), QUICK)
                .await?;
        }
        let (mut before, mut same) = ((0, Objects::new()), 0);
        poll("nothing moves any more", USUAL, async || {
            let now = (self.proxy.calls().len(), normalised(self.space, name).await?);
            same = if now == before { same + 1 } else { 0 };
            before = now;
            Ok((same >= STILL).then(|| before.1.clone()))
        })
        .await
    }

    /// Takes the cluster away. What deletion keeps stays until the namespace goes: every run has a name of its own. The
    /// buffers that the next cluster asks for must be a change again, and they are lowered only when somebody looks.
    async fn clear(&self, name: &str) -> Result<()> {
        const BUFFERS: &str = "felix-udp-buffers";
        self.space
            .delete_and_await(&self.space.felix(Kind::Cluster), name)
            .await?;
        let api = self.space.api::<ConfigMap>();
        api.delete(BUFFERS, &DeleteParams::default()).await?;
        await_object(&api, BUFFERS, "no cluster asks for buffers", QUICK, |buffers| {
            let receive = buffers?.data.as_ref()?.get("receiveBytes")?;
            (receive == "0").then_some(())
        })
        .await
    }

    /// The end of what the operator logged, without the spans of each line.
    fn log(&self) -> String {
        const LINES: usize = 30;
        let text = std::fs::read_to_string(self.folder.path().join("operator.log")).unwrap_or_default();
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split(",\"span\"").next().unwrap_or(line))
            .collect();
        format!(
            "end of the operator's log:\n{}",
            lines[lines.len().saturating_sub(LINES)..].join("\n")
        )
    }
}

fn differences(clean: &Objects, seen: &Objects) -> String {
    let mut text = String::from("differences:\n");
    for (name, expected) in clean {
        match seen.get(name) {
            None => text += &format!("- missing: {name}\n"),
            Some(object) if object != expected => {
                text += &format!("- {name}\n  expected {expected}\n  found    {object}\n");
            }
            Some(_) => {}
        }
    }
    for name in seen.keys().filter(|name| !clean.contains_key(*name)) {
        text += &format!("- left over: {name}\n");
    }
    text
}
