//! The Felix benchmark: the latency matrix, on loopback or in a Job.

mod arrivals;
mod chart;
pub mod cli;
mod clock;
mod cpu;
mod environment;
mod limits;
mod measure;
mod metrics;
mod outcome;
mod payload;
mod progress;
mod report;
mod results_configmap;
mod row;
mod session;
mod table;
mod target;
mod verify;

use std::process::ExitCode;

use cli::Command;

/// Runs a command. 0: all passed; 1: a row failed or results could not be written; 2: the flags do not describe a run.
pub async fn run(command: Command) -> ExitCode {
    match command {
        Command::Latency(args) => session::run(*args).await,
        Command::Limits(args) => match limits::run(&args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("felix-bench: {error:#}");
                ExitCode::from(session::FAILED)
            }
        },
        Command::Report(args) => match report::run(&args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("felix-bench: {error:#}");
                ExitCode::from(session::BAD_INPUT)
            }
        },
    }
}
