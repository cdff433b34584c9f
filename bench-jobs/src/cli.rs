//! The command line of `felix-bench`: the only place that names a flag, and the checks that need no network.

mod yardstick;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::row::{self, Preset, Row, RowError};
pub use yardstick::{CaseArgs, RoleArgs, TableArgs};

/// Measures Felix: publish to delivery latency and sustained rates, every delivery verified.
#[derive(Debug, Parser)]
#[command(name = "felix-bench", version = crate::environment::LONG_VERSION)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `felix-bench`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run rows of the latency matrix against a broker.
    Latency(Box<LatencyArgs>),
    /// Measure what this machine allows: UDP and QUIC echoes, a relay and a fan-out that do nothing else.
    Limits(LimitsArgs),
    /// Compare two commands by many short pairs in random order.
    Pairs(PairsArgs),
    /// Measure one case for a second or two: a broker, or what it is compared with.
    Case(Box<CaseArgs>),
    /// Compare the broker with relays and NATS, case by case, and hold the ratios against their bounds.
    Table(Box<TableArgs>),
    /// A process of a case in layout 2; it is told by its input what to do.
    #[command(hide = true)]
    Role(RoleArgs),
    /// Turn result lines into one self-contained HTML page.
    Report(ReportArgs),
}

/// What a subscriber asks the broker to do when it cannot keep up.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum PolicyChoice {
    /// Pace the publisher (lossless); falls back to the stream's default where the stream forbids it.
    Block,
    /// Use what the stream says. Any drop still fails the run.
    Stream,
}

/// `felix-bench latency`.
#[derive(Clone, Debug, Args)]
pub struct LatencyArgs {
    /// Records published before measuring starts; they are verified and never counted.
    #[arg(long, value_name = "RECORDS")]
    pub warmup: Option<u64>,
    /// Records measured. Without it, a row of batches is sized past the 64 MiB send window.
    #[arg(long, value_name = "RECORDS")]
    pub total: Option<u64>,
    /// Bytes of a record's value. The first 32 are the verification header, so 0 means the header alone.
    #[arg(long, value_name = "BYTES")]
    pub payload: Option<u32>,
    /// Subscribers; each gets every record.
    #[arg(long, value_name = "SUBSCRIBERS")]
    pub fanout: Option<u32>,
    /// Records in a batch. 1 measures latency, one record in flight; more measures sustained rate.
    #[arg(long, value_name = "RECORDS")]
    pub batch: Option<u32>,
    /// Accepted for habit's sake: Felix has one encoding, and it is binary.
    #[arg(long)]
    pub binary: bool,
    /// The whole matrix: payload 0, 256, 1024, 4096 by fan-out 1, 10 by batch 1, 64.
    #[arg(long, conflicts_with_all = ["preset", "row"])]
    pub all: bool,
    /// A named set of rows. `quick` is the default where no row is described.
    #[arg(long, value_enum, conflicts_with = "row")]
    pub preset: Option<Preset>,
    /// One row, for example `payload=1024,fanout=10,batch=64,total=200000,warmup=1000`. May be repeated.
    #[arg(long, value_name = "K=V,...")]
    pub row: Vec<String>,
    /// Broker to measure, `host:port`.
    #[arg(long, value_name = "HOST:PORT", requires = "ca", conflicts_with = "embedded")]
    pub address: Option<String>,
    /// PEM file with the certificate authority that the broker's certificate must chain to.
    #[arg(long, value_name = "FILE", requires = "address")]
    pub ca: Option<PathBuf>,
    /// Name the broker's certificate must carry. Without it, the host part of the address.
    #[arg(long, value_name = "NAME", requires = "address")]
    pub server_name: Option<String>,
    /// Stream to publish to and subscribe from. It must exist, except for an embedded broker.
    #[arg(long, value_name = "NAME", default_value = "felix-bench")]
    pub stream: String,
    /// Start a broker inside this process and measure that. The default where no address is given.
    #[arg(long)]
    pub embedded: bool,
    /// What subscribers ask for when they lag.
    #[arg(long, value_enum, default_value = "block")]
    pub policy: PolicyChoice,
    /// Connections that the subscribers share. 0 gives each its own.
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 0)]
    pub sub_conns: u32,
    /// At batch 1, also wait for all deliveries (not the ack alone) before the next record leaves.
    #[arg(long)]
    pub await_delivery: bool,
    /// Append one JSON line per row to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Print the JSON line of each row below it.
    #[arg(long)]
    pub print_json: bool,
    /// ConfigMap that takes `results.jsonl` and `summary.json`; further ones take what does not fit. Must exist.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub results_configmap: Vec<String>,
    /// Serve `/metrics` on this address while running.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_bind: Option<SocketAddr>,
    /// Stop after this many seconds; rows not finished count as failed.
    #[arg(long, value_name = "SECONDS")]
    pub deadline_seconds: Option<u64>,
    /// Fail a row in which nothing arrives for this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub stall_seconds: u64,
}

/// What `limits` can measure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Probe {
    /// A datagram there and back between two threads.
    UdpEcho,
    /// A message there and back over one QUIC stream.
    QuicEcho,
    /// Publisher, relay, one subscriber: one acknowledged message in flight.
    RelayLatency,
    /// The same with the fan-out's subscribers.
    FanoutLatency,
    /// Publisher, relay, one subscriber: as much as goes through.
    RelayBulk,
    /// The same with the fan-out's subscribers.
    FanoutBulk,
}

