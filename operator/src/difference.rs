//! Whether a live object already is what it should be, decided without asking the API server.

use ring::digest::{Context, SHA256};
use serde_json::{Map, Value};

/// Lists that Kubernetes merges by a key: other managers may add entries of their own.
/// (List field, key of its entries.)
const KEYED_LISTS: [(&str, &[&str]); 8] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("ports", &["containerPort", "port", "protocol"]),
    ("ownerReferences", &["uid"]),
];

/// Where `live` is not what `desired` says: the path of the first difference. What `desired` does not say may be
/// anything: defaults of the API server and fields of others are not a difference.
pub(crate) fn difference(live: &Value, desired: &Value) -> Option<String> {
    in_field("", live, desired).map(|path| path.join("."))
}

/// The path is built from its end.
fn in_field(field: &str, live: &Value, desired: &Value) -> Option<Vec<String>> {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired
            .iter()
            .find_map(|(key, value)| in_key(key, live.get(key), value)),
        (Value::Array(live), Value::Array(desired)) => in_list(field, live, desired),
        (live, desired) => (live != desired).then(Vec::new),
    }
}

fn in_key(key: &str, live: Option<&Value>, desired: &Value) -> Option<Vec<String>> {
    // The API server does not tell an empty list from none.
    let inner = match live.filter(|live| !live.is_null()) {
        None => (!is_empty_list(desired)).then(Vec::new),
        Some(live) => in_field(key, live, desired),
    };
    inner.map(|path| [vec![key.to_owned()], path].concat())
}

fn in_list(field: &str, live: &[Value], desired: &[Value]) -> Option<Vec<String>> {
    if field == "finalizers" {
        return (!desired.iter().all(|d| live.contains(d))).then(Vec::new);
    }
    let Some((_, keys)) = KEYED_LISTS.iter().find(|(name, _)| *name == field) else {
        if live.len() != desired.len() {
            return Some(Vec::new());
        }
        return live.iter().zip(desired).find_map(|(l, d)| in_field("", l, d));
    };
    let same_entry = |l: &Value, d: &Value| keys.iter().all(|key| l.get(key) == d.get(key));
    desired
        .iter()
        .find_map(|d| match live.iter().find(|l| same_entry(l, d)) {
            Some(l) => in_field("", l, d),
            None => Some(Vec::new()),
        })
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// The value without fields that are null, which mean "absent".
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept: Map<String, Value> = map
                .into_iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| (k, without_nulls(v)))
                .collect();
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// A digest of the value that does not depend on the order of its keys: 32 hexadecimal digits.
pub(crate) fn hex_digest(value: &Value) -> String {
    let mut context = Context::new(&SHA256);
    feed(&mut context, value);
    let digest = context.finish();
    digest
        .as_ref()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn feed(context: &mut Context, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            context.update(b"{");
            for (key, value) in entries {
                context.update(Value::String(key.clone()).to_string().as_bytes());
                context.update(b":");
                feed(context, value);
                context.update(b",");
            }
            context.update(b"}");
        }
        Value::Array(items) => {
            context.update(b"[");
            for item in items {
                feed(context, item);
                context.update(b",");
            }
            context.update(b"]");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            context.update(value.to_string().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_and_fields_of_others_are_no_difference() {
        let desired = json!({ "spec": { "ports": [{ "port": 5000, "protocol": "UDP" }] } });
        let live = json!({
            "spec": {
                "clusterIP": "10.0.0.1",
                "ports": [{ "port": 1, "protocol": "TCP" }, { "port": 5000, "protocol": "UDP", "targetPort": 5000 }],
            },
            "status": {},
        });
        assert_eq!(difference(&live, &desired), None);
    }

    #[test]
    fn a_changed_value_a_missing_field_and_a_longer_plain_list_are_differences() {
        for (live, desired, path) in [
            (
                json!({ "a": { "b": 1 } }),
                json!({ "a": { "b": 2 } }),
                Some("a.b"),
            ),
            (json!({}), json!({ "a": {} }), Some("a")),
            (
                json!({ "rules": [{ "verbs": ["get"] }] }),
                json!({ "rules": [] }),
                Some("rules"),
            ),
            (json!({ "rules": null }), json!({ "rules": [] }), None),
            (
                json!({ "args": ["a", "b"] }),
                json!({ "args": ["a"] }),
                Some("args"),
            ),
            (
                json!({ "containers": [{ "name": "a", "image": "x" }, { "name": "b" }] }),
                json!({ "containers": [{ "name": "a", "image": "y" }] }),
                Some("containers.image"),
            ),
            (
                json!({ "ports": [{ "port": 1 }] }),
                json!({ "ports": [{ "port": 2 }] }),
                Some("ports"),
            ),
            (
                json!({ "finalizers": ["a", "b"] }),
                json!({ "finalizers": ["b"] }),
                None,
            ),
        ] {
            assert_eq!(
                difference(&live, &desired).as_deref(),
                path,
                "{live} against {desired}"
            );
        }
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_keys_but_on_every_value() {
        let one: Value = serde_json::from_str(r#"{"a":1,"b":[2,{"c":"d"}]}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b":[2,{"c":"d"}],"a":1}"#).unwrap();
        assert_eq!(hex_digest(&one), hex_digest(&two));
        assert_ne!(
            hex_digest(&one),
            hex_digest(&json!({ "a": 1, "b": [2, { "c": "e" }] }))
        );
        assert_ne!(hex_digest(&json!(["a", "b"])), hex_digest(&json!(["a,b"])));
    }

    #[test]
    fn null_means_absent() {
        assert_eq!(
            without_nulls(json!({ "a": null, "b": [{ "c": null }] })),
            json!({ "b": [{}] })
        );
    }
}
