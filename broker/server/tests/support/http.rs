//! Requests to the admin API, over TLS with the broker's own CA.

use std::{net::SocketAddr, sync::Arc};

use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::within;

/// The admin API of a broker.
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    pub(crate) ca_pem: Vec<u8>,
    pub(crate) token: String,
}

impl Api {
    /// Sends a request and gives status and JSON of the answer.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map_or_else(Vec::new, |body| serde_json::to_vec(&body).unwrap());
        self.call_raw(method, path, body).await
    }

    /// Sends a request with any body.
    pub(crate) async fn call_raw(&self, method: Method, path: &str, body: Vec<u8>) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let stream = within(self.connect()).await.unwrap();
        let (mut sender, connection) = within(http1::handshake(TokioIo::new(stream))).await.unwrap();
        tokio::spawn(connection);
        let answer = within(sender.send_request(request)).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = within(answer.into_body().collect()).await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn connect(&self) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.ca_pem) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config))
            .connect(ServerName::try_from("localhost").unwrap(), stream)
            .await
    }
}