/// `felix-bench pairs`.
#[derive(Clone, Debug, Args)]
pub struct PairsArgs {
    /// First command, run by `sh -c`. It prints a JSON object; the last one counts.
    #[arg(long, value_name = "COMMAND")]
    pub a: String,
    /// Second command.
    #[arg(long, value_name = "COMMAND")]
    pub b: String,
    /// Where the figure stands in the object, for example `result.deliveredBytesPerSecond`.
    #[arg(long, value_name = "PATH")]
    pub field: String,
    /// Where a second figure stands that is compared likewise, for example processor time.
    #[arg(long, value_name = "PATH")]
    pub cost: Option<String>,
    /// Number of pairs; fewer than 21 say little.
    #[arg(long, value_name = "PAIRS", default_value_t = 21, value_parser = pairs)]
    pub pairs: usize,
    /// Append every pair to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Repeats the order and the resampling of a former run.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

fn pairs(text: &str) -> Result<usize, String> {
    bounded(text, 1, 10_000)
}

/// `felix-bench limits`.
#[derive(Clone, Debug, Args)]
pub struct LimitsArgs {
    /// How long each probe runs, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Bytes of a message of the latency probes.
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = parse_size)]
    pub payload: usize,
    /// Bytes of a write of the bulk probes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = parse_size)]
    pub chunk: usize,
    /// Subscribers of the fan-out.
    #[arg(long, value_name = "SUBSCRIBERS", default_value_t = 10, value_parser = subscribers)]
    pub fanout: usize,
    /// Run this probe alone.
    #[arg(long, value_enum)]
    pub probe: Option<Probe>,
    /// Print one JSON object a probe instead of a line for people.
    #[arg(long)]
    pub json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if (0.05..=600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("must be between 0.05 and 600".into())
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    bounded(text, 1, 16 << 20)
}

fn subscribers(text: &str) -> Result<usize, String> {
    bounded(text, 1, 1000)
}

fn bounded(text: &str, min: usize, max: usize) -> Result<usize, String> {
    let number: usize = text
        .parse()
        .map_err(|_| format!("{text:?} is not a whole number"))?;
    if (min..=max).contains(&number) {
        Ok(number)
    } else {
        Err(format!("must be between {min} and {max}"))
    }
}

/// `felix-bench report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Files of result lines, as written by `--json` or found in the results ConfigMap.
    #[arg(required = true, value_name = "RESULTS.jsonl")]
    pub results: Vec<PathBuf>,
    /// Page to write.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Show all sessions found, not only the latest.
    #[arg(long)]
    pub all_sessions: bool,
}

impl LatencyArgs {
    /// The rows asked for, checked. Fails where a row is out of bounds or `--row` cannot be read.
    pub fn rows(&self) -> Result<Vec<Row>, RowError> {
        if !self.row.is_empty() {
            return self.row.iter().map(|text| row::parse(text)).collect();
        }
        if self.all {
            return Ok(self.overridden(row::preset(Preset::Full)));
        }
        if let Some(preset) = self.preset {
            return Ok(self.overridden(row::preset(preset)));
        }
        let described =
            self.payload.is_some() || self.fanout.is_some() || self.batch.is_some() || self.total.is_some();
        if !described {
            return Ok(self.overridden(row::preset(Preset::Quick)));
        }
        let row = Row::sized(
            self.payload.unwrap_or(0),
            self.fanout.unwrap_or(1),
            self.batch.unwrap_or(1),
            self.total,
            self.warmup,
        )?;
        Ok(vec![row])
    }

    /// `--total` and `--warmup` beside a preset replace the preset's own figures.
    fn overridden(&self, mut rows: Vec<Row>) -> Vec<Row> {
        for row in &mut rows {
            row.total = self.total.unwrap_or(row.total);
            row.warmup = self.warmup.unwrap_or(row.warmup);
        }
        rows
    }

    /// How long the whole run may take.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline_seconds.map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(args: &[&str]) -> Box<LatencyArgs> {
        let line = ["felix-bench", "latency"].iter().chain(args);
        let Command::Latency(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not a latency command")
        };
        args
    }

    #[test]
    fn the_seeds_flags_describe_one_row() {
        let args = latency(&[
            "--warmup",
            "500",
            "--total",
            "20000",
            "--payload",
            "1024",
            "--fanout",
            "10",
            "--batch",
            "64",
            "--binary",
        ]);
        let rows = args.rows().unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].payload, rows[0].fanout, rows[0].batch), (1024, 10, 64));
        assert_eq!((rows[0].total, rows[0].warmup), (20_000, 500));
    }

    #[test]
    fn all_is_the_matrix_of_sixteen() {
        assert_eq!(latency(&["--all", "--embedded"]).rows().unwrap().len(), 16);
    }

    #[test]
    fn nothing_described_is_the_quick_preset() {
        assert_eq!(latency(&[]).rows().unwrap(), row::preset(Preset::Quick));
    }

    #[test]
    fn an_address_needs_a_ca() {
        assert!(Cli::try_parse_from(["felix-bench", "latency", "--address", "a:1"]).is_err());
        assert!(Cli::try_parse_from(["felix-bench", "latency", "--all", "--row", "payload=1"]).is_err());
    }
}
