//! The flags of `case` and `table`.

use std::path::PathBuf;

use clap::Args;
use felix_path::Faults;

use super::{bounded, pairs, seconds};
use crate::case::plan::{Case, Middle};

/// The best of 0, 64, 256 and 1,024 in three rounds of each at 256 B over TLS, by less than the runs of one differ.
const FLUSH_EVERY: u64 = 1024;

/// A process of a case in layout 2.
#[derive(Clone, Debug, Args)]
pub struct RoleArgs {
    /// Threads of its runtime.
    #[arg(long, default_value_t = 1, value_parser = threads)]
    pub workers: usize,
}

/// `felix-bench case`.
#[derive(Clone, Debug, Args)]
pub struct CaseArgs {
    /// What stands between publisher and subscribers.
    #[arg(long, value_enum)]
    pub target: Middle,
    /// 1: all in this process, on a runtime of two workers. 2: middle, publisher and subscribers are a process each.
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub layout: u8,
    /// Bytes of a record's value. The first 32 are the verification header.
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = payload)]
    pub payload: usize,
    /// Records that are sent in one piece.
    #[arg(long, value_name = "RECORDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub batch: u64,
    /// Subscribers, on a connection each; each gets every record.
    #[arg(long, value_name = "SUBSCRIBERS", default_value_t = 1, value_parser = many)]
    pub fanout: usize,
    /// Tasks that share one connection; each publishes a record, waits for its answer, and publishes the next.
    #[arg(long, value_name = "PUBLISHERS", default_value_t = 1, value_parser = many)]
    pub publishers: usize,
    /// One record in flight: the next leaves when all subscribers have the last and it is acknowledged. Tells latencies.
    #[arg(long)]
    pub acked: bool,
    /// Percent of datagrams that are lost between the ends and the middle, in both directions. Not for NATS.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub lost: f64,
    /// Percent of datagrams that are overtaken by up to 8 others.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub late: f64,
    /// Percent of datagrams that arrive twice.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub twice: f64,
    /// Puts the path between ends and middle also where it does nothing, to see what the path itself costs.
    #[arg(long)]
    pub through_path: bool,
    /// Felix: clients ask to meet on one thread of the broker, with `Builder::near_shard`. Does nothing to others: a relay has
    /// one thread, NATS no such choice.
    #[arg(long)]
    pub near_shard: bool,
    /// How long is measured, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// How long before that is published and not measured, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    pub warmup: f64,
    /// NATS: records after which the client's buffer is flushed; 0 leaves it to the client.
    #[arg(long, value_name = "RECORDS", default_value_t = FLUSH_EVERY)]
    pub flush_every: u64,
    /// Bytes of values that the publisher may be ahead of the slowest subscriber. Without it 8 MiB, and at most 64 MiB for
    /// all subscribers together.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub in_flight: Option<u64>,
    /// Layout 2: threads of the publisher, of the subscribers, and of a relay.
    #[arg(long, value_name = "THREADS", default_value_t = 1, value_parser = threads)]
    pub workers: usize,
    /// Felix in layout 2: the broker's program. Without it, `felix-broker` beside this one.
    #[arg(long, value_name = "FILE")]
    pub broker: Option<PathBuf>,
    /// Felix in layout 2: a further flag for the broker. May be repeated.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub broker_arg: Vec<String>,
    /// NATS: the server's program; `dev/nats/build` builds one.
    #[arg(long, value_name = "FILE", env = "FELIX_BENCH_NATS_SERVER")]
    pub nats_server: Option<PathBuf>,
}

impl CaseArgs {
    pub(crate) fn case(&self) -> Case {
        Case {
            middle: self.target,
            payload: self.payload,
            batch: self.batch,
            fanout: self.fanout,
            publishers: self.publishers,
            acked: self.acked,
            near_shard: self.near_shard,
            flush_every: self.flush_every,
            in_flight_bytes: self.in_flight,
            run: rand::random(),
        }
    }

    /// What the path between ends and middle does, where there is one.
    pub(crate) fn faults(&self) -> Option<Faults> {
        let faults = Faults {
            lost: self.lost / 100.0,
            late: self.late / 100.0,
            twice: self.twice / 100.0,
        };
        (self.through_path || faults != Faults::NONE).then_some(faults)
    }

    /// Why it cannot be measured, if it cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        let nats = matches!(self.target, Middle::Nats | Middle::NatsPlain);
        if nats && self.faults().is_some() {
            return Err(
                "NATS sends no datagrams: leave out --lost, --late, --twice and --through-path".into(),
            );
        }
        self.case().check(self.layout)
    }
}

/// `felix-bench table`.
#[derive(Clone, Debug, Args)]
pub struct TableArgs {
    /// Compare only where the name holds this text, for example `1to10-1024` or `layout1`; several texts with commas
    /// between them must all be in it. May be repeated. `--list` shows the names.
    #[arg(long, value_name = "TEXT,...")]
    pub only: Vec<String>,
    /// Show what would be compared.
    #[arg(long)]
    pub list: bool,
    /// Number of pairs for each comparison; fewer than 21 say little.
    #[arg(long, value_name = "PAIRS", default_value_t = 21, value_parser = pairs)]
    pub pairs: usize,
    /// How long each run measures, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Where the table is written, in Markdown.
    #[arg(short, long, value_name = "FILE", default_value = "table.md")]
    pub output: PathBuf,
    /// Where every run is kept, a JSON object a line. Appended to.
    #[arg(long, value_name = "FILE", default_value = "table.jsonl")]
    pub json: PathBuf,
    /// A command that measures a relay, one publisher to one subscriber, in writes of 64 KiB: this program's own must
    /// reach 0.95 of it. It prints `deliveredBytesPerSecond` in a JSON object, or a line with `NUMBER MB/s`.
    #[arg(long, value_name = "COMMAND")]
    pub reference: Option<String>,
    /// The same for a fan-out of one to ten.
    #[arg(long, value_name = "COMMAND")]
    pub reference_fanout: Option<String>,
    /// The broker's program. Without it, `felix-broker` beside this one.
    #[arg(long, value_name = "FILE")]
    pub broker: Option<PathBuf>,
    /// The NATS server's program; `dev/nats/build` builds one.
    #[arg(long, value_name = "FILE", env = "FELIX_BENCH_NATS_SERVER")]
    pub nats_server: Option<PathBuf>,
    /// Repeats the order and the resampling of a former run.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

fn payload(text: &str) -> Result<usize, String> {
    bounded(text, 0, 1 << 20)
}

/// A third at most, so that the three faults leave something.
fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of percent"))?;
    if (0.0..=33.0).contains(&percent) {
        Ok(percent)
    } else {
        Err("must be between 0 and 33".into())
    }
}

fn many(text: &str) -> Result<usize, String> {
    bounded(text, 1, 1000)
}

fn threads(text: &str) -> Result<usize, String> {
    bounded(text, 1, 64)
}
