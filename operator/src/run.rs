//! The `run` command: client, probes, access check, controllers, shutdown.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::{Client, Config};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    benchmark, cluster,
    config::RunArgs,
    context::Context,
    http::{self, Readiness},
    metrics::Metrics,
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
    let context = Arc::new(Context::new(client().await?, &args, metrics));
    // Probes are answered until the work has come to its end.
    let served = CancellationToken::new();
    let mut probes = tokio::spawn(http::serve(
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
        if wait_for_access(&context, &stop).await {
            readiness.set();
            work(&context, results, &stop).await;
        }
    };
    tokio::select! {
        () = work => {}
        ended = &mut probes => {
            ended.context("the probe server ended")?.with_context(|| format!("cannot serve at {}", args.http_bind))?;
            anyhow::bail!("the probe server ended");
        }
    }
    served.cancel();
    probes.await.context("the probe server ended")??;
    Ok(())
}

/// Without the client's own retries: a reconcile that fails is tried again as a whole, with fresh reads.
async fn client() -> anyhow::Result<Client> {
    let mut config = Config::infer()
        .await
        .context("no access to a Kubernetes API server")?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
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

/// Every controller, until `stop`; what is under way is finished.
async fn work(context: &Arc<Context>, results: benchmark::Results, stop: &CancellationToken) {
    tokio::join!(
        cluster::run(context.clone(), stop.clone()),
        stream::run(context.clone(), stop.clone()),
        benchmark::run(context.clone(), results, stop.clone()),
    );
}
