//! The API server's audit log, read for what a user wrote.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize;

/// The log file of the API server of `dev/kube`, or the one that `FELIX_AUDIT_LOG` names: JSON lines, one for each event.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A call that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// create, update, patch, delete or deletecollection.
    pub verb: String,
    /// Path of the request.
    pub uri: String,
    /// When the API server received it.
    pub at: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

impl AuditLog {
    /// Finds the log.
    ///
    /// # Errors
    /// If there is none.
    pub fn open() -> Result<Self> {
        let path = std::env::var_os("FELIX_AUDIT_LOG").map(PathBuf::from);
        let path = path.unwrap_or_else(|| PathBuf::from("/var/lib/felix-kube/log/audit.log"));
        ensure!(
            path.exists(),
            "{} does not exist: set FELIX_AUDIT_LOG to the API server's audit log",
            path.display()
        );
        Ok(Self { path })
    }

    /// What `user` wrote from `since` on, renewals of Leases and reviews of its own rights excepted.
    ///
    /// # Errors
    /// If the log cannot be read, or has no event of that user since then at all: then it is not the log of this API server.
    pub fn writes_of(&self, user: &str, since: Timestamp) -> Result<Vec<Write>> {
        let text = std::fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        let events = events_of(&text, user, since);
        ensure!(
            !events.is_empty(),
            "{} has no event of {user} since {since}",
            self.path.display()
        );
        let writes = events.into_iter().filter(changes_something);
        Ok(writes
            .map(|e| Write {
                verb: e.verb,
                uri: e.request_uri,
                at: e.request_received_timestamp,
            })
            .collect())
    }
}

fn events_of(text: &str, user: &str, since: Timestamp) -> Vec<Event> {
    // The last line may be half written; every other line is whole.
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Event>(line).ok());
    events
        .filter(|event| event.user.username == user && event.request_received_timestamp >= since)
        .collect()
}

fn changes_something(event: &Event) -> bool {
    const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
    const EXEMPT: [&str; 3] = ["/leases", "selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    event.stage != "RequestReceived"
        && WRITES.contains(&event.verb.as_str())
        && !EXEMPT.iter().any(|part| event.request_uri.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stage: &str, verb: &str, uri: &str, user: &str) -> String {
        format!(
            r#"{{"stage":"{stage}","verb":"{verb}","requestURI":"{uri}","user":{{"username":"{user}"}},"requestReceivedTimestamp":"2026-01-01T00:00:05.000000Z"}}"#
        )
    }

    #[test]
    fn finds_writes_of_one_user_after_a_time() {
        let text = [
            line(
                "ResponseComplete",
                "patch",
                "/api/v1/namespaces/a/configmaps/x",
                "me",
            ),
            line(
                "RequestReceived",
                "patch",
                "/api/v1/namespaces/a/configmaps/x",
                "me",
            ),
            line(
                "ResponseComplete",
                "get",
                "/api/v1/namespaces/a/configmaps/x",
                "me",
            ),
            line(
                "ResponseComplete",
                "update",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
                "me",
            ),
            line(
                "ResponseComplete",
                "delete",
                "/api/v1/namespaces/a/pods/p",
                "other",
            ),
            "{\"half".to_owned(),
        ]
        .join("\n");
        let early: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let events = events_of(&text, "me", early);
        assert_eq!(events.len(), 4);
        let writes: Vec<_> = events
            .iter()
            .filter(|event| changes_something(event))
            .map(|e| &e.verb)
            .collect();
        assert_eq!(writes, ["patch"]);
        assert!(events_of(&text, "me", "2026-01-01T00:01:00Z".parse().unwrap()).is_empty());
    }
}
