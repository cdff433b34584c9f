//! The two Services of a cluster.

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::metadata::owned;
use crate::{
    cluster::validate::ValidatedCluster,
    names::{ADMIN_PORT, METRICS_PORT, PEER_PORT, QUIC_PORT},
};

/// One DNS name for each broker pod, also for those that are not ready: brokers must find each other to become so.
pub(super) fn headless(cluster: &ValidatedCluster) -> Service {
    Service {
        metadata: owned(cluster, cluster.names.headless_service()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(cluster.names.selector()),
            ports: Some(vec![
                port("quic", "UDP", QUIC_PORT),
                port("peer", "UDP", PEER_PORT),
                port("metrics", "TCP", METRICS_PORT),
                port("admin", "TCP", ADMIN_PORT),
            ]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Where clients connect. Only brokers that are ready are behind it.
pub(super) fn client(cluster: &ValidatedCluster) -> Service {
    let mut metadata = owned(cluster, cluster.names.client_service());
    let mut labels = cluster.service_labels.clone();
    labels.extend(cluster.names.labels());
    metadata.labels = Some(labels);
    if !cluster.service_annotations.is_empty() {
        metadata.annotations = Some(cluster.service_annotations.clone());
    }
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(cluster.names.selector()),
            ports: Some(vec![port("quic", "UDP", QUIC_PORT)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn port(name: &str, protocol: &str, port: i32) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        protocol: Some(protocol.to_owned()),
        port,
        target_port: Some(IntOrString::String(name.to_owned())),
        ..ServicePort::default()
    }
}
