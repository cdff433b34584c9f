//! `felix-bench case`: one short measurement of one case, whatever stands between publisher and subscribers.
//!
//! Subscribers connect, then the publisher; it publishes until the window ends, and what arrives inside the window is the
//! figure: neither the ramp nor the drain is in it. Afterwards everything that was published must have arrived, once, in
//! order and unchanged, or the run has failed. In layout 1 all of it is in this process, on one runtime of two workers; in
//! layout 2 the middle, the publisher and all subscribers are a process each.

mod ends;
mod felix;
mod forwarder;
mod meter;
mod middle;
#[cfg(feature = "nats")]
mod nats;
#[cfg(not(feature = "nats"))]
#[path = "case/without_nats.rs"]
mod nats;
mod order;
mod pace;
pub(crate) mod plan;
mod processes;
mod raw;
pub(crate) mod role;
mod servers;

use std::path::{self, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use felix_path::{Counts, Path};

use crate::cli::CaseArgs;
use crate::clock::shared_ns;
use crate::cpu;
use ends::{Access, Publisher, Subscribers};
use meter::Delivered;
use pace::{Pace, Report};
use plan::{Case, Middle, Window};
use processes::{Role, Server};
use role::{Answer, Ask};

/// Measures a case and prints one JSON object. Fails, after printing, where something was lost or damaged.
pub(crate) async fn run(args: &CaseArgs) -> anyhow::Result<()> {
    let case = args.case();
    args.check().map_err(anyhow::Error::msg)?;
    let directory = tempfile::tempdir()?;
    let outcome = if args.layout == 1 {
        here(&case, args, directory.path()).await?
    } else {
        apart(&case, args, directory.path()).await?
    };
    println!("{}", outcome.object(&case, args.layout));
    if outcome.delivered.window_bytes == 0 {
        bail!("nothing arrived in the window: measure for longer");
    }
    if !outcome.delivered.faults.none() {
        bail!(
            "not everything arrived once, in order and unchanged: {:?}",
            outcome.delivered.faults
        );
    }
    Ok(())
}

/// What was found.
struct Outcome {
    window: Window,
    delivered: Delivered,
    published: u64,
    /// What the path between ends and middle did, where there is one.
    path: Option<Counts>,
    /// Processor time of all processes that took part, for the window.
    cpu: Duration,
}

impl Outcome {
    fn object(&self, case: &Case, layout: u8) -> serde_json::Value {
        let Self {
            window,
            delivered,
            published,
            path,
            cpu,
        } = self;
        let rate = delivered.window_bytes as f64 / window.seconds();
        let mut object = serde_json::json!({
            "target": case.middle,
            "layout": layout,
            "payloadBytes": case.payload,
            "batch": case.batch,
            "fanout": case.fanout,
            "publishers": case.publishers,
            "nearShard": case.near_shard,
            "seconds": window.seconds(),
            "deliveredBytesPerSecond": rate,
            "deliveriesPerSecond": rate / case.value_bytes() as f64,
            "cpuSecondsPerGigabyte": cpu::seconds_per_gigabyte(*cpu, delivered.window_bytes),
            "published": published,
            "delivered": delivered.records,
            "verified": delivered.faults.none(),
            "dropped": delivered.faults.dropped,
            "faults": delivered.faults,
        });
        if case.acked {
            object["p50Nanoseconds"] = delivered.p50_ns.into();
            object["p99Nanoseconds"] = delivered.p99_ns.into();
            object["latencies"] = delivered.latencies.into();
        }
        if let Some(Counts {
            taken,
            lost,
            late,
            twice,
        }) = path
        {
            object["path"] =
                serde_json::json!({"datagrams": taken, "lost": lost, "late": late, "twice": twice});
        }
        object
    }
}

/// Puts the path before the middle where one was asked for. It runs in this process.
fn path_before(access: &mut Access, case: &Case, args: &CaseArgs) -> anyhow::Result<Option<Path>> {
    let Some(faults) = args.faults() else {
        return Ok(None);
    };
    let path = Path::before(access.address, faults, case.run.into()).context("opening the path")?;
    access.address = path.address();
    Ok(Some(path))
}

fn window(args: &CaseArgs) -> Window {
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let begin_ns = shared_ns() + ns(args.warmup);
    Window {
        begin_ns,
        end_ns: begin_ns + ns(args.seconds),
    }
}

/// Layout 1: everything in this process.
async fn here(case: &Case, args: &CaseArgs, directory: &path::Path) -> anyhow::Result<Outcome> {
    let (mut access, running) = middle::start(case, directory).await?;
    let path = path_before(&mut access, case, args)?;
    let subscribers = Subscribers::open(case, &access).await?;
    let mut publisher = Publisher::open(case, &access).await?;
    let pace = Arc::new(Pace::new(case.in_flight()));
    let window = window(args);
    let following = subscribers.begin(case, window, Report::Here(pace.clone()));
    let cpu = tokio::spawn(used(window, || Ok(cpu::time())));
    let published = publisher.publish(case, window, &pace).await?;
    let delivered = following.finish(&published).await?;
    running.stop().await;
    Ok(Outcome {
        window,
        delivered,
        published: published.iter().sum(),
        path: path.map(|path| path.counts()),
        cpu: cpu.await??,
    })
}

/// Layout 2: a process each.
async fn apart(case: &Case, args: &CaseArgs, directory: &path::Path) -> anyhow::Result<Outcome> {
    let (middle, mut access) = Apart::start(case, args, directory).await?;
    let path = path_before(&mut access, case, args)?;
    let mut subscribers = Role::start(args.workers)?;
    let mut publisher = Role::start(args.workers)?;
    let connect = |access: &Access| (case.clone(), access.clone());
    let (role_case, role_access) = connect(&access);
    subscribers
        .ask(&Ask::Subscribe {
            case: role_case,
            access: role_access,
        })
        .await?;
    let Answer::Ready { .. } = subscribers.answer().await? else {
        bail!("subscribers answered out of turn");
    };
    let (role_case, role_access) = connect(&access);
    publisher
        .ask(&Ask::Publish {
            case: role_case,
            access: role_access,
        })
        .await?;
    let Answer::Ready { report_to } = publisher.answer().await? else {
        bail!("the publisher answered out of turn");
    };
    let pids = [middle.pid(), subscribers.pid(), publisher.pid()];
    let pids: Vec<u32> = pids.into_iter().flatten().collect();
    let window = window(args);
    subscribers.ask(&Ask::Begin { window, report_to }).await?;
    let Answer::Begun = subscribers.answer().await? else {
        bail!("subscribers answered out of turn");
    };
    let cpu = tokio::spawn(used(window, move || pids.iter().map(|pid| cpu::of(*pid)).sum()));
    let report_to = None;
    publisher.ask(&Ask::Begin { window, report_to }).await?;
    let Answer::Published(published) = publisher.answer().await? else {
        bail!("the publisher answered out of turn");
    };
    let total = published.iter().sum();
    subscribers.ask(&Ask::Finish { published }).await?;
    let Answer::Delivered(delivered) = subscribers.answer().await? else {
        bail!("subscribers answered out of turn");
    };
    Ok(Outcome {
        window,
        delivered,
        published: total,
        path: path.map(|path| path.counts()),
        cpu: cpu.await??,
    })
}

/// The middle as a process.
enum Apart {
    Role(Role),
    Server(Server),
}

impl Apart {
    async fn start(case: &Case, args: &CaseArgs, directory: &path::Path) -> anyhow::Result<(Self, Access)> {
        let (server, access) = match case.middle {
            Middle::Relay | Middle::RelayEnds => {
                return Self::start_role(case, args.workers, directory).await;
            }
            Middle::Felix => {
                let program = match &args.broker {
                    Some(program) => program.clone(),
                    None => processes::beside("felix-broker")?,
                };
                servers::felix(&program, &args.broker_arg, directory).await?
            }
            Middle::Nats | Middle::NatsPlain => {
                if !nats::AVAILABLE {
                    bail!("this felix-bench was built without NATS: build it with --features nats");
                }
                let program = args
                    .nats_server
                    .as_ref()
                    .context("--nats-server names no program; dev/nats/build builds one")?;
                servers::nats(program, case.middle == Middle::Nats, directory).await?
            }
        };
        Ok((Self::Server(server), access))
    }

    async fn start_role(
        case: &Case,
        workers: usize,
        directory: &path::Path,
    ) -> anyhow::Result<(Self, Access)> {
        let mut role = Role::start(workers)?;
        let (case, directory) = (case.clone(), PathBuf::from(directory));
        role.ask(&Ask::Serve { case, directory }).await?;
        let Answer::Serving(access) = role.answer().await? else {
            bail!("the relay answered out of turn");
        };
        Ok((Self::Role(role), access))
    }

    fn pid(&self) -> Option<u32> {
        match self {
            Self::Role(role) => role.pid(),
            Self::Server(server) => server.pid(),
        }
    }
}

/// Processor time between the ends of the window, by what `read` says at each.
async fn used(window: Window, read: impl Fn() -> anyhow::Result<Duration>) -> anyhow::Result<Duration> {
    sleep_until(window.begin_ns).await;
    let (begin, before) = (shared_ns(), read()?);
    sleep_until(window.end_ns).await;
    let (end, after) = (shared_ns(), read()?);
    // Sleeping is not exact: what was used in the time between the two looks, for the length of the window.
    let share = window.seconds() * 1e9 / end.saturating_sub(begin).max(1) as f64;
    Ok(after.saturating_sub(before).mul_f64(share))
}

async fn sleep_until(ns: u64) {
    tokio::time::sleep(Duration::from_nanos(ns.saturating_sub(shared_ns()))).await;
}
