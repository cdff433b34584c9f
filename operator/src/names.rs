//! The name and the labels of every object, from the cluster that it belongs to.

use std::collections::BTreeMap;

/// The field manager of everything that the operator applies.
pub(crate) const FIELD_MANAGER: &str = "felix-operator";
/// The finalizer on objects whose deletion needs the operator.
pub(crate) const FINALIZER: &str = "felix.dev/operator";
/// The label that names the FelixCluster that an object belongs to.
pub(crate) const CLUSTER_LABEL: &str = "felix.dev/cluster";
/// The label with the identity of a cluster, on what outlives the FelixCluster object.
pub(crate) const CLUSTER_ID_LABEL: &str = "felix.dev/cluster-id";
/// The label that names who manages an object.
pub(crate) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The hash of what was last applied, on every applied object.
pub(crate) const APPLIED_HASH: &str = "felix.dev/applied-hash";
/// The hash of the broker's settings, on the pod template: a change of settings is a change of the template.
pub(crate) const CONFIG_HASH: &str = "felix.dev/config-hash";
/// What a claim was made for (class and size), on the claim template and so on each claim.
pub(crate) const REQUESTED_STORAGE: &str = "felix.dev/requested-storage";
/// The ConfigMap with the largest UDP buffers that any FelixCluster asks for, in the operator's namespace.
pub(crate) const UDP_BUFFERS_CONFIG_MAP: &str = "felix-udp-buffers";
/// The name of the claim template, and so the first part of each claim's name.
pub(crate) const CLAIM_TEMPLATE: &str = "data";

/// UDP port of QUIC.
pub(crate) const QUIC_PORT: i32 = 5000;
/// UDP port kept for brokers among themselves.
pub(crate) const PEER_PORT: i32 = 5001;
/// TCP port of /livez, /readyz and /metrics.
pub(crate) const METRICS_PORT: i32 = 8080;
/// TCP port of the admin API.
pub(crate) const ADMIN_PORT: i32 = 8443;

/// The names of the objects of one FelixCluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterNames {
    cluster: String,
    namespace: String,
}

impl ClusterNames {
    /// Of the FelixCluster `cluster` in `namespace`.
    pub(crate) fn new(namespace: impl Into<String>, cluster: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            namespace: namespace.into(),
        }
    }

    /// The FelixCluster itself.
    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The namespace of all of them.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// StatefulSet, PodDisruptionBudget, ServiceAccount, Role and RoleBinding of the brokers.
    pub(crate) fn broker(&self) -> String {
        format!("{}-broker", self.cluster)
    }

    /// The headless Service.
    pub(crate) fn headless_service(&self) -> String {
        format!("{}-brokers", self.cluster)
    }

    /// The Service that clients connect to.
    pub(crate) fn client_service(&self) -> String {
        self.cluster.clone()
    }

    /// The ConfigMap with the settings of the brokers (key `config.yaml`).
    pub(crate) fn config(&self) -> String {
        format!("{}-config", self.cluster)
    }

    /// The Secret with the CA and its key, and the ConfigMap with the CA bundle (key `ca.crt`).
    pub(crate) fn ca(&self) -> String {
        format!("{}-ca", self.cluster)
    }

    /// The Secret with the server certificate.
    pub(crate) fn server_certificate(&self) -> String {
        format!("{}-tls", self.cluster)
    }

    /// The Secret with the bearer token of the admin API (key `token`).
    pub(crate) fn admin_token(&self) -> String {
        format!("{}-admin-token", self.cluster)
    }

    /// The pod of an ordinal.
    pub(crate) fn pod(&self, ordinal: i32) -> String {
        format!("{}-{ordinal}", self.broker())
    }

    /// The claim of an ordinal.
    pub(crate) fn claim(&self, ordinal: i32) -> String {
        format!("{CLAIM_TEMPLATE}-{}", self.pod(ordinal))
    }

    /// The host name under which a pod's certificate is valid.
    pub(crate) fn pod_host(&self, pod: &str) -> String {
        format!("{pod}.{}.{}.svc", self.headless_service(), self.namespace)
    }

    /// Host and port that clients in this Kubernetes connect to.
    pub(crate) fn client_address(&self) -> String {
        format!("{}.{}.svc:{QUIC_PORT}", self.client_service(), self.namespace)
    }

    /// What selects the broker pods. These labels never change: a StatefulSet's selector cannot.
    pub(crate) fn selector(&self) -> BTreeMap<String, String> {
        string_map([
            ("app.kubernetes.io/name", "felix"),
            ("app.kubernetes.io/instance", &self.cluster),
            ("app.kubernetes.io/component", "broker"),
        ])
    }

    /// The labels of every object of the cluster.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector();
        labels.insert(MANAGED_BY_LABEL.to_owned(), FIELD_MANAGER.to_owned());
        labels.insert(CLUSTER_LABEL.to_owned(), self.cluster.clone());
        labels
    }

    /// The labels of what outlives the FelixCluster.
    pub(crate) fn lasting_labels(&self, cluster_id: &str) -> BTreeMap<String, String> {
        let mut labels = self.labels();
        labels.insert(CLUSTER_ID_LABEL.to_owned(), cluster_id.to_owned());
        labels
    }
}

/// A map of strings from pairs.
pub(crate) fn string_map<'a>(
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, String> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// A label selector from labels that must all be there.
pub(crate) fn selector_text(labels: &BTreeMap<String, String>) -> String {
    let parts: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_names_fit_what_kubernetes_appends() {
        let names = ClusterNames::new("ns", "x".repeat(felix_crds::MAX_CLUSTER_NAME));
        assert!(
            names.broker().len() <= 52,
            "a StatefulSet's name and its revision must fit a label"
        );
        for name in [
            names.headless_service(),
            names.client_service(),
            names.claim(99),
            names.pod(99),
        ] {
            assert!(name.len() <= 63, "{name}");
        }
    }

    #[test]
    fn selector_text_joins_all_labels() {
        let text = selector_text(&ClusterNames::new("ns", "demo").selector());
        assert_eq!(
            text,
            "app.kubernetes.io/component=broker,app.kubernetes.io/instance=demo,app.kubernetes.io/name=felix"
        );
    }
}
