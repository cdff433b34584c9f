//! Starting what stands between publisher and subscribers inside this process.

use std::path::Path;

use anyhow::{Context, bail};
use tokio::task::JoinHandle;

use super::ends::Access;
use super::felix::STREAM;
use super::forwarder;
use super::plan::{Case, Middle};
use crate::limits::quic::{Listening, listen};
use crate::limits::relay;
use crate::target::Target;

/// It runs until this is dropped or stopped.
pub(super) enum Running {
    Broker(Box<Target>),
    Task(JoinHandle<()>),
}

/// Starts a middle; files that the ends need are put into `directory`.
pub(super) async fn start(case: &Case, directory: &Path) -> anyhow::Result<(Access, Running)> {
    let ca = directory.join("ca.crt");
    let keep = |pem: &[u8]| std::fs::write(&ca, pem).with_context(|| format!("writing {}", ca.display()));
    let (address, running) = match case.middle {
        Middle::Felix => {
            let target = Target::embedded(STREAM).await?;
            keep(target.ca_pem())?;
            (target.address().parse()?, Running::Broker(Box::new(target)))
        }
        Middle::Relay => {
            let Listening {
                endpoint,
                address,
                ca_pem,
            } = listen()?;
            keep(ca_pem.as_bytes())?;
            let (fanout, acked) = (case.fanout, case.acked);
            let task = tokio::spawn(async move {
                if let Err(error) = relay::relay(endpoint, fanout, acked).await {
                    tracing::debug!(%error, "the relay ended");
                }
            });
            (address, Running::Task(task))
        }
        Middle::RelayEnds => {
            let Listening {
                endpoint,
                address,
                ca_pem,
            } = listen()?;
            keep(ca_pem.as_bytes())?;
            (address, Running::Task(tokio::spawn(forwarder::serve(endpoint))))
        }
        Middle::Nats | Middle::NatsPlain => bail!("NATS does not run inside this program"),
    };
    Ok((Access { address, ca }, running))
}

impl Running {
    /// Ends it.
    pub(super) async fn stop(self) {
        match self {
            Self::Broker(target) => target.stop().await,
            Self::Task(task) => task.abort(),
        }
    }
}
