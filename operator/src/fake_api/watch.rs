//! Watches of the API server in memory: each is told what happened after the version that it names.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{StreamExt as _, channel::mpsc};
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::{Selection, parameter};

/// Something that happened to an object.
#[derive(Clone)]
pub(super) struct Event {
    version: u64,
    path: String,
    kind: &'static str,
    object: Value,
}

/// Everything that happened, and who is told.
#[derive(Default)]
pub(super) struct Watchers {
    past: Vec<Event>,
    open: Vec<(Selection, mpsc::UnboundedSender<Bytes>)>,
}

impl Event {
    pub(super) fn new(version: u64, path: &str, kind: &'static str, object: &Value) -> Self {
        Self {
            version,
            path: path.to_owned(),
            kind,
            object: object.clone(),
        }
    }

    fn line(&self) -> Bytes {
        let line = json!({ "type": self.kind, "object": self.object });
        Bytes::from(format!("{line}\n"))
    }
}

impl Watchers {
    /// Tells all who asked for it.
    pub(super) fn tell(&mut self, event: Event) {
        self.open.retain(|(selection, told)| {
            !selection.covers(&event.path, &event.object) || told.unbounded_send(event.line()).is_ok()
        });
        self.past.push(event);
    }

    /// The body of an answer that never ends.
    pub(super) fn open(&mut self, selection: Selection, query: &str) -> UnsyncBoxBody<Bytes, Infallible> {
        let since: u64 = parameter(query, "resourceVersion").parse().unwrap_or_default();
        let (tell, told) = mpsc::unbounded();
        let missed = self
            .past
            .iter()
            .filter(|event| event.version > since && selection.covers(&event.path, &event.object));
        for event in missed {
            tell.unbounded_send(event.line()).unwrap();
        }
        self.open.push((selection, tell));
        StreamBody::new(told.map(|line| Ok(Frame::data(line)))).boxed_unsync()
    }
}
