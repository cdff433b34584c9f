//! The ConfigMap with the largest UDP buffers that any FelixCluster asks for: what the node tuner follows.
//!
//! It follows FelixClusters by a watch of its own: a cluster that goes is no reason for a reconcile, and when the last one
//! is gone there is none to be had.

use std::sync::Arc;

use felix_crds::{FelixCluster, UdpBufferSpec};
use futures::{Stream, StreamExt as _, stream::select_all};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PartialObjectMeta},
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher,
    },
};
use tokio_util::sync::CancellationToken;

use crate::{
    apply::{Desired, apply},
    context::Context,
    controllers::Guarded,
    names::{FIELD_MANAGER, MANAGED_BY_LABEL, UDP_BUFFERS_CONFIG_MAP, string_map},
};

/// The wait after a failed write.
const RETRY: std::time::Duration = std::time::Duration::from_secs(5);

/// Keeps the ConfigMap after each change of a FelixCluster, until `stop`.
pub(crate) async fn keep(context: Arc<Context>, stop: CancellationToken) {
    let (stores, changes): (Vec<_>, Vec<_>) = context
        .apis::<Guarded<FelixCluster>>()
        .into_iter()
        .map(follow)
        .unzip();
    let mut changes = select_all(changes);
    let api: Api<PartialObjectMeta<ConfigMap>> = context.api(&context.udp_buffers_namespace);
    let this_one = watcher::Config::default().fields(&format!("metadata.name={UDP_BUFFERS_CONFIG_MAP}"));
    let mut touched = std::pin::pin!(watcher(api, this_one).default_backoff().touched_objects());
    // Before every store has seen its list, "the largest of all" is not known.
    let mut unseen = stores.len();
    loop {
        let written = if unseen == 0 {
            write(&context, largest(asked(&stores))).await
        } else {
            Ok(())
        };
        if let Err(error) = &written {
            tracing::warn!(%error, "the largest UDP buffers were not written");
        }
        let again = if written.is_ok() { context.resync } else { RETRY };
        tokio::select! {
            Some(change) = changes.next() => match change {
                Ok(Change::FirstList) => unseen -= 1,
                Ok(Change::Later) => {}
                Err(error) => tracing::warn!(%error, "the watch of FelixClusters failed and is tried again"),
            },
            Some(_) = touched.next() => {}
            () = tokio::time::sleep(again) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// What a watch has told.
enum Change {
    /// The first list is complete.
    FirstList,
    /// Something has come, changed or gone.
    Later,
}

type Changes = std::pin::Pin<Box<dyn Stream<Item = Result<Change, watcher::Error>> + Send>>;

/// The FelixClusters of a place, and their changes. A change is told after the store has it.
fn follow(api: Api<Guarded<FelixCluster>>) -> (Store<Guarded<FelixCluster>>, Changes) {
    let (store, writer) = reflector::store();
    let mut listed = false;
    let events = watcher(api, watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let changes = events.filter_map(move |event| {
        let change = match event {
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => None,
            Ok(watcher::Event::InitDone) if !std::mem::replace(&mut listed, true) => {
                Some(Ok(Change::FirstList))
            }
            Ok(watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
                Some(Ok(Change::Later))
            }
            Err(error) => Some(Err(error)),
        };
        std::future::ready(change)
    });
    (store, changes.boxed())
}

/// What every readable cluster asks for, one that is being deleted included: its brokers may still run.
fn asked(stores: &[Store<Guarded<FelixCluster>>]) -> impl Iterator<Item = UdpBufferSpec> {
    let clusters = stores.iter().flat_map(Store::state);
    clusters.filter_map(|cluster| cluster.0.as_ref().ok().map(|cluster| cluster.spec.udp_buffers))
}

async fn write(context: &Context, buffers: UdpBufferSpec) -> Result<(), crate::apply::ApplyError> {
    let desired = Desired::new(&config_map(&context.udp_buffers_namespace, buffers))?;
    apply(&context.client, &desired).await.map(drop)
}

/// Direction by direction; nothing is asked for where there is no cluster.
fn largest(asked: impl Iterator<Item = UdpBufferSpec>) -> UdpBufferSpec {
    asked.fold(
        UdpBufferSpec {
            receive_bytes: 0,
            send_bytes: 0,
        },
        |most, next| UdpBufferSpec {
            receive_bytes: most.receive_bytes.max(next.receive_bytes),
            send_bytes: most.send_bytes.max(next.send_bytes),
        },
    )
}

fn config_map(namespace: &str, buffers: UdpBufferSpec) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(UDP_BUFFERS_CONFIG_MAP.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(string_map([(MANAGED_BY_LABEL, FIELD_MANAGER)])),
            ..ObjectMeta::default()
        },
        data: Some(string_map([
            ("receiveBytes", buffers.receive_bytes.to_string().as_str()),
            ("sendBytes", buffers.send_bytes.to_string().as_str()),
        ])),
        ..ConfigMap::default()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        config::{Cli, Command},
        fake_api::FakeApi,
        metrics::Metrics,
    };

    const CONFIG_MAP: &str = "/api/v1/namespaces/tuner/configmaps/felix-udp-buffers";

    fn cluster(namespace: &str, name: &str, bytes: i64) -> (String, Value) {
        let object = json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixCluster",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "storage": { "size": "1Gi" }, "udpBuffers": { "receiveBytes": bytes, "sendBytes": bytes } },
        });
        let path = format!("/apis/felix.dev/v1alpha1/namespaces/{namespace}/felixclusters/{name}");
        (path, object)
    }

    #[tokio::test]
    async fn a_cluster_that_goes_is_followed_at_once_and_the_last_one_too() {
        let api = FakeApi::default();
        let (small, large) = (cluster("a", "small", 1 << 20), cluster("b", "large", 4 << 20));
        api.put(&small.0, small.1.clone());
        api.put(&large.0, large.1.clone());
        // What is seen within the test is told by a watch, not by a resync.
        let arguments =
            "felix-operator run --watch-namespaces a,b --udp-buffers-namespace tuner --resync-seconds 86400";
        let Command::Run(args) = Cli::parse_from(arguments.split(' ')).command else {
            panic!("not run")
        };
        let metrics = Metrics::register(&mut Registry::default());
        let context = Arc::new(Context::new(api.client(), &args, metrics));
        let stop = CancellationToken::new();
        let keeping = tokio::spawn(keep(context, stop.clone()));
        let holds = async |bytes: i64| {
            let text = bytes.to_string();
            api.until(CONFIG_MAP, |map| {
                map.is_some_and(|map| map["data"]["receiveBytes"] == text && map["data"]["sendBytes"] == text)
            })
            .await;
        };
        holds(4 << 20).await;
        api.remove(&large.0);
        holds(1 << 20).await;
        api.remove(&small.0);
        holds(0).await;
        api.remove(CONFIG_MAP);
        holds(0).await;
        api.put(&large.0, large.1.clone());
        holds(4 << 20).await;
        stop.cancel();
        keeping.await.unwrap();
    }

    #[test]
    fn the_largest_is_taken_direction_by_direction() {
        let buffers = |receive_bytes, send_bytes| UdpBufferSpec {
            receive_bytes,
            send_bytes,
        };
        assert_eq!(largest([buffers(1, 9), buffers(5, 2)].into_iter()), buffers(5, 9));
        assert_eq!(largest(std::iter::empty()), buffers(0, 0));
        let data = config_map("felix", buffers(5, 9)).data.unwrap();
        assert_eq!(data, string_map([("receiveBytes", "5"), ("sendBytes", "9")]));
    }
}
