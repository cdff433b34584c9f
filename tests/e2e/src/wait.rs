//! Waiting for what a watch shows, with a time-out that tells what was seen last.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use anyhow::{Context, Result, anyhow};
use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watch_object, watcher},
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// Time-out for what the operator does by itself, with no pod to start.
pub const QUICK: Duration = Duration::from_secs(60);
/// Time-out for what needs pods to start or stop.
pub const USUAL: Duration = Duration::from_secs(180);
/// Time-out for what waits for slow periods: image back-off, mounted files, a benchmark.
pub const SLOW: Duration = Duration::from_secs(420);

/// Awaits that `probe` finds what it looks for in the object called `name`, or in its absence.
///
/// # Errors
/// After `limit`, with the object as it was last seen.
pub async fn await_object<K, T>(
    api: &Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    mut probe: impl FnMut(Option<&K>) -> Option<T>,
) -> Result<T>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let mut last: Option<K> = None;
    let mut trouble = None;
    let watch = watch_object(api.clone(), name).default_backoff();
    pin_mut!(watch);
    let seen = async {
        while let Some(event) = watch.next().await {
            match event {
                Ok(object) => {
                    if let Some(found) = probe(object.as_ref()) {
                        return Some(found);
                    }
                    last = object;
                }
                Err(error) => trouble = Some(error),
            }
        }
        None
    };
    let outcome = tokio::time::timeout(limit, seen).await.ok().flatten();
    outcome.ok_or_else(|| {
        let state = last.map_or_else(|| "absent".to_owned(), |object| shown(&object));
        let trouble = trouble
            .map(|error| format!("\nlast error of the watch: {error}"))
            .unwrap_or_default();
        anyhow!("not within {limit:?}: {what}. {name} as last seen:\n{state}{trouble}")
    })
}

/// Awaits that `probe` finds what it looks for among the objects that `labels` selects.
///
/// # Errors
/// After `limit`, with the names last seen.
pub async fn await_list<K, T>(
    api: &Api<K>,
    labels: &str,
    what: &str,
    limit: Duration,
    mut probe: impl FnMut(&[&K]) -> Option<T>,
) -> Result<T>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut objects: BTreeMap<String, K> = BTreeMap::new();
    let watch = watcher(api.clone(), Config::default().labels(labels)).default_backoff();
    pin_mut!(watch);
    let seen = async {
        let mut complete = false;
        while let Some(event) = watch.next().await {
            match event {
                Ok(Event::Init) => (complete, objects) = (false, BTreeMap::new()),
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    objects.insert(object.name_any(), object);
                }
                Ok(Event::Delete(object)) => {
                    objects.remove(&object.name_any());
                }
                Ok(Event::InitDone) => complete = true,
                Err(_) => continue,
            }
            if complete && let Some(found) = probe(&objects.values().collect::<Vec<_>>()) {
                return Some(found);
            }
        }
        None
    };
    let outcome = tokio::time::timeout(limit, seen).await.ok().flatten();
    outcome.with_context(|| {
        let names: Vec<_> = objects.keys().collect();
        format!("not within {limit:?}: {what}. Last seen for {labels}: {names:?}")
    })
}

/// Asks again and again where nothing can be watched (a metric, an address) until `ask` has found it.
///
/// # Errors
/// After `limit`, with the last error of `ask` if it had one.
pub async fn poll<T>(
    what: &str,
    limit: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    const PAUSE: Duration = Duration::from_millis(200);
    let mut trouble = None;
    let found = async {
        loop {
            match ask().await {
                Ok(Some(found)) => return found,
                Ok(None) => trouble = None,
                Err(error) => trouble = Some(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let outcome = tokio::time::timeout(limit, found).await;
    outcome.map_err(|_| match trouble {
        Some(error) => error.context(format!("not within {limit:?}: {what}")),
        None => anyhow!("not within {limit:?}: {what}"),
    })
}

fn shown<K: Serialize>(object: &K) -> String {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value
        .get_mut("metadata")
        .and_then(|metadata| metadata.as_object_mut())
    {
        metadata.remove("managedFields");
    }
    if value["kind"] == "Secret" {
        value["data"] = "not shown".into();
    }
    serde_yaml::to_string(&value).unwrap_or_default()
}
