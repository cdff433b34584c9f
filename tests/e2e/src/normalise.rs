//! All objects of a namespace, without what differs from one run to the next.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Resource, api::ListParams, core::NamespaceResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{Space, felix::Kind};

/// Every object of the namespace that belongs to the cluster of that name, by kind and name. Uids, times, keys and
/// addresses are replaced by words, the cluster's name by NAME, so that two clusters made in the same way are equal.
///
/// # Errors
/// If the API server cannot be asked.
pub async fn normalised(space: &Space, cluster: &str) -> Result<BTreeMap<String, Value>> {
    let mut objects = Vec::new();
    collect::<ConfigMap>(space, &mut objects).await?;
    collect::<Secret>(space, &mut objects).await?;
    collect::<Service>(space, &mut objects).await?;
    collect::<ServiceAccount>(space, &mut objects).await?;
    collect::<Role>(space, &mut objects).await?;
    collect::<RoleBinding>(space, &mut objects).await?;
    collect::<PodDisruptionBudget>(space, &mut objects).await?;
    collect::<StatefulSet>(space, &mut objects).await?;
    collect::<Job>(space, &mut objects).await?;
    collect::<PersistentVolumeClaim>(space, &mut objects).await?;
    collect::<Pod>(space, &mut objects).await?;
    for object in space.felix(Kind::Cluster).list(&ListParams::default()).await? {
        let mut value = serde_json::to_value(object)?;
        value["kind"] = json!(Kind::Cluster.name());
        objects.push(value);
    }
    // Found by name and not by label: an object that was left behind without its labels must show.
    objects.retain(|object| {
        object["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name.contains(cluster))
    });
    let uids: BTreeSet<String> = objects
        .iter()
        .filter_map(|object| text(&object["metadata"]["uid"]))
        .collect();
    let revisions: BTreeSet<String> = objects
        .iter()
        .filter_map(|object| text(&object["status"]["updateRevision"]))
        .collect();
    let words = Words { cluster, uids: &uids };
    Ok(objects
        .into_iter()
        .map(|object| one(object, &words, &revisions))
        .collect())
}

/// Behind this a condition's message quotes Kubernetes.
const QUOTE: &str = " Kubernetes says: ";

struct Words<'a> {
    cluster: &'a str,
    uids: &'a BTreeSet<String>,
}

async fn collect<K>(space: &Space, into: &mut Vec<Value>) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    for object in space.api::<K>().list(&ListParams::default()).await? {
        let mut value = serde_json::to_value(object)?;
        value["kind"] = json!(K::kind(&()));
        into.push(value);
    }
    Ok(())
}

fn one(mut object: Value, words: &Words<'_>, revisions: &BTreeSet<String>) -> (String, Value) {
    let kind = text(&object["kind"]).unwrap_or_default();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "namespace",
            "selfLink",
        ] {
            metadata.remove(key);
        }
    }
    match kind.as_str() {
        "Pod" => {
            let revision =
                text(&object["metadata"]["labels"]["controller-revision-hash"]).unwrap_or_default();
            object = json!({
                "metadata": { "name": object["metadata"]["name"] },
                "current": revisions.contains(&revision),
            });
        }
        "Secret" => object["data"] = keys_of(&object["data"]),
        "Service" => {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("clusterIP");
                spec.remove("clusterIPs");
            }
        }
        _ => {}
    }
    if kind != Kind::Cluster.name()
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    replace(&mut object, words);
    let name = text(&object["metadata"]["name"]).unwrap_or_default();
    (format!("{kind} {name}"), object)
}

/// Which keys a Secret has, without what they hold.
fn keys_of(data: &Value) -> Value {
    let keys = data.as_object().into_iter().flat_map(Map::keys);
    keys.map(|key| (key.clone(), json!("SECRET")))
        .collect::<Map<_, _>>()
        .into()
}

fn replace(value: &mut Value, words: &Words<'_>) {
    match value {
        Value::String(text) => *text = words.replaced(text),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, words)),
        Value::Object(fields) => {
            let renamed = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                replace(&mut value, words);
                (words.replaced(&key), value)
            });
            *fields = renamed.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Words<'_> {
    fn replaced(&self, text: &str) -> String {
        const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
        if text.contains(CERTIFICATE) {
            return format!("{} certificates", text.matches(CERTIFICATE).count());
        }
        if text.parse::<jiff::Timestamp>().is_ok() {
            return "TIME".to_owned();
        }
        // What an event of Kubernetes said last, and when, is a matter of timing.
        let text = text.split_once(QUOTE).map_or(text, |(ours, _)| ours);
        let mut text = text.replace(self.cluster, "NAME");
        for uid in self.uids {
            text = text.replace(uid.as_str(), "UID");
        }
        without_hashes(&text)
    }
}

/// Replaces each run of 16 and more hexadecimal digits: such a hash covers keys or uids, which differ.
fn without_hashes(text: &str) -> String {
    const SHORTEST: usize = 16;
    let mut replaced = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let run = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if run >= SHORTEST {
            replaced += "HASH";
        } else {
            replaced += &rest[..run];
        }
        rest = &rest[run..];
        let gap = rest.find(|c: char| c.is_ascii_hexdigit()).unwrap_or(rest.len());
        replaced += &rest[..gap];
        rest = &rest[gap..];
    }
    replaced
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_take_the_place_of_what_differs() {
        let uids = BTreeSet::from(["0a1b".to_owned()]);
        let words = Words {
            cluster: "crash-7",
            uids: &uids,
        };
        assert_eq!(words.replaced("crash-7-broker of 0a1b"), "NAME-broker of UID");
        assert_eq!(words.replaced("h-0123456789abcdef0, beef"), "h-HASH, beef");
        assert_eq!(words.replaced("no volume. Kubernetes says: wait"), "no volume.");
        assert_eq!(words.replaced("2026-01-02T03:04:05Z"), "TIME");
        let bundle = "-----BEGIN CERTIFICATE-----\nx\n-----BEGIN CERTIFICATE-----\ny\n";
        assert_eq!(words.replaced(bundle), "2 certificates");
    }

    #[test]
    fn a_difference_that_matters_stays() {
        let uids = BTreeSet::new();
        let words = Words {
            cluster: "c",
            uids: &uids,
        };
        let object = |generation: i64| json!({ "kind": "ConfigMap", "metadata": { "name": "c-x", "generation": generation }, "data": { "k": "v" } });
        let none = BTreeSet::new();
        assert_ne!(one(object(1), &words, &none), one(object(2), &words, &none));
        assert_eq!(one(object(1), &words, &none).0, "ConfigMap NAME-x");
    }
}
