//! Every setting of the broker: one table that gives flag, variable, YAML key, default and documentation the same name.

mod error;
mod sources;
mod value;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub use error::SettingsError;
pub use sources::{Invocation, command, read};
pub use value::{Bytes, LogFormat, LogLevel, Millis};
use value::{Kind, SettingValue};

/// One row of the table of settings.
pub(crate) struct Entry {
    /// The YAML key; flag and variable are derived from it.
    pub(crate) name: &'static str,
    /// Text that gives the default, or none if the broker finds one by itself.
    pub(crate) default: Option<&'static str>,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

impl Entry {
    /// `--data-dir` of `data_dir`.
    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// `FELIX_DATA_DIR` of `data_dir`.
    pub(crate) fn variable(&self) -> String {
        format!("FELIX_{}", self.name.to_ascii_uppercase())
    }

    /// The help without the line breaks of the source.
    pub(crate) fn description(&self) -> String {
        self.help.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Declares the struct and its table together, so that neither can have a setting that the other lacks.
macro_rules! settings {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty = $default:expr;)+) => {
        /// The effective settings of a broker.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $($(#[doc = $help])+ pub $name: $type,)+
        }

        impl Settings {
            pub(crate) const TABLE: &[Entry] = &[$(Entry {
                name: stringify!($name),
                default: $default,
                kind: <$type as SettingValue>::KIND,
                help: concat!($($help, " "),+),
            }),+];

            /// Builds the settings from texts, where `text` gives that of a name or `None`.
            fn from_texts<E>(mut text: impl FnMut(&'static str) -> Option<String>,
                             error: impl Fn(&'static str, String, String) -> E) -> Result<Self, E> {
                Ok(Self { $($name: {
                    let given = text(stringify!($name)).or($default.map(str::to_owned));
                    <$type as SettingValue>::from_text(given.as_deref())
                        .map_err(|expected| error(stringify!($name), given.unwrap_or_default(), expected))?
                },)+ })
            }

            /// Name and value of each setting, as YAML scalars.
            fn scalars(&self) -> Vec<(&'static str, serde_yaml::Value)> {
                vec![$((stringify!($name), self.$name.to_yaml())),+]
            }
        }
    };
}

settings! {
    /// Directory for identity, catalogue and keys. Made if it does not exist; locked while the broker runs.
    data_dir: PathBuf = Some("./felix-data");
    /// Identity of the cluster. Marks the data directory, and a directory of another cluster is refused. Unset: the
    /// directory's own, or a random one at the first start.
    cluster_id: Option<String> = None;
    /// Address and UDP port of the QUIC endpoint for clients.
    quic_bind: SocketAddr = Some("0.0.0.0:5000");
    /// Address and TCP port of /livez, /readyz and /metrics, without encryption.
    metrics_bind: SocketAddr = Some("0.0.0.0:8080");
    /// Address and TCP port of the admin API, with TLS and a bearer token.
    admin_bind: SocketAddr = Some("0.0.0.0:8443");
    /// PEM file with the server's certificate chain, read again when it changes. Unset: a CA of the broker's own is
    /// made in data_dir/tls, and clients are given its ca.crt.
    tls_cert: Option<PathBuf> = None;
    /// PEM file with the private key of tls_cert, read again when it changes.
    tls_key: Option<PathBuf> = None;
    /// File with the bearer token of the admin API, read again when it changes. Unset: a random one is kept in
    /// data_dir/admin/token.
    admin_token_file: Option<PathBuf> = None;
    /// Threads that serve clients, each with a socket of its own on the port of quic_bind. Unset: one for each core that
    /// the process may use, 16 at most; a limit of the control group counts. One where the system cannot steer datagrams.
    lanes: Option<u32> = None;
    /// Receive buffer to ask of the kernel for the UDP socket of each lane. What was granted is a metric.
    udp_recv_buffer: Bytes = Some("8MiB");
    /// Send buffer to ask of the kernel for the UDP socket of each lane. What was granted is a metric.
    udp_send_buffer: Bytes = Some("8MiB");
    /// Size in bytes of the first datagrams to clients on other machines. Unset: what the smallest interface carries, at
    /// most 6500. A path that carries less is found out at the cost of the first datagrams; 1200 avoids that.
    initial_mtu: Option<u32> = None;
    /// Size in bytes of the largest datagrams that are tried, 1200 to 6500. Unset: what the largest interface carries, at
    /// most 6500. A path that loses large datagrams without a word is found and survived; this avoids the try.
    mtu_upper_bound: Option<u32> = None;
    /// Packets that a client may receive before it must acknowledge them at once; none waits longer than 2 ms in any case.
    ack_eliciting_threshold: u32 = Some("20");
    /// Memory for rings, requests under way and connections. Unset: half of the memory limit of the control group,
    /// or 512MiB where there is none.
    memory_budget: Option<Bytes> = None;
    /// Largest record: key, headers and value together.
    max_record_bytes: Bytes = Some("1MiB");
    /// Most client connections at one time; fewer where memory_budget does not allow so many.
    max_connections: u32 = Some("10000");
    /// Longest time that a subscription with policy block may make publishers wait while it takes less than 16 KiB a
    /// second, in milliseconds. Then it is ended.
    block_timeout_ms: Millis = Some("20000");
    /// Longest time from SIGTERM to the end of deliveries under way, in milliseconds.
    shutdown_drain_timeout_ms: Millis = Some("20000");
    /// Form of log lines: text or json.
    log_format: LogFormat = Some("text");
    /// Least severe log lines to write: error, warn, info, debug or trace.
    log_level: LogLevel = Some("info");
}

/// Smallest memory budget: below it the fixed shares leave no room for a ring.
pub const MIN_MEMORY_BUDGET: u64 = 32 << 20;
/// Largest record that may be configured; a batch holds at least one record, and its length is 32 bits on the wire.
pub const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Most lanes: more threads than this gain nothing that a second broker would not, and each has buffers of its own.
pub const MAX_LANES: u8 = 64;
/// UDP buffers may be asked for in this range.
const UDP_BUFFER_RANGE: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 30);
/// Size of datagrams, in bytes of UDP payload, that every path of QUIC carries.
pub const SAFE_MTU: u16 = 1200;
/// Ten segments of GSO must fit the 65,507 bytes of a UDP datagram: above this size, delivery stalls for good.
pub const LARGEST_MTU: u16 = 6500;
/// Packets without an acknowledgement may be in this range: far above, a lost packet is noticed late.
const ACK_THRESHOLD_RANGE: std::ops::RangeInclusive<u32> = 0..=1000;
/// Most that `max_connections` may be.
pub(crate) const MAX_CONNECTIONS: u32 = 1_000_000;
/// Connections may be limited in this range.
const CONNECTION_RANGE: std::ops::RangeInclusive<u32> = 1..=MAX_CONNECTIONS;
/// A blocking subscription may be given a time in this range. Half as much again may pass before it is ended, which is
/// less than the minute after which clients give up a publish.
const BLOCK_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30);
/// The drain may be given a time in this range: an hour is longer than any sensible grace period.
const DRAIN_RANGE: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

