//! From what came of a stream to the status of its FelixStream. Pure.

use felix_crds::{FelixStreamStatus, Finding, merge};

/// What came of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The broker holds the stream as it is written.
    Ready {
        /// The name that clients use.
        name: String,
        /// The identity of this life of the stream.
        incarnation: String,
    },
    /// The spec cannot be carried out as it is.
    Invalid(String),
    /// There is no such FelixCluster.
    ClusterMissing(String),
    /// The FelixCluster is there but its broker does not answer.
    ClusterNotReady(String),
    /// Another owner holds the name.
    NameTaken {
        /// The name that both want.
        name: String,
        /// The owner that the broker recorded.
        owner: String,
    },
    /// The broker refused the request for good.
    Refused(String),
    /// The object is being deleted and the broker cannot be asked.
    Leaving(String),
}

impl Outcome {
    /// As a condition.
    pub(crate) fn finding(&self) -> Finding {
        match self {
            Self::Ready { name, .. } => {
                Finding::yes("Ready", "Serving", format!("clients can use stream {name}"))
            }
            Self::Invalid(message) => Finding::no("Ready", "Invalid", message.as_str()),
            Self::ClusterMissing(cluster) => Finding::no(
                "Ready",
                "ClusterMissing",
                format!(
                    "there is no FelixCluster {cluster} in this namespace: make it, or correct spec.clusterRef"
                ),
            ),
            Self::ClusterNotReady(message) => Finding::no("Ready", "ClusterNotReady", message.as_str()),
            Self::NameTaken { name, owner } => Finding::no(
                "Ready",
                "NameTaken",
                format!(
                    "stream {name} belongs to {owner}, which was first: choose another streamName, or delete that one"
                ),
            ),
            Self::Refused(message) => Finding::no("Ready", "Refused", message.as_str()),
            Self::Leaving(message) => Finding::no("Ready", "Leaving", message.as_str()),
        }
    }
}

/// The status that follows `before`. `now` is an RFC 3339 time stamp.
pub(crate) fn status(
    before: &FelixStreamStatus,
    outcome: &Outcome,
    generation: i64,
    now: &str,
) -> FelixStreamStatus {
    let mut status = FelixStreamStatus {
        observed_generation: Some(generation),
        conditions: merge(&before.conditions, &[outcome.finding()], generation, now),
        ..before.clone()
    };
    if let Outcome::Ready { name, incarnation } = outcome {
        status.stream_name = Some(name.clone());
        status.incarnation = Some(incarnation.clone());
    }
    status
}

#[cfg(test)]
mod tests {
    use felix_crds::ConditionStatus;

    use super::*;

    fn ready() -> Outcome {
        Outcome::Ready {
            name: "orders".to_owned(),
            incarnation: "1".to_owned(),
        }
    }

    #[test]
    fn a_served_stream_says_its_name_and_life() {
        let status = status(&FelixStreamStatus::default(), &ready(), 3, "2026-01-01T00:00:00Z");
        assert_eq!(status.stream_name.as_deref(), Some("orders"));
        assert_eq!(status.incarnation.as_deref(), Some("1"));
        assert_eq!(status.observed_generation, Some(3));
        assert_eq!(status.conditions[0].status, ConditionStatus::True);
    }

    #[test]
    fn the_loser_is_told_who_was_first() {
        let taken = Outcome::NameTaken {
            name: "orders".to_owned(),
            owner: "FelixStream/a/first".to_owned(),
        };
        let status = status(&FelixStreamStatus::default(), &taken, 1, "2026-01-01T00:00:00Z");
        assert_eq!(status.conditions[0].reason, "NameTaken");
        assert!(status.conditions[0].message.contains("FelixStream/a/first"));
        assert_eq!(status.stream_name, None);
    }

    #[test]
    fn an_idle_stream_has_one_status_for_ever() {
        let first = status(&FelixStreamStatus::default(), &ready(), 1, "2026-01-01T00:00:00Z");
        assert_eq!(status(&first, &ready(), 1, "2026-01-02T00:00:00Z"), first);
    }

    #[test]
    fn a_broker_that_is_away_does_not_take_the_name_from_the_status() {
        let first = status(&FelixStreamStatus::default(), &ready(), 1, "2026-01-01T00:00:00Z");
        let away = Outcome::ClusterNotReady("no answer".to_owned());
        let second = status(&first, &away, 1, "2026-01-02T00:00:00Z");
        assert_eq!(second.stream_name, first.stream_name);
        assert_eq!(second.conditions[0].status, ConditionStatus::False);
    }
}
