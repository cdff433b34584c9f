//! The settings of the brokers as their configuration file.

use felix_crds::{LogFormat, LogLevel};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value, json};

use super::metadata::owned;
use crate::{
    cluster::validate::ValidatedCluster,
    difference::hex_digest,
    names::{ADMIN_PORT, METRICS_PORT, QUIC_PORT, string_map},
};

/// Where the configuration, the certificate and the token are mounted.
pub(super) const CONFIG_FOLDER: &str = "/etc/felix";
/// Where the volume is mounted.
pub(super) const DATA_FOLDER: &str = "/var/lib/felix";
/// The key in the ConfigMap, and the file name.
pub(super) const CONFIG_FILE: &str = "config.yaml";

/// The ConfigMap.
pub(super) fn config_map(cluster: &ValidatedCluster) -> ConfigMap {
    ConfigMap {
        metadata: owned(cluster, cluster.names.config()),
        data: Some(string_map([(CONFIG_FILE, config_file(cluster).as_str())])),
        ..ConfigMap::default()
    }
}

/// A digest of what the brokers read: another digest is another pod template.
pub(super) fn digest(config: &ConfigMap) -> String {
    hex_digest(&json!(config.data))
}

fn config_file(cluster: &ValidatedCluster) -> String {
    let config = &cluster.config;
    let mut settings = Map::new();
    let mut set = |key: &str, value: Value| {
        settings.insert(key.to_owned(), value);
    };
    set("admin_bind", json!(format!("0.0.0.0:{ADMIN_PORT}")));
    set("admin_token_file", json!(format!("{CONFIG_FOLDER}/admin/token")));
    set("cluster_id", json!(cluster.cluster_id));
    set("data_dir", json!(DATA_FOLDER));
    set("log_format", json!(log_format(config.log_format)));
    set("log_level", json!(log_level(config.log_level)));
    set("max_connections", json!(config.max_connections));
    set("max_record_bytes", json!(config.max_record_bytes));
    if let Some(bytes) = config.memory_budget_bytes {
        set("memory_budget", json!(bytes));
    }
    // What is absent is left to the broker, so that the file of a cluster that does not ask for it stays as it is.
    for (name, value) in [
        ("ack_eliciting_threshold", config.ack_eliciting_threshold),
        ("initial_mtu", config.initial_mtu),
        ("lanes", config.lanes),
        ("mtu_upper_bound", config.mtu_upper_bound),
    ] {
        if let Some(value) = value {
            set(name, json!(value));
        }
    }
    set("metrics_bind", json!(format!("0.0.0.0:{METRICS_PORT}")));
    set("quic_bind", json!(format!("0.0.0.0:{QUIC_PORT}")));
    set("shutdown_drain_timeout_ms", json!(cluster.stop.drain * 1000));
    set("tls_cert", json!(format!("{CONFIG_FOLDER}/tls/tls.crt")));
    set("tls_key", json!(format!("{CONFIG_FOLDER}/tls/tls.key")));
    set("udp_recv_buffer", json!(cluster.udp_buffers.receive_bytes));
    set("udp_send_buffer", json!(cluster.udp_buffers.send_bytes));
    as_yaml(&settings)
}

/// One line a setting. JSON values are YAML values, and all of ours are scalars.
fn as_yaml(settings: &Map<String, Value>) -> String {
    let mut lines: Vec<String> = settings
        .iter()
        .map(|(key, value)| format!("{key}: {value}\n"))
        .collect();
    lines.sort();
    lines.concat()
}

fn log_format(format: LogFormat) -> &'static str {
    match format {
        LogFormat::Json => "json",
        LogFormat::Text => "text",
    }
}

fn log_level(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::test_support::validated;

    /// A setting that the broker does not know would keep it from starting.
    #[test]
    fn the_broker_knows_every_setting_that_is_written() {
        let mut cluster = validated();
        let smallest = config_file(&cluster);
        cluster.config.memory_budget_bytes = Some(1 << 26);
        cluster.config.ack_eliciting_threshold = Some(0);
        cluster.config.initial_mtu = Some(1400);
        cluster.config.lanes = Some(2);
        cluster.config.mtu_upper_bound = Some(6500);
        let full = config_file(&cluster);
        for line in [
            "ack_eliciting_threshold: 0",
            "initial_mtu: 1400",
            "lanes: 2",
            "mtu_upper_bound: 6500",
        ] {
            assert!(full.lines().any(|l| l == line), "{line} is not in\n{full}");
            assert!(!smallest.contains(line), "{line} was not asked for");
        }
        let page = include_str!("../../../../docs/src/settings.md");
        for line in full.lines() {
            let (name, _) = line.split_once(": ").unwrap();
            assert!(
                page.contains(&format!("`{name}`")),
                "{name} is not on the page of the broker's settings"
            );
        }
    }
}
