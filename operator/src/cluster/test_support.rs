//! Clusters for the tests of this module's steps.

use felix_crds::FelixCluster;
use serde_json::{Value, json};

use super::{
    dereference::{Observed, Workload},
    validate::{Defaults, ValidatedCluster, validate},
};
use crate::names::ClusterNames;

/// The identity of the test cluster: the uid of its object.
pub(super) const CLUSTER_ID: &str = "1d7e6f6c-0000-4000-8000-000000000001";

/// The settings of the operator in tests.
pub(super) fn defaults() -> Defaults {
    Defaults {
        broker_image: "localhost/felix-broker:0.1.0".to_owned(),
        cluster_domain: Some("cluster.local".to_owned()),
    }
}

/// A cluster named demo with this spec, of which nothing exists yet.
pub(super) fn observed(spec: &Value) -> Observed {
    let cluster: FelixCluster = serde_json::from_value(json!({
        "apiVersion": "felix.dev/v1alpha1",
        "kind": "FelixCluster",
        "metadata": { "name": "demo", "namespace": "ns", "uid": CLUSTER_ID, "generation": 1 },
        "spec": spec,
    }))
    .unwrap();
    Observed {
        cluster,
        names: ClusterNames::new("ns", "demo"),
        ca: None,
        server_certificate: None,
        admin_token: None,
        ca_bundle: None,
        workload: Workload::default(),
    }
}

/// The smallest cluster, checked.
pub(super) fn validated() -> ValidatedCluster {
    validate(&observed(&json!({ "storage": { "size": "1Gi" } })), &defaults()).unwrap()
}
