//! What is measured: a broker at an address, or one inside this process.

use anyhow::Context;
use felix_broker::{
    EmbeddedBroker, EmbeddedConfig, SlowSubscriberPolicy, SlowSubscriberSpec, StreamSpec, embedded,
};
use felix_client::{Client, SlowPolicy};

use crate::cli::{LatencyArgs, PolicyChoice};

/// Bytes of recent batches that the embedded broker keeps: enough that subscribers are served from memory, small enough
/// that most of a run is not in it.
const RING_BYTES: u64 = 64 << 20;

/// How far a subscriber of the embedded broker may lag before the publisher is paced, in bytes.
const WINDOW_BYTES: u64 = 8 << 20;

/// Where a broker is reached.
pub(crate) struct Target {
    address: String,
    ca_pem: Vec<u8>,
    server_name: Option<String>,
    embedded: Option<EmbeddedBroker>,
    /// How results name it: `embedded`, or the address.
    pub(crate) name: String,
}

impl Target {
    /// The broker that the flags name, or one that is started here. Fails where the CA file cannot be read.
    pub(crate) async fn from_args(args: &LatencyArgs) -> anyhow::Result<Self> {
        let (Some(address), Some(ca)) = (&args.address, &args.ca) else {
            return Self::embedded(&args.stream).await;
        };
        let ca_pem = std::fs::read(ca).with_context(|| format!("reading --ca {}", ca.display()))?;
        Ok(Self {
            name: address.clone(),
            address: address.clone(),
            ca_pem,
            server_name: args.server_name.clone(),
            embedded: None,
        })
    }

    /// A broker with its stream in this process, on this runtime.
    pub(crate) async fn embedded(stream: &str) -> anyhow::Result<Self> {
        let broker = embedded(EmbeddedConfig::default())
            .await
            .context("starting the embedded broker")?;
        broker
            .create_stream(stream, stream_spec())
            .await
            .with_context(|| format!("creating stream {stream:?}"))?;
        Ok(Self {
            address: broker.addr().to_string(),
            ca_pem: broker.ca_pem().to_vec(),
            server_name: Some("localhost".into()),
            embedded: Some(broker),
            name: "embedded".into(),
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

    /// Where it listens, `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What its clients trust.
    pub(crate) fn ca_pem(&self) -> &[u8] {
        &self.ca_pem
    }

    /// Stops the broker if it is ours.
    pub(crate) async fn stop(self) {
        if let Some(broker) = self.embedded {
            broker.shutdown().await;
        }
    }
}

/// The stream of a broker that is started for a measurement: subscribers may pace the publisher, so nothing is dropped.
pub(crate) fn stream_spec() -> StreamSpec {
    let slow_subscriber = SlowSubscriberSpec {
        policy: SlowSubscriberPolicy::Block,
        window_bytes: WINDOW_BYTES,
        allow_block: true,
    };
    StreamSpec {
        ring_bytes: RING_BYTES,
        slow_subscriber,
        ..StreamSpec::default()
    }
}

/// The policy that subscriptions ask for.
pub(crate) fn policy(choice: PolicyChoice) -> Option<SlowPolicy> {
    match choice {
        PolicyChoice::Block => Some(SlowPolicy::Block),
        PolicyChoice::Stream => None,
    }
}
