//! What is measured: a broker at an address, or one inside this process.

use anyhow::Context;
use felix_client::{Client, SlowPolicy};

use crate::cli::{LatencyArgs, PolicyChoice};

/// Where a broker is reached.
pub(crate) struct Target {
    address: String,
    ca_pem: Vec<u8>,
    server_name: Option<String>,
    /// How results name it: `embedded`, or the address.
    pub(crate) name: String,
}

impl Target {
    /// The broker that the flags name. Fails where the CA file cannot be read.
    pub(crate) fn from_args(args: &LatencyArgs) -> anyhow::Result<Self> {
        let address = args.address.clone().context("--address is not set")?;
        let ca = args.ca.as_ref().context("--ca is not set")?;
        let ca_pem = std::fs::read(ca).with_context(|| format!("reading --ca {}", ca.display()))?;
        Ok(Self {
            name: address.clone(),
            address,
            ca_pem,
            server_name: args.server_name.clone(),
        })
    }

    /// A new connection to it.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let mut builder = Client::builder(&self.address)
            .ca_pem(&self.ca_pem)
            .agent(concat!("felix-bench/", env!("CARGO_PKG_VERSION")));
        if let Some(name) = &self.server_name {
            builder = builder.server_name(name)?;
        }
        Ok(builder.connect().await?)
    }
}

/// The policy that subscriptions ask for.
pub(crate) fn policy(choice: PolicyChoice) -> Option<SlowPolicy> {
    match choice {
        PolicyChoice::Block => Some(SlowPolicy::Block),
        PolicyChoice::Stream => None,
    }
}
