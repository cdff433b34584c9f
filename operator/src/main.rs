//! The binary: reads the command line, sets up the log, and does what it was asked.

use std::process::ExitCode;

use clap::Parser as _;
use felix_operator::{Cli, Command, LogFormat};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(args) => {
            start_log(args.log_format, &args.log_level).and_then(|()| felix_operator::run(*args))
        }
        Command::TuneNode(args) => {
            start_log(LogFormat::Text, "info").and_then(|()| felix_operator::tune_node(&args))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("felix-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_log(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(level)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => log.json().flatten_event(true).init(),
        LogFormat::Text => log.init(),
    }
    Ok(())
}
