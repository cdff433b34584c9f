//! An API server in memory for tests of single reconciles: objects by path, resource versions, preconditions, and a crash
//! at any write. It knows neither defaults nor controllers; what needs those is tested on a real one.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use hyper::{Method, Request, Response, Uri};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::service_fn;

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
pub(crate) struct FakeApi(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    writes: Vec<String>,
    crash: Option<(usize, Moment)>,
}

impl FakeApi {
    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let state = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let state = state.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let (status, answer) = state.lock().answer(&parts.method, &parts.uri, &body);
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(status).body(answer).unwrap())
            }
        });
        Client::new(service, "ns")
    }

    /// Puts an object there.
    pub(crate) fn put(&self, path: &str, object: Value) {
        let mut state = self.lock();
        state.store(path, object);
    }

    /// Takes an object away as somebody else would.
    pub(crate) fn remove(&self, path: &str) -> Option<Value> {
        self.lock().objects.remove(path)
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn answer(&mut self, method: &Method, uri: &Uri, body: &[u8]) -> (u16, Value) {
        let dead = |state: &Self| {
            state
                .crash
                .filter(|(write, _)| state.writes.len() >= *write)
                .map(|(_, moment)| moment)
        };
        if dead(self).is_some() {
            return refusal(500, "dead");
        }
        if *method == Method::GET {
            return self.read(uri);
        }
        self.writes.push(format!("{method} {}", uri.path()));
        match dead(self) {
            Some(Moment::Before) => refusal(500, "dead"),
            Some(Moment::After) => {
                self.write(method, uri.path(), body);
                refusal(500, "dead")
            }
            None => self.write(method, uri.path(), body),
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
        let selector = label_selector(uri.query().unwrap_or_default());
        let of_collection = self.objects.iter().filter(|(key, _)| {
            key.strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('/') && !rest[1..].contains('/'))
        });
        let matches = |object: &Value| {
            selector
                .iter()
                .all(|(k, v)| object["metadata"]["labels"][k] == v.as_str())
        };
        let items: Vec<Value> = of_collection
            .map(|(_, object)| object.clone())
            .filter(matches)
            .collect();
        (
            200,
            json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items }),
        )
    }

    fn write(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
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
            object["status"] = body["status"].clone();
            return (200, self.store(path, object));
        }
        let live = self.objects.get(path).cloned();
        let expected = &body["metadata"]["resourceVersion"];
        if !expected.is_null()
            && live
                .as_ref()
                .is_none_or(|l| l["metadata"]["resourceVersion"] != *expected)
        {
            return refusal(409, "Conflict");
        }
        let mut object = live.unwrap_or_default();
        merge(&mut object, &body);
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
        let gone = self.objects.remove(path).unwrap_or_default();
        (200, gone)
    }

    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert(path.to_owned(), object.clone());
        object
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

fn label_selector(query: &str) -> Vec<(String, String)> {
    let plain = |text: &str| text.replace("%2F", "/").replace("%2C", ",").replace("%3D", "=");
    let text = query
        .split('&')
        .find_map(|part| part.strip_prefix("labelSelector="))
        .map(plain)
        .unwrap_or_default();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
