//! A broker inside another program, for tests and demonstrations: ports of the system's choice, a temporary directory.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use felix_store::StreamSpec;
use felix_wire::{NameError, StreamName};
use tokio::runtime::Handle;

use crate::{
    catalogue::{CatalogueError, NewStream},
    lanes,
    server::{Addresses, Server, StartError},
    settings::{Millis, Settings},
};

/// Who owns streams that are made through the handle.
const OWNER: &str = "embedded";
/// Programs that embed a broker want to end soon.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// How an embedded broker differs from one that is run by hand.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Where identity, catalogue and keys are kept; `None` for a temporary directory that goes with the broker.
    pub data_dir: Option<PathBuf>,
    /// All other settings. Begins as the defaults with ports of the system's choice on the loopback interface, and with one
    /// lane: lanes give threads their own work, and the caller's runtime spreads tasks over its threads already.
    pub settings: Settings,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let settings = Settings {
            quic_bind: any_port,
            lanes: Some(1),
            metrics_bind: any_port,
            admin_bind: any_port,
            shutdown_drain_timeout_ms: Millis(DRAIN_TIMEOUT),
            ..Settings::defaults()
        };
        Self {
            data_dir: None,
            settings,
        }
    }
}

/// Why an embedded broker did not start or did not take a stream.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The broker did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system refuses a temporary directory, or a file of it.
    #[error("embedded broker: {0}")]
    Io(#[from] std::io::Error),
    /// The stream's name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The catalogue does not take the stream.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

/// A running broker; it lives until [`EmbeddedBroker::shutdown`] or the end of the runtime.
pub struct EmbeddedBroker {
    server: Server,
    ca_pem: Vec<u8>,
    admin_token: String,
    /// Removed when the broker is gone.
    _temporary: Option<tempfile::TempDir>,
}

/// Starts a broker on the current runtime, all its lanes included.
///
/// # Errors
/// See [`EmbeddedError`].
pub async fn embedded(config: EmbeddedConfig) -> Result<EmbeddedBroker, EmbeddedError> {
    let EmbeddedConfig {
        data_dir,
        mut settings,
    } = config;
    let temporary = match data_dir {
        Some(directory) => {
            settings.data_dir = directory;
            None
        }
        None => {
            let directory = tempfile::tempdir()?;
            settings.data_dir = directory.path().to_owned();
            Some(directory)
        }
    };
    let token_file = settings
        .admin_token_file
        .clone()
        .unwrap_or_else(|| settings.data_dir.join("admin/token"));
    let here = Handle::current();
    let lanes = vec![here.clone(); usize::from(lanes::count(settings.lanes))];
    let server = Server::start(settings, &lanes, &here).await?;
    let ca_pem = match server.ca_file() {
        Some(path) => fs::read(path)?,
        None => Vec::new(),
    };
    let admin_token = fs::read_to_string(token_file)?.trim().to_owned();
    Ok(EmbeddedBroker {
        server,
        ca_pem,
        admin_token,
        _temporary: temporary,
    })
}

impl EmbeddedBroker {
    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.server.addresses().quic
    }

    /// All addresses.
    pub fn addresses(&self) -> Addresses {
        self.server.addresses()
    }

    /// Where the admin API listens.
    pub fn admin_addr(&self) -> SocketAddr {
        self.server.addresses().admin
    }

    /// The bearer token of the admin API.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// The certificate of the broker's CA, for clients; empty where the settings name a certificate of another CA. The
    /// broker answers to `localhost` and 127.0.0.1.
    pub fn ca_pem(&self) -> &[u8] {
        &self.ca_pem
    }

    /// Where identity, catalogue and keys are kept.
    pub fn data_dir(&self) -> &Path {
        self.server.data_dir()
    }

    /// Creates a stream, or changes one that was created by this method.
    ///
    /// # Errors
    /// [`EmbeddedError::Name`] or [`EmbeddedError::Catalogue`].
    pub async fn create_stream(&self, name: &str, spec: StreamSpec) -> Result<(), EmbeddedError> {
        let name = StreamName::new(name)?;
        let new = NewStream {
            name: &name,
            owner: OWNER,
            expected_version: None,
            spec,
        };
        self.server.broker().catalogue().put(new).await?;
        Ok(())
    }

    /// Removes a stream that was created by [`EmbeddedBroker::create_stream`].
    ///
    /// # Errors
    /// [`EmbeddedError::Catalogue`].
    pub async fn delete_stream(&self, name: &str) -> Result<(), EmbeddedError> {
        self.server.broker().catalogue().delete(name, OWNER, None).await?;
        Ok(())
    }

    /// The metrics, as `/metrics` answers them.
    pub fn metrics_text(&self) -> String {
        self.server.broker().render_metrics()
    }

    /// Stops the broker: what is stored is delivered, connections are closed with a code that says so.
    pub async fn shutdown(self) {
        self.server.shutdown().await;
    }
}
