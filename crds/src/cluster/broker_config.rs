//! Settings of the brokers.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the brokers.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(self.initialMtu) || !has(self.mtuUpperBound) || self.initialMtu <= self.mtuUpperBound"
).message("config: lower initialMtu to at most mtuUpperBound"))]
pub struct BrokerConfigSpec {
    /// Threads that serve clients, 1 to 64. Absent: one for each core of the limit, 16 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub lanes: Option<i32>,
    /// Bytes of the first datagrams to clients on other machines. Absent: what the smallest interface carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1200, max = 6500))]
    pub initial_mtu: Option<i32>,
    /// Bytes of the largest datagrams that are tried. Absent: what the largest interface carries, at most 6500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1200, max = 6500))]
    pub mtu_upper_bound: Option<i32>,
    /// Packets that a client may receive before it must acknowledge them at once. Absent: the broker's default, 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub ack_eliciting_threshold: Option<i32>,
    /// Bytes that rings, requests under way and subscriptions may hold together. At least
    /// 32 MiB. Absent: a share of the memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 33_554_432, max = 1_099_511_627_776_i64))]
    pub memory_budget_bytes: Option<i64>,
    /// The largest record, in bytes, at most 16 MiB. 1 MiB by default.
    #[serde(default = "one_mebibyte")]
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub max_record_bytes: i64,
    /// How many clients may be connected to one broker. 10000 by default.
    #[serde(default = "ten_thousand")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: i32,
    /// How long a broker that is asked to stop lets its clients finish, in seconds. 20 by default.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 600))]
    pub drain_timeout_seconds: i32,
    /// The form of the log lines. json by default.
    #[serde(default)]
    pub log_format: LogFormat,
    /// The least severe log lines that are written. info by default.
    #[serde(default)]
    pub log_level: LogLevel,
}

impl Default for BrokerConfigSpec {
    fn default() -> Self {
        Self {
            lanes: None,
            initial_mtu: None,
            mtu_upper_bound: None,
            ack_eliciting_threshold: None,
            memory_budget_bytes: None,
            max_record_bytes: one_mebibyte(),
            max_connections: ten_thousand(),
            drain_timeout_seconds: twenty(),
            log_format: LogFormat::default(),
            log_level: LogLevel::default(),
        }
    }
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
    Text,
}

/// How severe a log line must be to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Errors alone.
    Error,
    /// And warnings.
    Warn,
    /// And what happens.
    #[default]
    Info,
    /// And how it happens.
    Debug,
    /// And each step of it.
    Trace,
}

fn twenty() -> i32 {
    20
}

fn ten_thousand() -> i32 {
    10_000
}

fn one_mebibyte() -> i64 {
    1 << 20
}
