//! A proxy between an operator and the API server that counts the calls which change something and stops the world at
//! one of them: just before it is forwarded, or when it was done but not answered.

use std::{
    future::pending,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, Request, Response, body::Incoming, header, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config, client::Body};
use serde_json::json;
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};

/// When the world stops relative to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The API server never sees the call.
    Before,
    /// The API server has done it, the operator never hears of it.
    After,
}

/// The call at which the world stops. It is named and not counted over all calls, since some of them come in no certain
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashPoint {
    /// Method and path.
    pub call: String,
    /// The how manieth of these, from 1.
    pub occurrence: usize,
    /// When.
    pub moment: Moment,
}

/// The proxy. It ends when it is dropped.
pub struct CrashProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

struct Shared {
    upstream: Client,
    state: Mutex<State>,
    stopped: Notify,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    point: Option<CrashPoint>,
    /// The world stands still: nothing is forwarded or answered any more.
    standing: bool,
}

/// What is done with a request.
enum Way {
    Forward,
    /// Do it, then stop the world instead of answering.
    ForwardAndStop,
    Stop,
}

impl CrashProxy {
    /// Listens on loopback and forwards in the name of `user`, so that the user's own rights decide.
    ///
    /// # Errors
    /// If KUBECONFIG names no API server, or no port is free.
    pub async fn start(user: &str) -> Result<Self> {
        let mut config = Config::infer().await?;
        config.auth_info.impersonate = Some(user.to_owned());
        let shared = Arc::new(Shared {
            upstream: Client::try_from(config)?,
            state: Mutex::default(),
            stopped: Notify::new(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut server = JoinSet::new();
        server.spawn(serve(listener, shared.clone()));
        Ok(Self {
            address,
            shared,
            _server: server,
        })
    }

    /// Writes a kubeconfig that leads to this proxy.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path, namespace: &str) -> Result<()> {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "proxy", "cluster": { "server": format!("http://{}", self.address) } }],
            "users": [{ "name": "proxy", "user": {} }],
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "proxy", "namespace": namespace } }],
            "current-context": "proxy",
        });
        std::fs::write(path, kubeconfig.to_string())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Lets everything through from now on, counts anew, and stops the world at `point` if there is one.
    pub fn begin(&self, point: Option<CrashPoint>) {
        *self.shared.lock() = State {
            point,
            ..State::default()
        };
    }

    /// Lets everything through again, without a point.
    pub fn resume(&self) {
        let mut state = self.shared.lock();
        state.point = None;
        state.standing = false;
    }

    /// Waits until the world has stopped.
    pub async fn stopped(&self) {
        self.shared.stopped.notified().await;
    }

    /// The calls since `begin` that change something: method and path.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.shared.lock().calls.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way_of(&self, request: &Request<Incoming>) -> Way {
        let mut state = self.lock();
        if state.standing {
            return Way::Stop;
        }
        if !changes_something(request) {
            return Way::Forward;
        }
        let call = called(request);
        let occurrence = 1 + state.calls.iter().filter(|earlier| **earlier == call).count();
        let here = |point: &&CrashPoint| point.call == call && point.occurrence == occurrence;
        let moment = state.point.as_ref().filter(here).map(|point| point.moment);
        state.calls.push(call);
        state.standing = moment.is_some();
        match moment {
            None => Way::Forward,
            Some(Moment::Before) => {
                self.stopped.notify_one();
                Way::Stop
            }
            Some(Moment::After) => Way::ForwardAndStop,
        }
    }

    async fn handle(&self, request: Request<Incoming>) -> Result<Response<Body>, kube::Error> {
        let way = self.way_of(&request);
        if matches!(way, Way::Stop) {
            return pending().await;
        }
        let response = self.forward(request).await?;
        if matches!(way, Way::ForwardAndStop) {
            // The API server's whole answer is here, so the change is stored.
            let _ = response.into_body().collect().await;
            self.stopped.notify_one();
            return pending().await;
        }
        Ok(response)
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>, kube::Error> {
        let (mut parts, body) = request.into_parts();
        for name in [
            header::HOST,
            header::CONNECTION,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
        ] {
            parts.headers.remove(name);
        }
        let body: Bytes = body.collect().await.map_err(kube::Error::HyperError)?.to_bytes();
        self.upstream
            .send(Request::from_parts(parts, Body::from(body.to_vec())))
            .await
    }
}

/// Method and path. An event that is told again has a name made from the time: that is left out.
fn called(request: &Request<Incoming>) -> String {
    let path = request.uri().path();
    let end = path
        .find("/events/")
        .map_or(path.len(), |at| at + "/events".len());
    format!("{} {}", request.method(), &path[..end])
}

/// Asking for one's own rights and renewing a Lease change nothing that is ours.
fn changes_something(request: &Request<Incoming>) -> bool {
    let path = request.uri().path();
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method())
        && !path.contains("/leases")
        && !path.contains("reviews")
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        let service = service_fn(move |request| {
            let shared = shared.clone();
            async move { shared.handle(request).await }
        });
        connections.spawn(async move {
            // The operator is killed in the middle of requests: a broken connection is what is wanted.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}
