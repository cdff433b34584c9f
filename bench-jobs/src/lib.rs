//! The Felix benchmark: the latency matrix, on loopback or in a Job.

mod arrivals;
mod case;
mod chart;
pub mod cli;
mod clock;
mod cpu;
mod environment;
mod limits;
mod measure;
mod metrics;
mod outcome;
mod pairs;
mod payload;
mod progress;
mod report;
mod results_configmap;
mod row;
mod session;
mod table;
mod target;
mod verify;
mod yardstick;

use std::process::ExitCode;

use cli::Command;

/// The runtime that a command is measured on: what runs in one process has two workers, a role of a measurement between
/// processes has what it is told; the rest has a worker a core.
///
/// # Errors
/// The system refuses a thread.
pub fn runtime(command: &Command) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = match command {
        Command::Role(role) if role.workers <= 1 => tokio::runtime::Builder::new_current_thread(),
        Command::Role(_)
        | Command::Case(_)
        | Command::Latency(_)
        | Command::Limits(_)
        | Command::Pairs(_)
        | Command::Table(_)
        | Command::Report(_) => tokio::runtime::Builder::new_multi_thread(),
    };
    if let Command::Role(role) = command {
        builder.worker_threads(role.workers);
    }
    if let Command::Case(_) = command {
        builder.worker_threads(2);
    }
    builder.enable_all().build()
}

/// Runs a command. 0: all passed; 1: a row failed or results could not be written; 2: the flags do not describe a run.
pub async fn run(command: Command) -> ExitCode {
    let done = match command {
        Command::Latency(args) => return session::run(*args).await,
        Command::Limits(args) => limits::run(&args).await.map_err(|error| (error, session::FAILED)),
        Command::Pairs(args) => pairs::run(&args).await.map_err(|error| (error, session::FAILED)),
        Command::Case(args) => case::run(&args).await.map_err(|error| (error, session::FAILED)),
        Command::Table(args) => yardstick::run(&args)
            .await
            .map_err(|error| (error, session::FAILED)),
        Command::Role(_) => case::role::run().await.map_err(|error| (error, session::FAILED)),
        Command::Report(args) => report::run(&args).map_err(|error| (error, session::BAD_INPUT)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((error, code)) => {
            eprintln!("felix-bench: {error:#}");
            ExitCode::from(code)
        }
    }
}
