//! Events on our objects: what happened, for people who look with `kubectl describe`.

use felix_crds::{Condition, ConditionStatus};
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::names::FIELD_MANAGER;

/// Most bytes of an event's note; the API server refuses more than 1 kB.
const MAX_NOTE_BYTES: usize = 1000;

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

    /// Conditions that turned: those that hold now as normal events, those that do not as warnings.
    pub(crate) async fn transitions<K>(&self, object: &K, before: &[Condition], after: &[Condition])
    where
        K: Resource<DynamicType = ()>,
    {
        let same = |new: &Condition, old: &Condition| {
            new.kind == old.kind && new.status == old.status && new.reason == old.reason
        };
        for condition in after
            .iter()
            .filter(|new| !before.iter().any(|old| same(new, old)))
        {
            let reason = format!("{}{}", condition.kind, condition.reason);
            match condition.status {
                ConditionStatus::False if condition.kind != "Progressing" => {
                    self.warning(object, &reason, &condition.message).await;
                }
                ConditionStatus::True | ConditionStatus::False => {
                    self.normal(object, &reason, &condition.message).await;
                }
                ConditionStatus::Unknown => {}
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
