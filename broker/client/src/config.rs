//! What a user may set about a client, checked where it is set.

use std::time::Duration;

use bytes::Bytes;
use felix_wire::shard_of_key;
use rustls::pki_types::ServerName;

use crate::client::Client;
use crate::connect::{Dialer, tls_config};
use crate::credit;
use crate::error::ConnectError;

/// How long the first connection may take, refusals and lost packets included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a record may wait for its acknowledgement: longer than any deadline of the broker's.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Prepares a [`Client`].
#[derive(Clone, Debug)]
pub struct Builder {
    address: String,
    ca_pem: Option<Bytes>,
    server_name: Option<ServerName<'static>>,
    connect_timeout: Duration,
    delivery_timeout: Duration,
    unread_bytes: u64,
    agent: String,
    wish: Option<u8>,
}

impl Builder {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            ca_pem: None,
            server_name: None,
            connect_timeout: CONNECT_TIMEOUT,
            delivery_timeout: DELIVERY_TIMEOUT,
            unread_bytes: credit::DEFAULT_BUDGET,
            agent: concat!("felix-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            wish: None,
        }
    }

    /// The certificate authorities that the broker's certificate must chain to, as PEM. Required: without one no broker
    /// would be trusted.
    #[must_use]
    pub fn ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.ca_pem = Some(Bytes::copy_from_slice(pem.as_ref()));
        self
    }

    /// The name that the broker's certificate must carry. Without it, the host part of the address.
    pub fn server_name(mut self, name: &str) -> Result<Self, ConnectError> {
        self.server_name = Some(parse_server_name(name)?);
        Ok(self)
    }

    /// How long the first connection may take (15 s unless set). Later ones are tried until they stand.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a record may wait for its acknowledgement (60 s unless set). After that its outcome is unknown.
    #[must_use]
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.delivery_timeout = timeout;
        self
    }

    /// How many bytes of all this client's subscriptions together may wait in this process to be read (64 MiB unless
    /// set). One that is not read takes its part of it and no more. A subscription may always have 64 KiB and one batch.
    #[must_use]
    pub fn unread_bytes(mut self, bytes: u64) -> Self {
        self.unread_bytes = bytes;
        self
    }

    /// Program and version, for the broker's logs.
    #[must_use]
    pub fn agent(mut self, agent: &str) -> Self {
        self.agent = agent.to_owned();
        self
    }

    /// The shard of a stream that this client will mostly use. Clients of one shard then meet on one thread of the broker,
    /// and a record from one to the other need not wake a second one: less latency and less work while records are few. Many
    /// clients of one busy shard do better without it: they spread over all threads.
    #[must_use]
    pub fn near_shard(mut self, stream: &str, shard: u32) -> Self {
        // Neighbours differ, so the shards of one stream spread.
        let stream = shard_of_key(stream.as_bytes(), 1 << u8::BITS).0;
        let [wish, ..] = stream.wrapping_add(shard).to_le_bytes();
        self.wish = Some(wish);
        self
    }

    /// Connects. Refusals and time-outs are tried again until the connect time-out; a wrong certificate is not.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let (timeout, delivery_timeout) = (self.connect_timeout, self.delivery_timeout);
        let unread_bytes = self.unread_bytes;
        let client = Client::new(self.dialer()?, delivery_timeout, unread_bytes);
        client.first_connection(timeout).await?;
        Ok(client)
    }

    fn dialer(self) -> Result<Dialer, ConnectError> {
        let Some(host) = host_of(&self.address) else {
            return Err(ConnectError::Address {
                address: self.address,
            });
        };
        let server_name = match self.server_name {
            Some(name) => name,
            None => parse_server_name(host)?,
        };
        let pem = self.ca_pem.unwrap_or_default();
        Ok(Dialer {
            tls: tls_config(&pem)?,
            address: self.address,
            server_name,
            agent: self.agent,
            wish: self.wish,
        })
    }
}

fn parse_server_name(name: &str) -> Result<ServerName<'static>, ConnectError> {
    ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::ServerName {
        name: name.to_owned(),
    })
}

/// The host of `host:port` or `[v6]:port`; `None` where the text is neither.
fn host_of(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = match bracketed {
        Some(v6) => v6,
        None if host.contains(':') => return None,
        None => host,
    };
    (port != 0 && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_host_and_port() {
        assert_eq!(host_of("demo.ns.svc:5000"), Some("demo.ns.svc"));
        assert_eq!(host_of("127.0.0.1:1"), Some("127.0.0.1"));
        assert_eq!(host_of("[::1]:5000"), Some("::1"));
        for bad in [
            "",
            "demo",
            "demo:",
            ":5000",
            "demo:0",
            "demo:70000",
            "::1:5000",
            "[]:1",
        ] {
            assert_eq!(host_of(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_builder_without_a_usable_ca_is_refused() {
        let builder = Builder::new("demo:5000");
        assert!(matches!(builder.clone().dialer(), Err(ConnectError::Ca { .. })));
        assert!(matches!(
            builder.clone().ca_pem("no pem").dialer(),
            Err(ConnectError::Ca { .. })
        ));
        assert!(matches!(
            Builder::new("demo").dialer(),
            Err(ConnectError::Address { .. })
        ));
        assert!(matches!(
            builder.server_name("not a name"),
            Err(ConnectError::ServerName { .. })
        ));
    }
}
