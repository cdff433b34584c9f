//! What every reconcile needs: the client, the settings, and where to count and tell.

use std::time::Duration;

use kube::{Api, Client, Resource, core::NamespaceResourceScope};

use crate::{
    config::{RunArgs, Scope},
    events::Events,
    metrics::Metrics,
};

/// Where one controller runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In every namespace.
    Everywhere,
    /// In this one.
    Namespace(String),
}

/// Shared by all controllers.
pub(crate) struct Context {
    /// The API server.
    pub(crate) client: Client,
    /// Which namespaces are looked after.
    pub(crate) scope: Scope,
    /// The operator's own namespace.
    pub(crate) operator_namespace: String,
    /// The namespace of the ConfigMap with the largest UDP buffers.
    pub(crate) udp_buffers_namespace: String,
    /// The broker image of FelixClusters that name none.
    pub(crate) broker_image: String,
    /// The image of benchmark Jobs.
    pub(crate) bench_image: String,
    /// The domain of this Kubernetes, for example cluster.local, where it is known.
    pub(crate) cluster_domain: Option<String>,
    /// How often everything is looked at again although nothing changed.
    pub(crate) resync: Duration,
    /// Events on our objects.
    pub(crate) events: Events,
    /// Counters of the operator.
    pub(crate) metrics: Metrics,
}

impl Context {
    /// From the settings; finds the operator's namespace and the cluster's domain where they are not set.
    pub(crate) fn new(client: Client, args: &RunArgs, metrics: Metrics) -> Self {
        let operator_namespace = args
            .operator_namespace
            .clone()
            .unwrap_or_else(|| client.default_namespace().to_owned());
        Self {
            scope: Scope::new(&args.watch_namespaces, &operator_namespace),
            udp_buffers_namespace: args
                .udp_buffers_namespace
                .clone()
                .unwrap_or_else(|| operator_namespace.clone()),
            operator_namespace,
            broker_image: args.broker_image.clone(),
            bench_image: args.bench_image.clone(),
            cluster_domain: args.cluster_domain.clone().or_else(domain_of_this_pod),
            resync: Duration::from_secs(args.resync_seconds),
            events: Events::new(client.clone()),
            metrics,
            client,
        }
    }

    /// Where controllers run: one for each namespace that is looked after, or one for all.
    pub(crate) fn places(&self) -> Vec<Place> {
        match &self.scope {
            Scope::All => vec![Place::Everywhere],
            Scope::Namespaces(names) => names.iter().cloned().map(Place::Namespace).collect(),
        }
    }

    /// Access to a place.
    pub(crate) fn api_in<K>(&self, place: &Place) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match place {
            Place::Everywhere => Api::all(self.client.clone()),
            Place::Namespace(name) => self.api(name),
        }
    }

    /// One access for each place.
    pub(crate) fn apis<K>(&self) -> Vec<Api<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.places().iter().map(|place| self.api_in(place)).collect()
    }

    /// Access to one namespace.
    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// The kubelet writes the domain into the search list of every pod.
fn domain_of_this_pod() -> Option<String> {
    domain_in(&std::fs::read_to_string("/etc/resolv.conf").ok()?)
}

fn domain_in(resolv_conf: &str) -> Option<String> {
    let searches = resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("search"));
    let mut names = searches.flat_map(str::split_whitespace);
    names
        .find_map(|name| name.strip_prefix("svc."))
        .map(|domain| domain.trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_read_from_the_search_list() {
        let pod = "search ns.svc.corp.internal svc.corp.internal corp.internal\nnameserver 10.96.0.10\noptions ndots:5\n";
        assert_eq!(domain_in(pod).as_deref(), Some("corp.internal"));
        assert_eq!(domain_in("nameserver 1.1.1.1\nsearch example.com\n"), None);
    }
}
