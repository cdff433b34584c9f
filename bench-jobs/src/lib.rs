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

use std::process::ExitCode;

use cli::Command;

/// Runs a command. 0: all passed; 1: a row failed or results could not be written; 2: the flags do not describe a run.
pub async fn run(command: Command) -> ExitCode {
    let done = match command {
        Command::Latency(args) => return session::run(*args).await,
        Command::Limits(args) => limits::run(&args).await.map_err(|error| (error, session::FAILED)),
        Command::Pairs(args) => pairs::run(&args).await.map_err(|error| (error, session::FAILED)),
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
