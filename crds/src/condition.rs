//! Conditions, as every kind carries them in its status, and the words that appear in them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;

/// The longest message of a condition, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 2048;

/// One aspect of an object's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What this condition is about, for example Ready.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 64))]
    pub kind: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// metadata.generation of the object that this condition was computed for.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: i64,
    /// When `status` last changed (RFC 3339).
    #[schemars(schema_with = "bounds::time")]
    pub last_transition_time: String,
    /// Why, in one word for machines.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// Why, and what to do, for people.
    #[schemars(length(max = 2048))]
    pub message: String,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can tell at present.
    Unknown,
}

impl ConditionStatus {
    /// True or False.
    pub fn from_bool(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition before it has a generation and a time: what a reconcile found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, and what to do.
    pub message: String,
}

impl Finding {
    /// A finding that holds.
    pub fn yes(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: ConditionStatus::True,
            reason,
            message: message.into(),
        }
    }

    /// A finding that does not hold.
    pub fn no(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: ConditionStatus::False,
            reason,
            message: message.into(),
        }
    }

    /// A finding that cannot be made at present.
    pub fn unknown(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: ConditionStatus::Unknown,
            reason,
            message: message.into(),
        }
    }
}

/// Joins findings with the conditions that stood before: `lastTransitionTime` moves only where `status` does.
///
/// `now` is an RFC 3339 time stamp. Conditions of `before` that have no finding are dropped.
pub fn merge(before: &[Condition], findings: &[Finding], generation: i64, now: &str) -> Vec<Condition> {
    findings
        .iter()
        .map(|finding| {
            let unchanged_since = before
                .iter()
                .find(|old| old.kind == finding.kind && old.status == finding.status)
                .map(|old| old.last_transition_time.clone());
            Condition {
                kind: finding.kind.to_owned(),
                status: finding.status,
                observed_generation: generation,
                last_transition_time: unchanged_since.unwrap_or_else(|| now.to_owned()),
                reason: finding.reason.to_owned(),
                message: bounded(&finding.message),
            }
        })
        .collect()
}

fn bounded(message: &str) -> String {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message.to_owned();
    }
    let mut end = MAX_MESSAGE_BYTES - "...".len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", message.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let first = merge(
            &[],
            &[Finding::no("Ready", "Starting", "one")],
            1,
            "2026-01-01T00:00:00Z",
        );
        let same = merge(
            &first,
            &[Finding::no("Ready", "Pulling", "two")],
            2,
            "2026-01-02T00:00:00Z",
        );
        assert_eq!(same[0].last_transition_time, "2026-01-01T00:00:00Z");
        assert_eq!(
            (same[0].observed_generation, same[0].reason.as_str()),
            (2, "Pulling")
        );
        let moved = merge(
            &same,
            &[Finding::yes("Ready", "Serving", "")],
            2,
            "2026-01-03T00:00:00Z",
        );
        assert_eq!(moved[0].last_transition_time, "2026-01-03T00:00:00Z");
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let cut = bounded(&"ü".repeat(MAX_MESSAGE_BYTES));
        assert!(cut.len() <= MAX_MESSAGE_BYTES && cut.ends_with("ü..."));
    }
}
