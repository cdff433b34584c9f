//! The admin API of a broker: one TLS connection a request, trusted by the cluster's own CA.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long one request may take, connecting included.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Most bytes of an answer: 10,000 streams of some hundred bytes fit.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Where a broker's admin API is and how to prove both ends.
#[derive(Clone)]
pub(crate) struct BrokerApi {
    address: SocketAddr,
    host: String,
    server_name: ServerName<'static>,
    tls: TlsConnector,
    token: String,
}

/// What a broker says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BrokerInfo {
    /// The cluster that its data directory is marked with.
    pub(crate) cluster_id: String,
    /// Its identity, from its data directory.
    pub(crate) broker_id: String,
    /// Its version.
    pub(crate) version: String,
    /// Its UDP socket buffers.
    pub(crate) udp_buffers: felix_crds::UdpBufferStatus,
}

/// The version of the catalogue after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CatalogueVersion {
    /// Rises with each change.
    pub(crate) catalogue_version: u64,
}

/// A refusal in the broker's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Refusal {
    /// For machines, for example OwnedByAnother.
    pub(crate) code: String,
    /// For people.
    pub(crate) message: String,
    /// The field that is wrong, if one is.
    pub(crate) field: Option<String>,
    /// Who owns the stream, if that is the matter.
    pub(crate) owner: Option<String>,
    /// The version of the catalogue, if that is the matter.
    pub(crate) catalogue_version: Option<u64>,
}

/// Why a request to a broker came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokerApiError {
    /// CA bundle, host name or token cannot be used.
    #[error("admin API of {host}: {message}")]
    Unusable {
        /// The broker.
        host: String,
        /// What is wrong.
        message: String,
    },
    /// No answer; whether the request was carried out is unknown.
    #[error("admin API of {host}: {message}")]
    Unreachable {
        /// The broker.
        host: String,
        /// What happened.
        message: String,
    },
    /// The broker refused.
    #[error("admin API of {host} answered {status}: {}", .refusal.message)]
    Refused {
        /// The broker.
        host: String,
        /// The HTTP status.
        status: u16,
        /// Its words.
        refusal: Box<Refusal>,
    },
}

impl BrokerApi {
    /// Of the broker at `address` whose certificate is for `host` and from one of the CAs of `ca_bundle` (PEM).
    ///
    /// # Errors
    /// [`BrokerApiError::Unusable`].
    pub(crate) fn new(
        address: SocketAddr,
        host: &str,
        ca_bundle: &str,
        token: &str,
    ) -> Result<Self, BrokerApiError> {
        let unusable = |message: String| BrokerApiError::Unusable {
            host: host.to_owned(),
            message,
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_bundle.as_bytes()) {
            let certificate = certificate.map_err(|error| unusable(format!("CA bundle: {error}")))?;
            roots
                .add(certificate)
                .map_err(|error| unusable(format!("CA bundle: {error}")))?;
        }
        let server_name =
            ServerName::try_from(host.to_owned()).map_err(|error| unusable(format!("host name: {error}")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address,
            host: host.to_owned(),
            server_name,
            tls: TlsConnector::from(Arc::new(config)),
            token: token.trim().to_owned(),
        })
    }

    /// What the broker says of itself.
    ///
    /// # Errors
    /// See [`BrokerApiError`].
    pub(crate) async fn broker(&self) -> Result<BrokerInfo, BrokerApiError> {
        self.call(Method::GET, "/api/v1/broker", None::<&()>).await
    }

    /// One stream; `None` where there is none of that name.
    ///
    /// # Errors
    /// See [`BrokerApiError`].
    pub(crate) async fn stream<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, BrokerApiError> {
        match self.call(Method::GET, &stream_path(name, ""), None::<&()>).await {
            Ok(stream) => Ok(Some(stream)),
            Err(BrokerApiError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes or changes a stream.
    ///
    /// # Errors
    /// See [`BrokerApiError`].
    pub(crate) async fn put_stream<B, T>(&self, name: &str, body: &B) -> Result<T, BrokerApiError>
    where
        B: Serialize + Sync,
        T: DeserializeOwned,
    {
        self.call(Method::PUT, &stream_path(name, ""), Some(body)).await
    }

    /// Deletes a stream with all its records. `version` is that of the catalogue that the decision rests on.
    ///
    /// # Errors
    /// See [`BrokerApiError`].
    pub(crate) async fn delete_stream(
        &self,
        name: &str,
        owner: &str,
        version: u64,
    ) -> Result<CatalogueVersion, BrokerApiError> {
        let path = format!("{}?{}", stream_path(name, ""), ownership_query(owner, version));
        self.call(Method::DELETE, &path, None::<&()>).await
    }

    /// Lets go of a stream: it stays, and the next owner adopts it.
    ///
    /// # Errors
    /// See [`BrokerApiError`].
    pub(crate) async fn release_stream(
        &self,
        name: &str,
        owner: &str,
        version: u64,
    ) -> Result<CatalogueVersion, BrokerApiError> {
        let path = format!(
            "{}?{}",
            stream_path(name, "/owner"),
            ownership_query(owner, version)
        );
        self.call(Method::DELETE, &path, None::<&()>).await
    }

    async fn call<B, T>(&self, method: Method, path: &str, body: Option<&B>) -> Result<T, BrokerApiError>
    where
        B: Serialize,
        T: DeserializeOwned,
    {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body
            .map_err(|error| self.unusable(error.to_string()))?
            .unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.unusable(error.to_string()))?;
        let (status, answer) = tokio::time::timeout(TIME_LIMIT, self.exchange(request))
            .await
            .map_err(|_| self.unreachable(format!("no answer within {TIME_LIMIT:?}")))?
            .map_err(|error| self.unreachable(error.to_string()))?;
        if status.is_success() {
            return serde_json::from_slice(&answer)
                .map_err(|error| self.unreachable(format!("the answer cannot be read: {error}")));
        }
        let refusal = serde_json::from_slice(&answer).unwrap_or_default();
        Err(BrokerApiError::Refused {
            host: self.host.clone(),
            status: status.as_u16(),
            refusal: Box::new(refusal),
        })
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let tcp = TcpStream::connect(self.address).await?;
        let tls = self.tls.connect(self.server_name.clone(), tcp).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
                .collect()
                .await?
                .to_bytes();
            Ok((status, body))
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // The connection may end before the answer has been read out of it.
            ended = connection => {
                ended?;
                exchange.await
            }
        }
    }

    fn unusable(&self, message: String) -> BrokerApiError {
        BrokerApiError::Unusable {
            host: self.host.clone(),
            message,
        }
    }

    fn unreachable(&self, message: String) -> BrokerApiError {
        BrokerApiError::Unreachable {
            host: self.host.clone(),
            message,
        }
    }
}

impl fmt::Debug for BrokerApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerApi")
            .field("address", &self.address)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// The path of a stream.
fn stream_path(name: &str, rest: &str) -> String {
    format!("/api/v1/streams/{}{rest}", escaped(name))
}

fn ownership_query(owner: &str, version: u64) -> String {
    format!("owner={}&catalogueVersion={version}", escaped(owner))
}

/// Percent-encodes everything but unreserved characters.
fn escaped(text: &str) -> String {
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes()
        .map(|b| {
            if unreserved(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