impl Settings {
    /// The defaults, as an empty command line gives them.
    #[allow(clippy::expect_used, reason = "a test reads every default")]
    pub fn defaults() -> Self {
        Self::from_texts(
            |_| None,
            |name, value, expected| format!("{name} {value} {expected}"),
        )
        .expect("defaults are valid")
    }

    /// The effective settings as a YAML document that can be given back as a configuration file. No setting holds a
    /// secret itself: keys and tokens are in files that the settings name.
    pub fn to_yaml(&self) -> String {
        let given = self.scalars().into_iter().filter(|(_, value)| !value.is_null());
        let mapping: serde_yaml::Mapping = given.map(|(name, value)| (name.into(), value)).collect();
        serde_yaml::to_string(&mapping).unwrap_or_default()
    }

    /// Bounds, and settings that only make sense together. Gives name and remedy of the first that is wrong.
    fn check(&self) -> Result<(), (&'static str, String)> {
        self.check_network()?;
        if self
            .memory_budget
            .is_some_and(|budget| budget.0 < MIN_MEMORY_BUDGET)
        {
            return Err(("memory_budget", "32MiB or more".to_owned()));
        }
        if !(1..=MAX_RECORD_BYTES).contains(&self.max_record_bytes.0) {
            return Err(("max_record_bytes", "1 to 16MiB".to_owned()));
        }
        if !CONNECTION_RANGE.contains(&self.max_connections) {
            return Err(("max_connections", "1 to 1000000".to_owned()));
        }
        if !BLOCK_RANGE.contains(&self.block_timeout_ms.0) {
            return Err(("block_timeout_ms", "100 to 30000".to_owned()));
        }
        if !DRAIN_RANGE.contains(&self.shutdown_drain_timeout_ms.0) {
            return Err(("shutdown_drain_timeout_ms", "0 to 3600000".to_owned()));
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            let missing = if self.tls_cert.is_some() {
                "tls_key"
            } else {
                "tls_cert"
            };
            return Err((
                missing,
                "to be set, because tls_cert and tls_key belong together".to_owned(),
            ));
        }
        let valid_id = |id: &String| {
            (1..=63).contains(&id.len())
                && id
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if !self.cluster_id.as_ref().is_none_or(valid_id) {
            return Err(("cluster_id", "1 to 63 letters, digits and dashes".to_owned()));
        }
        Ok(())
    }

    fn check_network(&self) -> Result<(), (&'static str, String)> {
        if self
            .lanes
            .is_some_and(|lanes| !(1..=u32::from(MAX_LANES)).contains(&lanes))
        {
            return Err(("lanes", format!("1 to {MAX_LANES}")));
        }
        let buffers = [
            ("udp_recv_buffer", self.udp_recv_buffer),
            ("udp_send_buffer", self.udp_send_buffer),
        ];
        for (name, value) in buffers {
            if !UDP_BUFFER_RANGE.contains(&value.0) {
                return Err((name, "64KiB to 1GiB".to_owned()));
            }
        }
        let (smallest, largest) = (u32::from(SAFE_MTU), u32::from(LARGEST_MTU));
        let upper_bound = self.mtu_upper_bound.unwrap_or(largest);
        if !(smallest..=largest).contains(&upper_bound) {
            return Err(("mtu_upper_bound", format!("{smallest} to {largest}")));
        }
        let fits = |mtu: u32| (smallest..=upper_bound).contains(&mtu);
        if !self.initial_mtu.is_none_or(fits) {
            let expected = format!("{smallest} to {upper_bound}, no more than mtu_upper_bound");
            return Err(("initial_mtu", expected));
        }
        if !ACK_THRESHOLD_RANGE.contains(&self.ack_eliciting_threshold) {
            return Err(("ack_eliciting_threshold", "0 to 1000".to_owned()));
        }
        Ok(())
    }
}
