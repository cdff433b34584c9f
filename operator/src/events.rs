//! Events on our objects: what happened, for people who look with `kubectl describe`.

use felix_crds::{Condition, ConditionStatus};
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::names::FIELD_MANAGER;

/// Most bytes of an event's note; the API server refuses more than 1 kB.
const MAX_NOTE_BYTES: usize = 1000;

/// Reasons that every start goes through.
const PASSING: [&str; 6] = ["NoClaim", "NoPod", "Pending", "Starting", "Stopping", "Updating"];

/// Writes events. A failure to write one is logged and changes nothing else.
#[derive(Clone)]
pub(crate) struct Events(Recorder);

impl Events {
    /// Writes with this client.
    pub(crate) fn new(client: Client) -> Self {
        Self(Recorder::new(client, Reporter::from(FIELD_MANAGER)))
    }

    /// Something happened as it should.
    pub(crate) async fn normal<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.publish(object, EventType::Normal, reason, note.into()).await;
    }

    /// Something needs a look.
    pub(crate) async fn warning<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.publish(object, EventType::Warning, reason, note.into())
            .await;
    }

    /// Conditions that turned. One that held and does not any more is a warning, and so is a trouble that does not pass
    /// by itself; what belongs to every start is none.
    pub(crate) async fn transitions<K>(&self, object: &K, before: &[Condition], after: &[Condition])
    where
        K: Resource<DynamicType = ()>,
    {
        for condition in after {
            let old = before.iter().find(|old| old.kind == condition.kind);
            if old.is_some_and(|old| old.status == condition.status && old.reason == condition.reason) {
                continue;
            }
            let reason = format!("{}{}", condition.kind, condition.reason);
            match severity(old, condition) {
                Some(EventType::Warning) => self.warning(object, &reason, &condition.message).await,
                Some(EventType::Normal) => self.normal(object, &reason, &condition.message).await,
                None => {}
            }
        }
    }

    async fn publish<K>(&self, object: &K, type_: EventType, reason: &str, mut note: String)
    where
        K: Resource<DynamicType = ()>,
    {
        while note.len() > MAX_NOTE_BYTES {
            note.pop();
        }
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, &object.object_ref(&())).await {
            tracing::warn!(%error, reason, "event was not written");
        }
    }
}

/// Nothing is told of what nobody can tell at present.
fn severity(old: Option<&Condition>, new: &Condition) -> Option<EventType> {
    let passes = PASSING.contains(&new.reason.as_str()) || new.kind == "Progressing";
    let held = old.is_some_and(|old| old.status == ConditionStatus::True);
    match new.status {
        ConditionStatus::Unknown => None,
        ConditionStatus::False
            if !passes || (held && new.reason != "Updating" && new.kind != "Progressing") =>
        {
            Some(EventType::Warning)
        }
        ConditionStatus::True | ConditionStatus::False => Some(EventType::Normal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, status: ConditionStatus, reason: &str) -> Condition {
        Condition {
            kind: kind.to_owned(),
            status,
            observed_generation: 1,
            last_transition_time: String::new(),
            reason: reason.to_owned(),
            message: String::new(),
        }
    }

    #[test]
    fn a_start_is_no_warning_but_trouble_and_the_end_of_ready_are() {
        use ConditionStatus::{False, True, Unknown};
        let ready = condition("Ready", True, "Serving");
        for (old, new, expected) in [
            (
                None,
                condition("Ready", False, "Starting"),
                Some(EventType::Normal),
            ),
            (
                None,
                condition("StorageBound", False, "Pending"),
                Some(EventType::Normal),
            ),
            (
                None,
                condition("Ready", False, "UnknownStorageClass"),
                Some(EventType::Warning),
            ),
            (
                Some(&ready),
                condition("Ready", False, "Starting"),
                Some(EventType::Warning),
            ),
            (
                Some(&ready),
                condition("Ready", False, "Updating"),
                Some(EventType::Normal),
            ),
            (
                None,
                condition("UdpBuffersGranted", False, "Clamped"),
                Some(EventType::Warning),
            ),
            (None, condition("UdpBuffersGranted", Unknown, "NoBroker"), None),
            (
                None,
                condition("Progressing", False, "Settled"),
                Some(EventType::Normal),
            ),
            (None, condition("Ready", True, "Serving"), Some(EventType::Normal)),
        ] {
            assert_eq!(severity(old, &new), expected, "{new:?}");
        }
    }
}
