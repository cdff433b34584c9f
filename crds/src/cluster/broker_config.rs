//! Settings of the brokers.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the brokers.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokerConfigSpec {
    /// Bytes that rings, requests under way and subscriptions may hold together. Absent: a share of the memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16_777_216, max = 1_099_511_627_776_i64))]
    pub memory_budget_bytes: Option<i64>,
    /// The largest record, in bytes. 1 MiB by default.
    #[serde(default = "one_mebibyte")]
    #[schemars(range(min = 1024, max = 67_108_864))]
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
