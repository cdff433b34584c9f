//! An API server in memory for tests: objects by path, resource versions, preconditions, server-side apply that takes
//! away what is applied no more, watches, a crash at any write, and somebody else's deed before any request. It knows
//! neither defaults nor controllers; what needs those is tested on a real one.

mod watch;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{Method, Request, Response, Uri};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::watch as latest;
use tower::service_fn;

use self::watch::{Event, Watchers};

/// When the process dies at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before the server has seen it.
    Before,
    /// After it was done, without an answer.
    After,
}

/// The server.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    changed: latest::Sender<()>,
}

/// What somebody else does.
type Deed = Box<dyn FnOnce(&mut State) + Send>;

#[derive(Default)]
pub(crate) struct State {
    objects: BTreeMap<String, Value>,
    /// What each manager has applied last, by path.
    applied: BTreeMap<(String, String), Value>,
    version: u64,
    requests: Vec<String>,
    writes: Vec<String>,
    crash: Option<(usize, Moment)>,
    deed: Option<(usize, Deed)>,
    refusals: Vec<(String, u16, String)>,
    watchers: Watchers,
}

impl FakeApi {
    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let query = parts.uri.query().unwrap_or_default();
                let (status, answer) = if query.split('&').any(|part| part == "watch=true") {
                    (200, server.lock().watch(&parts.uri))
                } else {
                    let (status, answer) = server.lock().answer(&parts.method, &parts.uri, &body);
                    (status, Full::from(answer.to_string()).boxed_unsync())
                };
                server.changed.send_replace(());
                Ok::<_, Infallible>(Response::builder().status(status).body(answer).unwrap())
            }
        });
        Client::new(service, "ns")
    }

    /// Puts an object there.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.lock().store(path, object);
        self.changed.send_replace(());
    }

    /// Takes an object away as somebody else would.
    pub(crate) fn remove(&self, path: &str) -> Option<Value> {
        let gone = self.lock().remove(path);
        self.changed.send_replace(());
        gone
    }

    /// Waits until the object is as it is hoped to be.
    pub(crate) async fn until(&self, path: &str, hoped: impl Fn(Option<&Value>) -> bool) {
        let mut changed = self.changed.subscribe();
        let seen = async {
            while !hoped(self.get(path).as_ref()) {
                changed.changed().await.unwrap();
            }
        };
        let seen = tokio::time::timeout(std::time::Duration::from_secs(60), seen).await;
        assert!(seen.is_ok(), "{path} is still {:#?}", self.get(path));
    }

    /// Takes away what belongs to an object that is no more, as Kubernetes' garbage collector does.
    pub(crate) fn collect_garbage(&self) {
        loop {
            let mut state = self.lock();
            let uids: Vec<Value> = state
                .objects
                .values()
                .map(|o| o["metadata"]["uid"].clone())
                .collect();
            let orphaned = |object: &Value| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                owners.is_some_and(|owners| {
                    !owners.is_empty() && owners.iter().all(|o| !uids.contains(&o["uid"]))
                })
            };
            let Some(path) = state
                .objects
                .iter()
                .find_map(|(path, o)| orphaned(o).then(|| path.clone()))
            else {
                return;
            };
            state.remove(&path);
        }
    }

    /// One object.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    /// Every path at which there is an object, events apart.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.lock()
            .objects
            .keys()
            .filter(|path| !path.contains("/events/"))
            .cloned()
            .collect()
    }

    /// The writes since the last call of this.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().writes)
    }

    /// From now on: no answer to any request from the given write on.
    pub(crate) fn crash_at(&self, write: usize, moment: Moment) {
        let mut state = self.lock();
        state.writes.clear();
        state.crash = Some((write, moment));
    }

    /// The process is started again.
    pub(crate) fn recover(&self) {
        self.lock().crash = None;
    }

    /// Somebody does something right before the request of this number (1 is the next) is served.
    pub(crate) fn before_request(&self, number: usize, deed: impl FnOnce(&mut State) + Send + 'static) {
        let mut state = self.lock();
        let number = state.requests.len() + number;
        state.deed = Some((number, Box::new(deed)));
    }

    /// The requests since the last call of this, watches apart.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().requests)
    }

    /// From now on: refuses requests like `PATCH /path` with this code and message.
    pub(crate) fn refuse(&self, request: &str, code: u16, message: &str) {
        self.lock()
            .refusals
            .push((request.to_owned(), code, message.to_owned()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn answer(&mut self, method: &Method, uri: &Uri, body: &[u8]) -> (u16, Value) {
        let request = format!("{method} {}", uri.path());
        self.requests.push(request.clone());
        if let Some((_, deed)) = self.deed.take_if(|(number, _)| *number == self.requests.len()) {
            deed(self);
        }
        let dead = |state: &Self| {
            state
                .crash
                .filter(|(write, _)| state.writes.len() >= *write)
                .map(|(_, moment)| moment)
        };
        if dead(self).is_some() {
            return refusal(500, "dead");
        }
        let refused = self.refusals.iter().find(|(of, ..)| *of == request);
        let refused = refused.map(|(_, code, message)| refusal(*code, message));
        if *method == Method::GET {
            return refused.unwrap_or_else(|| self.read(uri));
        }
        self.writes.push(request);
        match (dead(self), refused) {
            (Some(Moment::Before), _) => refusal(500, "dead"),
            (Some(Moment::After), _) => {
                self.write(method, uri, body);
                refusal(500, "dead")
            }
            (None, Some(refused)) => refused,
            (None, None) => self.write(method, uri, body),
        }
    }

    fn read(&self, uri: &Uri) -> (u16, Value) {
        let path = uri.path();
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        // /api/v1/namespaces/NS/PLURAL or /apis/GROUP/VERSION/namespaces/NS/PLURAL
        let after_namespace = path
            .split("/namespaces/")
            .nth(1)
            .map_or(0, |rest| rest.split('/').count());
        if after_namespace != 2 {
            return refusal(404, "NotFound");
        }
        let wanted = Selection::new(uri);
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(path, object)| wanted.covers(path, object))
            .map(|(_, object)| object)
            .collect();
        let metadata = json!({ "resourceVersion": self.version.to_string() });
        (
            200,
            json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }),
        )
    }

    fn watch(&mut self, uri: &Uri) -> UnsyncBoxBody<Bytes, Infallible> {
        self.watchers
            .open(Selection::new(uri), uri.query().unwrap_or_default())
    }

    fn write(&mut self, method: &Method, uri: &Uri, body: &[u8]) -> (u16, Value) {
        let path = uri.path();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if *method == Method::POST {
            let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            return (201, self.store(&format!("{path}/{name}"), body));
        }
        if *method == Method::DELETE {
            return self.delete(path, &body);
        }
        if let Some(path) = path.strip_suffix("/status") {
            let Some(mut object) = self.objects.get(path).cloned() else {
                return refusal(404, "NotFound");
            };
            let uid = &body["metadata"]["uid"];
            if !uid.is_null() && object["metadata"]["uid"] != *uid {
                return refusal(409, "Conflict");
            }
            object["status"] = body["status"].clone();
            return (200, self.store(path, object));
        }
        self.patch(path, &body, applying_manager(uri.query().unwrap_or_default()))
    }

    /// A merge patch, or with `manager` a server-side apply: that one makes what is not there, whatever resource version
    /// it names, unless it names a uid.
    fn patch(&mut self, path: &str, body: &Value, manager: Option<String>) -> (u16, Value) {
        let live = self.objects.get(path).cloned();
        if live.is_none() && manager.is_none() {
            return refusal(404, "NotFound");
        }
        for (key, always) in [("uid", true), ("resourceVersion", false)] {
            let (expected, is) = (&body["metadata"][key], live.as_ref().map(|l| &l["metadata"][key]));
            if !expected.is_null() && is.map_or(always, |is| is != expected) {
                return refusal(409, "Conflict");
            }
        }
        let mut object = live.unwrap_or_default();
        if let Some(manager) = manager {
            let key = (path.to_owned(), manager);
            if let Some(before) = self.applied.get(&key) {
                take_away(&mut object, before, body);
            }
            let mut applied = body.clone();
            for precondition in ["uid", "resourceVersion"] {
                applied["metadata"]
                    .as_object_mut()
                    .map(|m| m.remove(precondition));
            }
            self.applied.insert(key, applied);
        }
        let version = object["metadata"]["resourceVersion"].clone();
        merge(&mut object, body);
        object["metadata"]["resourceVersion"] = version;
        (200, self.store(path, object))
    }

    fn delete(&mut self, path: &str, options: &Value) -> (u16, Value) {
        let Some(live) = self.objects.get(path) else {
            return refusal(404, "NotFound");
        };
        for key in ["uid", "resourceVersion"] {
            let expected = &options["preconditions"][key];
            if !expected.is_null() && live["metadata"][key] != *expected {
                return refusal(409, "Conflict");
            }
        }
        (200, self.remove(path).unwrap_or_default())
    }

    /// Takes an object away.
    pub(crate) fn remove(&mut self, path: &str) -> Option<Value> {
        let mut gone = self.objects.remove(path)?;
        self.applied.retain(|(of, _), _| of != path);
        self.version += 1;
        gone["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.watchers
            .tell(Event::new(self.version, path, "DELETED", &gone));
        Some(gone)
    }

    /// Puts an object there.
    pub(crate) fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        let before = self.objects.insert(path.to_owned(), object.clone());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.watchers.tell(Event::new(self.version, path, kind, &object));
        object
    }
}

