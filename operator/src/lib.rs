//! The Felix operator: keeps FelixClusters, FelixStreams and FelixBenchmarks as they are written.

mod apply;
mod benchmark;
mod broker_api;
mod cluster;
mod config;
mod context;
mod controllers;
mod difference;
mod events;
#[cfg(test)]
mod fake_api;
mod finalizer;
mod gate;
mod lasting;
mod leader;
mod metrics;
mod names;
mod probes;
mod retry;
mod run;
mod status;
mod stream;
mod tune;

pub use config::{Cli, Command, LogFormat, RunArgs, TuneNodeArgs};
pub use run::run;
pub use tune::tune_node;
