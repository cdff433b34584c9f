//! The ConfigMap with the largest UDP buffers that any FelixCluster asks for: what the node tuner follows.

use std::sync::Arc;

use felix_crds::{FelixCluster, UdpBufferSpec};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PartialObjectMeta},
    runtime::{WatchStreamExt as _, reflector::Store, watcher},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    apply::{Desired, apply},
    context::Context,
    controllers::Guarded,
    names::{FIELD_MANAGER, MANAGED_BY_LABEL, UDP_BUFFERS_CONFIG_MAP, string_map},
};

/// The wait after a failed write.
const RETRY: std::time::Duration = std::time::Duration::from_secs(5);

/// Keeps the ConfigMap after each change that `changed` tells, until `stop`.
pub(crate) async fn keep(
    context: Arc<Context>,
    stores: Vec<Store<Guarded<FelixCluster>>>,
    changed: Arc<Notify>,
    stop: CancellationToken,
) {
    // Before every store has seen its list, "the largest of all" is not known.
    for store in &stores {
        tokio::select! {
            ready = store.wait_until_ready() => if ready.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
    let api: Api<PartialObjectMeta<ConfigMap>> = context.api(&context.udp_buffers_namespace);
    let this_one = watcher::Config::default().fields(&format!("metadata.name={UDP_BUFFERS_CONFIG_MAP}"));
    let mut touched = std::pin::pin!(watcher(api, this_one).default_backoff().touched_objects());
    loop {
        let clusters = stores.iter().flat_map(Store::state);
        let asked = clusters.filter_map(|cluster| cluster.0.as_ref().ok().map(|c| c.spec.udp_buffers));
        let result = write(&context, largest(asked)).await;
        let failed = async {
            match &result {
                Ok(()) => std::future::pending().await,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        if let Err(error) = &result {
            tracing::warn!(%error, "the largest UDP buffers were not written");
        }
        tokio::select! {
            () = changed.notified() => {}
            _ = touched.next() => {}
            () = tokio::time::sleep(context.resync) => {}
            () = failed => {}
            () = stop.cancelled() => return,
        }
    }
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
    use super::*;

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
