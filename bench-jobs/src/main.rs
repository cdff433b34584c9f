//! `felix-bench`: parse, run, exit code; nothing else.

use std::process::ExitCode;

use clap::Parser;
use felix_bench::cli::Cli;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let runtime = match felix_bench::runtime(&cli.command) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("felix-bench: starting the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    // On a worker of the runtime: whoever runs on the main thread is woken across threads for every acknowledgement.
    let running = runtime.spawn(felix_bench::run(cli.command));
    runtime.block_on(running).unwrap_or(ExitCode::FAILURE)
}
