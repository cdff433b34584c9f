//! The process `felix-broker`: settings, one thread for each lane, one for HTTP and files, an orderly end on SIGTERM.

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use felix_broker::{
    LaneThreads, Server, logging,
    settings::{self, Invocation, Settings},
};
use tokio::{
    runtime::{self, Runtime},
    signal::unix::{SignalKind, signal},
};

fn main() -> ExitCode {
    let flags = settings::command().get_matches();
    let Invocation {
        settings,
        print_config,
    } = match settings::read(&flags, std::env::vars_os()) {
        Ok(invocation) => invocation,
        Err(error) => return fail(&error.into()),
    };
    if print_config {
        return match std::io::stdout().write_all(settings.to_yaml().as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.into()),
        };
    }
    logging::start(settings.log_format, settings.log_level);
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// One line that names the setting and the remedy; a log line may be hard to find in a crash loop.
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("felix-broker: {error:#}");
    ExitCode::FAILURE
}

fn run(settings: Settings) -> anyhow::Result<()> {
    let background = background_runtime()?;
    let lanes = LaneThreads::start(settings.lanes).context("starting the threads of the lanes")?;
    let handle = background.handle().clone();
    background.block_on(async move {
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let server = Server::start(settings, lanes.handles(), &handle).await?;
        let addresses = server.addresses();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            quic = %addresses.quic, lanes = server.lanes(), metrics = %addresses.metrics, admin = %addresses.admin,
            "the broker serves"
        );
        if let Some(path) = server.ca_file() {
            tracing::info!(ca = %path.display(), "clients need the certificate of the broker's own CA");
        }
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: the broker stops"),
            _ = interrupt.recv() => tracing::info!("SIGINT: the broker stops"),
        }
        server.shutdown().await;
        tracing::info!("the broker has stopped");
        Ok(())
    })
}

/// HTTP, probes and files on one thread of their own: they neither wait for a lane nor hold one up.
fn background_runtime() -> anyhow::Result<Runtime> {
    let mut builder = runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("felix-http").enable_all();
    builder.build().context("starting the runtime for HTTP")
}