/// The objects of one collection that a list or a watch asks for.
pub(crate) struct Selection {
    collection: String,
    labels: Vec<(String, String)>,
    name: Option<String>,
}

impl Selection {
    fn new(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let fields = pairs(&parameter(query, "fieldSelector"));
        Self {
            collection: format!("{}/", uri.path()),
            labels: pairs(&parameter(query, "labelSelector")),
            name: fields
                .into_iter()
                .find_map(|(key, value)| (key == "metadata.name").then_some(value)),
        }
    }

    fn covers(&self, path: &str, object: &Value) -> bool {
        path.strip_prefix(&self.collection)
            .is_some_and(|name| !name.contains('/') && self.name.as_ref().is_none_or(|wanted| wanted == name))
            && self
                .labels
                .iter()
                .all(|(key, value)| object["metadata"]["labels"][key] == value.as_str())
    }
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason }),
    )
}

/// Values replace values; objects are joined.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Takes away the fields that were applied before and are applied no more.
fn take_away(live: &mut Value, before: &Value, now: &Value) {
    let (Some(live), Some(before), Some(now)) = (live.as_object_mut(), before.as_object(), now.as_object())
    else {
        return;
    };
    for (key, old) in before {
        match (now.get(key), live.get_mut(key)) {
            (Some(new), Some(live)) => take_away(live, old, new),
            (None, Some(_)) => drop(live.remove(key)),
            (_, None) => {}
        }
    }
}

fn applying_manager(query: &str) -> Option<String> {
    let manager = parameter(query, "fieldManager");
    query.contains("force=true").then_some(manager)
}

fn parameter(query: &str, name: &str) -> String {
    let mut values = query.split('&').filter_map(|part| part.split_once('='));
    let value = values.find_map(|(key, value)| (key == name).then_some(value));
    value
        .unwrap_or_default()
        .replace("%2F", "/")
        .replace("%2C", ",")
        .replace("%3D", "=")
}

fn pairs(selector: &str) -> Vec<(String, String)> {
    let pairs = selector.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
