//! Step three: from a checked cluster, its keys and its claim template to every object, in the order in which they are
//! applied. Pure: no client, no clock, no random numbers.

mod claims;
mod config;
mod disruption_budget;
mod identity;
mod metadata;
mod pod;
mod secrets;
mod services;
mod stateful_set;

use super::{material::Material, storage::ClaimTemplate, validate::ValidatedCluster};
use crate::apply::{ApplyError, Desired};

/// Every object of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Objects {
    /// The CA with its key, which outlives the cluster.
    pub(crate) ca: Desired,
    /// The server certificate with its key.
    pub(crate) server_certificate: Desired,
    /// The token of the admin API.
    pub(crate) admin_token: Desired,
    /// What else the pods mount and use.
    pub(crate) supporting: Vec<Desired>,
    /// The brokers, last.
    pub(crate) stateful_set: Desired,
}

/// Builds them all.
pub(crate) fn build(
    cluster: &ValidatedCluster,
    material: &Material,
    claims: &ClaimTemplate,
) -> Result<Objects, ApplyError> {
    let config = config::config_map(cluster);
    let supporting = vec![
        Desired::new(&secrets::ca_bundle(cluster, material))?,
        Desired::new(&identity::service_account(cluster))?,
        Desired::new(&identity::role(cluster))?,
        Desired::new(&identity::role_binding(cluster))?,
        Desired::new(&config)?,
        Desired::new(&services::headless(cluster))?,
        Desired::new(&services::client(cluster))?,
        Desired::new(&disruption_budget::disruption_budget(cluster))?,
    ];
    let stateful_set = Desired::new(&stateful_set::stateful_set(cluster, claims, &config))?;
    Ok(Objects {
        ca: Desired::new(&secrets::ca(cluster, material))?,
        server_certificate: Desired::new(&secrets::server_certificate(cluster, material))?,
        admin_token: Desired::new(&secrets::admin_token(cluster, material))?,
        supporting,
        stateful_set,
    })
}

#[cfg(test)]
mod tests;
