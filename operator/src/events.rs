//! Events on our objects: what happened, for people who look with `kubectl describe`.

use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::names::FIELD_MANAGER;

/// Most bytes of an event's note; the API server refuses more than 1 kB.
const MAX_NOTE_BYTES: usize = 1000;

/// Writes events. A failure to write one is logged and changes nothing else.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Writes with this client.
    pub fn new(client: Client) -> Self {
        Self(Recorder::new(client, Reporter::from(FIELD_MANAGER)))
    }

    /// Something happened as it should.
    pub async fn normal<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.publish(object, EventType::Normal, reason, note.into()).await;
    }

    /// Something needs a look.
    pub async fn warning<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: impl Into<String>,
    ) {
        self.publish(object, EventType::Warning, reason, note.into())
            .await;
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
