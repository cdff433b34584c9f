//! The settings of the operator: one struct, each value by a flag or an environment variable.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// The image of a default installation, without its tag.
const BROKER_IMAGE: &str = concat!("localhost/felix-broker:", env!("CARGO_PKG_VERSION"));
const BENCH_IMAGE: &str = concat!("localhost/felix-bench:", env!("CARGO_PKG_VERSION"));

/// The Felix operator.
#[derive(Debug, Parser)]
#[command(name = "felix-operator", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Keep FelixClusters, FelixStreams and FelixBenchmarks as they are written.
    Run(Box<RunArgs>),
    /// Raise the UDP buffer limits of a node to what the FelixClusters ask for, and keep them there.
    TuneNode(TuneNodeArgs),
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Settings of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Namespaces to look after, separated by commas, or `all`. Unset: the operator's own.
    #[arg(long, env = "FELIX_OPERATOR_WATCH_NAMESPACES", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// The operator's own namespace. Unset: that of its pod, or of the kubeconfig.
    #[arg(long, env = "FELIX_OPERATOR_NAMESPACE")]
    pub operator_namespace: Option<String>,
    /// The broker image of FelixClusters that name none.
    #[arg(long, env = "FELIX_OPERATOR_BROKER_IMAGE", default_value = BROKER_IMAGE)]
    pub broker_image: String,
    /// The image of benchmark Jobs.
    #[arg(long, env = "FELIX_OPERATOR_BENCH_IMAGE", default_value = BENCH_IMAGE)]
    pub bench_image: String,
    /// The domain of this Kubernetes, for example cluster.local. Unset: found in the resolver's search list.
    #[arg(long, env = "FELIX_OPERATOR_CLUSTER_DOMAIN")]
    pub cluster_domain: Option<String>,
    /// How often everything is looked at again although nothing changed, in seconds.
    #[arg(long, env = "FELIX_OPERATOR_RESYNC_SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub resync_seconds: u64,
    /// The namespace of the ConfigMap felix-udp-buffers, which the node tuner mounts. Unset: the operator's own.
    #[arg(long, env = "FELIX_OPERATOR_UDP_BUFFERS_NAMESPACE")]
    pub udp_buffers_namespace: Option<String>,
    /// Where /livez, /readyz and /metrics are served.
    #[arg(long, env = "FELIX_OPERATOR_HTTP_BIND", default_value = "0.0.0.0:8080")]
    pub http_bind: SocketAddr,
    /// Elect one working operator among several by a Lease in the operator's namespace. Without it there must be one
    /// replica only, which is gone before another starts.
    #[arg(long, env = "FELIX_OPERATOR_LEADER_ELECTION", default_value_t = false, action = clap::ArgAction::Set)]
    pub leader_election: bool,
    /// The name of the Lease by which they elect it. Two installations in one namespace need two names.
    #[arg(long, env = "FELIX_OPERATOR_LEASE_NAME", default_value = "felix-operator", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub lease_name: String,
    /// The name of the operator's pod, its identity in the election. Unset: made from host name and process id.
    #[arg(long, env = "FELIX_OPERATOR_POD_NAME")]
    pub pod_name: Option<String>,
    /// The form of the log lines.
    #[arg(long, env = "FELIX_OPERATOR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// The least severe log lines that are written: error, warn, info, debug or trace, or a filter such as
    /// `info,felix_operator=debug`.
    #[arg(long, env = "FELIX_OPERATOR_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

/// Settings of `tune-node`.
#[derive(Clone, Debug, Args)]
pub struct TuneNodeArgs {
    /// The network namespace to enter first, for example /host/proc/1/ns/net. Unset: the one it was started in.
    #[arg(long)]
    pub netns: Option<PathBuf>,
    /// A file with the wanted net.core.rmem_max in bytes (key receiveBytes of the ConfigMap felix-udp-buffers).
    #[arg(long)]
    pub receive_file: PathBuf,
    /// A file with the wanted net.core.wmem_max in bytes (key sendBytes of the ConfigMap felix-udp-buffers).
    #[arg(long)]
    pub send_file: PathBuf,
    /// Raise the limits once and exit.
    #[arg(long)]
    pub once: bool,
}

/// Which namespaces are looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every namespace.
    All,
    /// These.
    Namespaces(Vec<String>),
}

impl Scope {
    /// From the setting; `own` is the operator's namespace.
    pub(crate) fn new(watch_namespaces: &[String], own: &str) -> Self {
        let mut names: Vec<String> = watch_namespaces
            .iter()
            .map(|n| n.trim().to_owned())
            .filter(|n| !n.is_empty())
            .collect();
        if names.iter().any(|n| n == "all") {
            return Self::All;
        }
        if names.is_empty() {
            names.push(own.to_owned());
        }
        names.sort();
        names.dedup();
        Self::Namespaces(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn the_scope_is_the_own_namespace_unless_said_otherwise() {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(Scope::new(&[], "felix"), Scope::Namespaces(list(&["felix"])));
        assert_eq!(
            Scope::new(&list(&[""]), "felix"),
            Scope::Namespaces(list(&["felix"]))
        );
        assert_eq!(
            Scope::new(&list(&["b", " a", "b"]), "felix"),
            Scope::Namespaces(list(&["a", "b"]))
        );
        assert_eq!(Scope::new(&list(&["a", "all"]), "felix"), Scope::All);
    }
}
