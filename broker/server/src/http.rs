//! Serving HTTP/1.1 for few clients: bounded connections, time-outs on everything, TLS where asked for.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::udp::BindError;

/// Probes, a scraper or two, the operator and people: more are kept waiting.
const MAX_CONNECTIONS: usize = 128;
/// Longest TLS handshake, and longest wait for the head of a request; also closes idle connections.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, which fails again at once while the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait for requests under way when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// A bound port that does not serve yet.
pub(crate) struct HttpPort {
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpPort {
    /// Binds a port. `setting` is named in errors.
    pub(crate) async fn bind(setting: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError::new(setting, address, source);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// The address, with the port that was given by the system if 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then finishes requests under way.
    pub(crate) async fn serve(self, tls: Option<TlsAcceptor>, router: Router, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.accept(&places) => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
                    connections.spawn(async move {
                        serve_connection(stream, tls, router, stop).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, address = %self.address, "cannot accept a connection");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        connections.close();
        time::timeout(STOP_TIMEOUT, connections.wait()).await.ok();
    }

    async fn accept(&self, places: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let place = Arc::clone(places)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let (stream, _) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, place))
    }
}

async fn serve_connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) {
    let Some(tls) = tls else {
        return serve_requests(stream, router, stop).await;
    };
    match time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_requests(stream, router, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake of an HTTP client failed"),
        Err(_) => tracing::debug!("TLS handshake of an HTTP client took too long"),
    }
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    stop: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}
