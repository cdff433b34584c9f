//! The Secrets of a cluster and the CA bundle that clients mount.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};

use super::metadata::{lasting, owned};
use crate::{
    cluster::{material::Material, validate::ValidatedCluster},
    names::string_map,
};

/// The CA with its key, and all CAs of the bundle. No pod of the cluster mounts it.
pub(super) fn ca(cluster: &ValidatedCluster, material: &Material) -> Secret {
    Secret {
        metadata: lasting(cluster, cluster.names.ca()),
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data([
            ("ca.crt", &material.bundle_pem()),
            ("tls.crt", &material.ca.certificate),
            ("tls.key", &material.ca.key),
        ])),
        ..Secret::default()
    }
}

/// The CAs that clients should trust.
pub(super) fn ca_bundle(cluster: &ValidatedCluster, material: &Material) -> ConfigMap {
    ConfigMap {
        metadata: owned(cluster, cluster.names.ca()),
        data: Some(string_map([("ca.crt", material.bundle_pem().as_str())])),
        ..ConfigMap::default()
    }
}

/// The server certificate with its key. The bundle is in it so that its issuer is known whatever else is deleted.
pub(super) fn server_certificate(cluster: &ValidatedCluster, material: &Material) -> Secret {
    Secret {
        metadata: owned(cluster, cluster.names.server_certificate()),
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data([
            ("ca.crt", &material.bundle_pem()),
            ("tls.crt", &material.server.certificate),
            ("tls.key", &material.server.key),
        ])),
        ..Secret::default()
    }
}

/// The token of the admin API.
pub(super) fn admin_token(cluster: &ValidatedCluster, material: &Material) -> Secret {
    Secret {
        metadata: owned(cluster, cluster.names.admin_token()),
        type_: Some("Opaque".to_owned()),
        data: Some(data([("token", &material.admin_token)])),
        ..Secret::default()
    }
}

fn data<const N: usize>(entries: [(&str, &String); N]) -> BTreeMap<String, ByteString> {
    entries
        .into_iter()
        .map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())))
        .collect()
}
