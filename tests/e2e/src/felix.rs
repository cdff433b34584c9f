//! Our own kinds, as JSON like a user writes them: the scenarios must not depend on the Rust types of the operator.

use kube::{
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

/// The kinds of `felix.dev/v1alpha1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// FelixCluster.
    Cluster,
    /// FelixStream.
    Stream,
    /// FelixBenchmark.
    Benchmark,
}

impl Kind {
    /// All of them, in the order in which they are taken away.
    pub const ALL: [Self; 3] = [Self::Benchmark, Self::Stream, Self::Cluster];

    /// The name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cluster => "FelixCluster",
            Self::Stream => "FelixStream",
            Self::Benchmark => "FelixBenchmark",
        }
    }

    /// How the API server names it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk("felix.dev", "v1alpha1", self.name()))
    }

    /// An object of this kind with that spec.
    #[must_use]
    pub fn object(self, name: &str, spec: &Value) -> Value {
        json!({ "apiVersion": "felix.dev/v1alpha1", "kind": self.name(), "metadata": { "name": name }, "spec": spec })
    }
}

/// A FelixCluster that fits the test machine, with the storage class of `dev/kube` or the one that
/// FELIX_E2E_STORAGE_CLASS names; `more` is merged over its spec.
#[must_use]
pub fn cluster(name: &str, more: &Value) -> Value {
    let class = std::env::var("FELIX_E2E_STORAGE_CLASS").unwrap_or_else(|_| "felix-local".to_owned());
    let mut spec = json!({
        "storage": { "size": "64Mi", "className": class },
        "resources": {
            "requests": { "cpu": "50m", "memory": "128Mi" },
            "limits": { "cpu": "1", "memory": "256Mi" },
        },
    });
    merge(&mut spec, more);
    Kind::Cluster.object(name, &spec)
}

/// A FelixStream on that cluster; `more` is merged over its spec.
#[must_use]
pub fn stream(name: &str, cluster: &str, more: &Value) -> Value {
    let mut spec = json!({ "clusterRef": { "name": cluster } });
    merge(&mut spec, more);
    Kind::Stream.object(name, &spec)
}

/// JSON merge patch: `null` removes, objects are merged, everything else replaces.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(key);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The condition of that type in an object's status.
pub(crate) fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object
        .data
        .pointer("/status/conditions")?
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}
