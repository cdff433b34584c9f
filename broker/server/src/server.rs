//! Putting a broker together, and taking it apart again in the right order.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use felix_store::FileStore;
use felix_wire::ErrorCode;
use tokio::{runtime::Handle, task::JoinHandle, time};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    admin::{self, AdminToken, TokenError},
    broker::{Broker, MAX_PUBLISHERS, MAX_SUBSCRIPTIONS, Phase, Stopping},
    catalogue::{CatalogueError, CatalogueService},
    clock::Clock,
    connection::close_code,
    connections::Connections,
    data_dir::{DataDir, DataDirError, QuicKeys},
    gauge::Gauge,
    http::HttpPort,
    lanes,
    memory::{Budget, InFlight},
    metrics::Metrics,
    mtu::{DatagramSizes, Interfaces},
    peers::{self, Book, Teller},
    probes,
    quic_port::QuicPort,
    rings::Rings,
    settings::Settings,
    streams::Streams,
    tls::{self, CA_FILE, Certificate, CertificateFiles, TlsError},
    transport::{self, ConfigError, ServerConfigs},
    udp::{self, BindError, BufferHandle},
    upkeep,
};

/// Protocol of the admin API within TLS.
const HTTP_1_1: &[u8] = b"http/1.1";

/// Why a broker did not start. Each message names the setting or the file.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The catalogue cannot be read.
    #[error(transparent)]
    Store(#[from] felix_store::OpenError),
    /// The catalogue cannot be written.
    #[error("catalogue: {0}")]
    Catalogue(#[from] CatalogueError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// TLS cannot be configured.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The admin token cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A port cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refuses something else.
    #[error("starting the endpoint: {0}")]
    Io(#[from] io::Error),
}

/// A running broker.
pub struct Server {
    broker: Arc<Broker>,
    port: QuicPort,
    addresses: Addresses,
    ca_file: Option<PathBuf>,
    drain_timeout: Duration,
    stop_serving: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    /// Keeps the directory locked until the very end.
    data_dir: DataDir,
}

/// Where a broker listens, with the ports that the system gave.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Clients, QUIC.
    pub quic: SocketAddr,
    /// Probes and metrics, plain HTTP.
    pub metrics: SocketAddr,
    /// The admin API, HTTPS.
    pub admin: SocketAddr,
}

/// What is read from files, and found out about the machine, before anything listens.
struct Prepared {
    data_dir: DataDir,
    keys: QuicKeys,
    certificate: Arc<Certificate>,
    ca_file: Option<PathBuf>,
    token: Arc<AdminToken>,
    sizes: DatagramSizes,
    store: Arc<FileStore>,
}

impl Server {
    /// Starts a broker. Clients are served on `lanes`, one runtime for each lane, or on the current runtime where there is
    /// none; HTTP and files on `background`. Where the system does not steer datagrams to lanes, only the first has anything
    /// to do.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running.
    pub async fn start(
        settings: Settings,
        lanes: &[Handle],
        background: &Handle,
    ) -> Result<Self, StartError> {
        let for_files = settings.clone();
        let prepared = background
            .spawn_blocking(move || prepare(&for_files))
            .await
            .map_err(io::Error::other)??;
        let here = [Handle::current()];
        let lanes = if lanes.is_empty() { &here } else { lanes };
        let sockets = udp::bind(settings.quic_bind, lanes::bounded(lanes.len()))?;
        let metrics_port = HttpPort::bind("metrics_bind", settings.metrics_bind).await?;
        let admin_port = HttpPort::bind("admin_bind", settings.admin_bind).await?;
        let handle = BufferHandle::new(&sockets, settings.udp_recv_buffer.0, settings.udp_send_buffer.0)?;
        let buffers = handle.ask()?;
        let configs = ServerConfigs::new(
            Arc::clone(&prepared.certificate),
            &prepared.keys,
            prepared.sizes,
            settings.ack_eliciting_threshold,
        )?;
        let admin_tls =
            tls::server_config(Arc::clone(&prepared.certificate), HTTP_1_1).map_err(ConfigError::from)?;
        let teller = teller(&sockets, &prepared.keys)?;
        let port = QuicPort::open(sockets, lanes, configs, &prepared.keys)?;
        let addresses = Addresses {
            quic: port.address(),
            metrics: metrics_port.address(),
            admin: admin_port.address(),
        };
        let broker = Arc::new(assemble(&settings, &prepared, buffers, &lanes[..port.lanes()]).await?);
        let stop_serving = CancellationToken::new();
        let acceptor = Some(TlsAcceptor::from(Arc::new(admin_tls)));
        let admin = admin::router(Arc::clone(&broker), Arc::clone(&prepared.token));
        let plain = probes::router(Arc::clone(&broker));
        let mut tasks = port.listen(&broker);
        let book = Book::new(prepared.data_dir.peers_file(), &prepared.keys.reset);
        let peers = Arc::clone(&broker.peers);
        tasks.extend([
            background.spawn(peers::keep(peers, book, teller, stop_serving.clone())),
            background.spawn(metrics_port.serve(None, plain, stop_serving.clone())),
            background.spawn(admin_port.serve(acceptor, admin, stop_serving.clone())),
            background.spawn(upkeep::buffers(Arc::clone(&broker), handle, stop_serving.clone())),
            background.spawn(upkeep::files(
                Arc::clone(&broker),
                prepared.token,
                stop_serving.clone(),
            )),
        ]);
        broker.ready.store(true, Relaxed);
        Ok(Self {
            broker,
            port,
            addresses,
            ca_file: prepared.ca_file,
            drain_timeout: settings.shutdown_drain_timeout_ms.0,
            stop_serving,
            tasks,
            data_dir: prepared.data_dir,
        })
    }

    /// How many lanes serve clients.
    pub fn lanes(&self) -> usize {
        self.port.lanes()
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The certificate of the broker's own CA, if it has one.
    pub fn ca_file(&self) -> Option<&PathBuf> {
        self.ca_file.as_ref()
    }

    /// Where identity, catalogue and keys are kept.
    pub fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    pub(crate) fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Stops: not ready, nobody new, publishers told to leave, what is stored delivered, connections closed with a code
    /// that says so, HTTP last. Takes little longer than the drain time-out at most.
    pub async fn shutdown(self) {
        let broker = &self.broker;
        let deadline = time::Instant::now() + self.drain_timeout;
        broker.ready.store(false, Relaxed);
        broker.stopping.enter(Phase::Leaving);
        broker.stopping.publisher_tasks.close();
        time::timeout_at(deadline, broker.stopping.publisher_tasks.wait())
            .await
            .ok();
        broker.stopping.enter(Phase::Draining);
        broker.stopping.subscription_tasks.close();
        if time::timeout_at(deadline, broker.stopping.subscription_tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("subscriptions did not take all that was stored within the drain time-out");
        }
        let (code, reason) = (close_code(ErrorCode::ShuttingDown), "the broker stops");
        broker.connections.close_all(code, reason);
        self.port.close(code, reason).await;
        self.stop_serving.cancel();
        for task in self.tasks {
            // A task that panicked has already said so.
            task.await.ok();
        }
    }
}

/// Tells peers of a former process through the first socket: all have the port's address.
fn teller(sockets: &[UdpSocket], keys: &QuicKeys) -> io::Result<Teller> {
    let first = sockets.first().ok_or(io::ErrorKind::NotConnected)?;
    Teller::new(first, transport::reset_key(keys))
}

/// Reads and makes files. Blocks.
fn prepare(settings: &Settings) -> Result<Prepared, StartError> {
    let data_dir = DataDir::open(&settings.data_dir, settings.cluster_id.as_deref())?;
    let keys = data_dir.quic_keys()?;
    let (files, ca_file) = match (&settings.tls_cert, &settings.tls_key) {
        (Some(certificate), Some(key)) => (
            CertificateFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            },
            None,
        ),
        (Some(_) | None, Some(_) | None) => {
            let directory = data_dir.tls_directory()?;
            (
                tls::write_own_certificate(&directory)?,
                Some(directory.join(CA_FILE)),
            )
        }
    };
    let token_file = match &settings.admin_token_file {
        Some(path) => path.clone(),
        None => data_dir.admin_token_file()?,
    };
    let store = FileStore::open(data_dir.path(), &data_dir.identity().cluster_id)?;
    Ok(Prepared {
        keys,
        certificate: Certificate::load(files)?,
        ca_file,
        token: Arc::new(AdminToken::load(token_file)?),
        sizes: DatagramSizes::new(settings, Interfaces::of_this_machine()).tested(settings.quic_bind.ip()),
        store: Arc::new(store),
        data_dir,
    })
}

async fn assemble(
    settings: &Settings,
    prepared: &Prepared,
    buffers: udp::Buffers,
    lanes: &[Handle],
) -> Result<Broker, StartError> {
    let clock = Clock::start();
    let budget = Budget::new(
        settings
            .memory_budget
            .map_or_else(Budget::of_this_process, |budget| budget.0),
    );
    let rings = Rings::new(budget.rings);
    let in_flight = InFlight::new(budget.in_flight);
    let wanted = usize::try_from(settings.max_connections).unwrap_or(usize::MAX);
    let connections = wanted.min(budget.max_connections());
    if connections < wanted {
        tracing::info!(
            max_connections = wanted,
            memory_allows = connections,
            "the memory budget allows fewer connections than max_connections"
        );
    }
    let streams = Streams::new(rings.clone());
    let store = Arc::clone(&prepared.store);
    Ok(Broker {
        identity: prepared.data_dir.identity().clone(),
        clock,
        catalogue: CatalogueService::start(store, streams, clock).await?,
        metrics: Metrics::default(),
        connections: Connections::new(
            connections,
            lanes::bounded(lanes.len()),
            &budget,
            in_flight.clone(),
        ),
        peers: Arc::default(),
        lanes: lanes.to_vec(),
        certificate: Arc::clone(&prepared.certificate),
        budget,
        rings,
        in_flight,
        handshakes: Gauge::new(budget.max_handshakes()),
        open_streams: Gauge::new(budget.max_streams()),
        publishers: Gauge::new(MAX_PUBLISHERS),
        subscriptions: Gauge::new(MAX_SUBSCRIPTIONS),
        max_record_bytes: usize::try_from(settings.max_record_bytes.0).unwrap_or(usize::MAX),
        sizes: prepared.sizes,
        block_timeout: settings.block_timeout_ms.0,
        buffers: ArcSwap::from_pointee(buffers),
        ready: AtomicBool::new(false),
        stopping: Stopping::new(),
    })
}
