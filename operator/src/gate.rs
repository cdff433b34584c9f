//! The gate before every write: shut unless this operator holds the Lease for long enough still.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use futures::future::{BoxFuture, FutureExt as _};
use hyper::{Method, Request};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Until when writes may pass.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Option<Until>>);

#[derive(Clone, Copy, Debug)]
enum Until {
    Always,
    Time(Instant),
}

/// A write that was held back: the Lease may be another's.
#[derive(Debug, thiserror::Error)]
#[error("not written: this operator does not hold the Lease for long enough")]
pub(crate) struct Shut;

impl Gate {
    /// Lets nothing through yet.
    pub(crate) fn closed() -> Self {
        Self(Mutex::new(None))
    }

    /// Lets everything through: there is no other operator.
    pub(crate) fn open() -> Self {
        Self(Mutex::new(Some(Until::Always)))
    }

    /// Lets writes through until this time.
    pub(crate) fn open_until(&self, time: Instant) {
        *self.lock() = Some(Until::Time(time));
    }

    /// Whether writes may pass now.
    pub(crate) fn is_open(&self) -> bool {
        match *self.lock() {
            Some(Until::Always) => true,
            Some(Until::Time(time)) => Instant::now() < time,
            None => false,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Until>> {
        // The value is replaced as a whole: a panic elsewhere cannot have left half of one.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Puts the gate before a client's requests.
pub(crate) struct GateLayer(pub(crate) Arc<Gate>);

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            inner,
            gate: self.0.clone(),
        }
    }
}

/// A client's requests behind the gate.
pub(crate) struct Gated<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if reads || self.gate.is_open() {
            self.inner
                .call(request)
                .map(|result| result.map_err(Into::into))
                .boxed()
        } else {
            async { Err(Shut.into()) }.boxed()
        }
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    async fn passes(gate: &Arc<Gate>, method: Method) -> bool {
        let inner = service_fn(async |_: Request<Body>| Ok::<_, std::convert::Infallible>(()));
        let request = Request::builder().method(method).body(Body::empty()).unwrap();
        GateLayer(gate.clone())
            .layer(inner)
            .oneshot(request)
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn reads_always_pass_and_writes_only_while_the_lease_holds() {
        let gate = Arc::new(Gate::closed());
        assert!(passes(&gate, Method::GET).await);
        assert!(!passes(&gate, Method::PATCH).await);
        gate.open_until(Instant::now() + std::time::Duration::from_secs(10));
        assert!(passes(&gate, Method::DELETE).await);
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        assert!(!passes(&gate, Method::POST).await);
        assert!(passes(&Arc::new(Gate::open()), Method::POST).await);
    }
}
