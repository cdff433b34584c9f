//! `summary.json`, as the benchmark's Job leaves it in the results ConfigMap, and its copy for the status.

use felix_crds::{BenchmarkEnvironment, LatencyResult};
use serde::Deserialize;

/// The key of the results ConfigMap that holds the summary.
pub(crate) const SUMMARY_KEY: &str = "summary.json";

/// The version of the document that is understood.
const SCHEMA: u32 = 1;

/// The most rows that a status holds.
const MAX_ROWS: usize = 64;

/// A summary that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SummaryError {
    /// The text is not the document that was expected.
    #[error("{SUMMARY_KEY} cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A later benchmark wrote it.
    #[error("{SUMMARY_KEY} has schema {found}, this operator reads {SCHEMA}: use images of one version")]
    OtherSchema {
        /// The schema that it names.
        found: u32,
    },
}

/// What a run measured and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Whether every row passed.
    pub(crate) passed: bool,
    /// The figures, row by row.
    pub(crate) rows: Vec<LatencyResult>,
    /// Where the run took place.
    pub(crate) environment: BenchmarkEnvironment,
}

impl Summary {
    /// Reads the document.
    pub(crate) fn parse(text: &str) -> Result<Self, SummaryError> {
        let document: Document = serde_json::from_str(text)?;
        if document.schema != SCHEMA {
            return Err(SummaryError::OtherSchema {
                found: document.schema,
            });
        }
        Ok(Self {
            passed: document.passed && document.rows.iter().all(|row| row.passed),
            rows: document.rows.into_iter().take(MAX_ROWS).collect(),
            environment: environment(document.tool, document.environment),
        })
    }
}

#[derive(Deserialize)]
struct Document {
    schema: u32,
    tool: Tool,
    environment: Environment,
    rows: Vec<LatencyResult>,
    passed: bool,
}

#[derive(Deserialize)]
struct Tool {
    version: String,
    commit: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Environment {
    kernel: String,
    cpus: i64,
    cpu_model: String,
    node: String,
    udp_receive_granted_bytes: i64,
    udp_send_granted_bytes: i64,
    mtu: i64,
}

/// What the Job could not find out it left empty; the status then leaves it out.
fn environment(tool: Tool, found: Environment) -> BenchmarkEnvironment {
    BenchmarkEnvironment {
        tool_version: text(tool.version, 64),
        tool_commit: text(tool.commit, 64),
        kernel: text(found.kernel, 128),
        cpus: i32::try_from(found.cpus)
            .ok()
            .filter(|n| (1..=65_536).contains(n)),
        cpu_model: text(found.cpu_model, 128),
        node: text(found.node, 253),
        udp_receive_granted_bytes: Some(found.udp_receive_granted_bytes).filter(|n| *n > 0),
        udp_send_granted_bytes: Some(found.udp_send_granted_bytes).filter(|n| *n > 0),
        mtu_bytes: i32::try_from(found.mtu).ok().filter(|n| (1..=65_535).contains(n)),
    }
}

fn text(found: String, max_chars: usize) -> Option<String> {
    (!found.is_empty()).then(|| found.chars().take(max_chars).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A summary of one row, passed or not.
    pub(crate) fn document(passed: bool) -> String {
        serde_json::json!({
            "schema": 1,
            "tool": { "version": "0.1.0", "commit": "abc" },
            "environment": {
                "kernel": "6.18", "cpus": 2, "cpuModel": "Model", "node": "node-1", "memoryLimitBytes": 1,
                "udpReceiveGrantedBytes": 4_194_304, "udpSendGrantedBytes": 4_194_304, "mtu": 0, "profile": "release",
            },
            "rows": [{
                "payloadBytes": 1024, "fanout": 10, "batch": 1, "records": 5000, "p50Nanoseconds": 110_000,
                "p99Nanoseconds": 220_000, "p999Nanoseconds": 330_000, "deliveredPerSecond": 100_000,
                "deliveredBytesPerSecond": 102_400_000, "publishedPerSecond": 10_000, "dropped": 0,
                "lost": if passed { 0 } else { 3 }, "duplicates": 0, "reordered": 0, "passed": passed,
            }],
            "passed": passed,
        })
        .to_string()
    }

    #[test]
    fn figures_are_copied_and_what_is_unknown_is_left_out() {
        let summary = Summary::parse(&document(true)).unwrap();
        assert!(summary.passed);
        assert_eq!(summary.rows[0].p999_nanoseconds, 330_000);
        assert_eq!(summary.environment.udp_receive_granted_bytes, Some(4_194_304));
        assert_eq!(summary.environment.mtu_bytes, None);
    }

    #[test]
    fn a_row_that_failed_fails_the_run_whatever_the_document_says() {
        let mut document: serde_json::Value = serde_json::from_str(&document(false)).unwrap();
        document["passed"] = true.into();
        let summary = Summary::parse(&document.to_string()).unwrap();
        assert!(!summary.passed);
    }

    #[test]
    fn another_schema_is_refused_by_number() {
        let error = Summary::parse(&document(true).replace(r#""schema":1"#, r#""schema":7"#)).unwrap_err();
        assert!(error.to_string().contains("schema 7"), "{error}");
    }
}
