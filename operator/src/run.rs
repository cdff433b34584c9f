//! The `run` command: client, probes, access check, controllers, shutdown.

use std::{convert::Infallible, sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::{Client, Config, client::ClientBuilder};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    benchmark, cluster,
    config::RunArgs,
    context::Context,
    finalizer,
    gate::{Gate, GateLayer},
    leader::Candidate,
    metrics::Metrics,
    probes::{self, Readiness},
    stream,
};

/// The wait before the access check is tried again.
const ACCESS_RETRY: Duration = Duration::from_secs(5);

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
/// Where it cannot start: no access to an API server, address in use.
pub fn run(args: RunArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run_until_stopped(args))
}

async fn run_until_stopped(args: RunArgs) -> anyhow::Result<()> {
    // More than one provider may be compiled in; this is the one that all of Felix uses.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone())?);

    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let results = benchmark::Results::register(&mut registry);
    let readiness = Readiness::default();
    let gate = Arc::new(if args.leader_election {
        Gate::closed()
    } else {
        Gate::open()
    });
    let context = Arc::new(Context::new(gated_client(gate.clone()).await?, &args, metrics));
    let candidate = if args.leader_election {
        Some(candidate(&args, &context, gate).await?)
    } else {
        None
    };
    // Probes are answered until the work has come to its end.
    let served = CancellationToken::new();
    let mut probing = tokio::spawn(probes::serve(
        args.http_bind,
        readiness.clone(),
        Arc::new(registry),
        served.clone(),
    ));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        scope = ?context.scope,
        namespace = %context.operator_namespace,
        cluster_domain = context.cluster_domain,
        "starting"
    );
    let work = async {
        if !wait_for_access(&context, &stop).await {
            return Ok(());
        }
        readiness.set();
        work_when_elected(&context, results, candidate, &stop).await
    };
    tokio::select! {
        ended = work => ended?,
        ended = &mut probing => {
            ended.context("the probe server ended")?.with_context(|| format!("cannot serve at {}", args.http_bind))?;
            anyhow::bail!("the probe server ended");
        }
    }
    served.cancel();
    probing.await.context("the probe server ended")??;
    Ok(())
}

/// Without the client's own retries: a reconcile that fails is tried again as a whole, with fresh reads.
async fn client_config() -> anyhow::Result<Config> {
    let mut config = Config::infer()
        .await
        .context("no access to a Kubernetes API server")?;
    config.default_retry = false;
    Ok(config)
}

async fn gated_client(gate: Arc<Gate>) -> anyhow::Result<Client> {
    Ok(ClientBuilder::try_from(client_config().await?)?
        .with_layer(&GateLayer(gate))
        .build())
}

async fn candidate(args: &RunArgs, context: &Context, gate: Arc<Gate>) -> anyhow::Result<Candidate> {
    let client = Client::try_from(client_config().await?)?;
    let identity = args.pod_name.clone().unwrap_or_else(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{host}-{}-{:08x}", std::process::id(), rand::random::<u32>())
    });
    Ok(Candidate::new(
        client,
        (&context.operator_namespace, &args.lease_name),
        identity,
        gate,
    ))
}

fn stop_on_signal(stop: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        stop.cancel();
    })
}

/// Waits until every watched kind can be listed. False: the operator was stopped before.
async fn wait_for_access(context: &Context, stop: &CancellationToken) -> bool {
    loop {
        match check_access(context).await {
            Ok(()) => return true,
            Err(error) => tracing::error!(%error, "a watched kind cannot be listed; trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(ACCESS_RETRY) => {}
        }
    }
}

async fn check_access(context: &Context) -> Result<(), kube::Error> {
    cluster::check_access(context).await?;
    stream::check_access(context).await?;
    benchmark::check_access(context).await
}

/// Works while elected, or at once where nobody is elected.
async fn work_when_elected(
    context: &Arc<Context>,
    results: benchmark::Results,
    candidate: Option<Candidate>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let Some(candidate) = candidate else {
        context.metrics.set_leader(true);
        work(context, results, stop).await;
        return Ok(());
    };
    context.metrics.set_leader(false);
    if !candidate.acquire(stop).await {
        return Ok(());
    }
    context.metrics.set_leader(true);
    let released = CancellationToken::new();
    let working = async {
        work(context, results, stop).await;
        released.cancel();
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        // A lost Lease drops what is under way and ends the process.
        held = candidate.hold(&released) => Ok(held?),
        never = working => match never {},
    }
}

/// Every controller, until `stop`; what is under way is finished.
async fn work(context: &Arc<Context>, results: benchmark::Results, stop: &CancellationToken) {
    tokio::join!(
        cluster::run(context.clone(), stop.clone()),
        stream::run(context.clone(), stop.clone()),
        benchmark::run(context.clone(), results, stop.clone()),
    );
    if let Err(error) = finalizer::let_go_with_own_namespace(context).await {
        tracing::warn!(%error, "finalizers may be left in the operator's namespace");
    }
}
