//! Clients of a cluster that run in the scenario's own process and dial the client Service.

use anyhow::{Context, Result};
use felix_client::Client;

use crate::{Space, wait::QUICK};

impl Space {
    /// A client of a cluster, by its client Service.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn connect(&self, cluster: &str) -> Result<Client> {
        let ca = self.ca_bundle(cluster).await?;
        self.connect_with(cluster, &ca).await
    }

    /// The same, trusting another bundle.
    ///
    /// # Errors
    /// If it cannot connect.
    pub async fn connect_with(&self, cluster: &str, ca: &str) -> Result<Client> {
        let address = self.client_address(cluster).await?;
        let name = format!("{cluster}.{}.svc", self.name);
        let client = Client::builder(&address)
            .ca_pem(ca.as_bytes())
            .server_name(&name)?;
        tokio::time::timeout(QUICK, client.connect())
            .await
            .with_context(|| format!("no connection to {address} in {QUICK:?}"))?
            .with_context(|| format!("cannot connect to {address}"))
    }
}
