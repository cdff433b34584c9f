//! The servers of layout 2 that are programs of their own: `felix-broker` and `nats-server`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::ends::Access;
use super::felix::STREAM;
use super::processes::Server;
use crate::target::stream_spec;

/// Longest answer of the admin API that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Where a broker listens, as its log says.
#[derive(Debug, Deserialize, Eq, PartialEq)]
struct Listening {
    quic: SocketAddr,
    admin: SocketAddr,
}

#[derive(Deserialize)]
struct LogLine {
    fields: Listening,
}

/// Starts a broker with its data in `directory`, and makes the stream.
pub(super) async fn felix(
    program: &Path,
    more: &[String],
    directory: &Path,
) -> anyhow::Result<(Server, Access)> {
    let data = directory.join("data");
    let (server, listening) = Server::start(program, broker_arguments(&data, more), listening).await?;
    let ca = data.join("tls/ca.crt");
    create_stream(listening.admin, &ca, &data.join("admin/token")).await?;
    let access = Access {
        address: listening.quic,
        ca,
    };
    Ok((server, access))
}

fn broker_arguments(data: &Path, more: &[String]) -> Vec<String> {
    let mut arguments = vec![format!("--data-dir={}", data.display())];
    let any_port =
        ["--quic-bind", "--metrics-bind", "--admin-bind"].map(|flag| format!("{flag}=127.0.0.1:0"));
    arguments.extend(any_port);
    arguments.extend(["--log-format=json".into(), "--log-level=info".into()]);
    arguments.extend_from_slice(more);
    arguments
}

/// Reads the line in which a broker says where it serves.
fn listening(line: &str) -> Option<Listening> {
    serde_json::from_str::<LogLine>(line).ok().map(|line| line.fields)
}

async fn create_stream(admin: SocketAddr, ca: &Path, token: &Path) -> anyhow::Result<()> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(ca).with_context(|| format!("reading {}", ca.display()))?
    {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let token = std::fs::read_to_string(token).with_context(|| format!("reading {}", token.display()))?;
    let tcp = TcpStream::connect(admin)
        .await
        .context("connecting to the admin API")?;
    let tls = TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost")?, tcp)
        .await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(tls)).await?;
    let driver = tokio::spawn(connection);
    let body = serde_json::json!({"owner": "felix-bench", "spec": stream_spec()});
    let request = Request::put(format!("/api/v1/streams/{STREAM}"))
        .header("host", "localhost")
        .header("authorization", format!("Bearer {}", token.trim()))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let text = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    driver.abort();
    if !status.is_success() {
        let text = text.map(|text| text.to_bytes()).unwrap_or_default();
        bail!(
            "the broker did not take the stream: {status}: {}",
            String::from_utf8_lossy(&text)
        );
    }
    Ok(())
}

/// Starts a NATS server, with TLS where asked for.
pub(super) async fn nats(program: &Path, tls: bool, directory: &Path) -> anyhow::Result<(Server, Access)> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()])?;
    let (certificate, key) = (directory.join("nats.crt"), directory.join("nats.key"));
    std::fs::write(&certificate, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    let config = directory.join("nats.conf");
    std::fs::write(&config, nats_config(tls.then_some((&certificate, &key))))?;
    let arguments = vec!["--config".into(), config.display().to_string()];
    let (server, address) = Server::start(program, arguments, nats_address).await?;
    let access = Access {
        address,
        ca: certificate,
    };
    Ok((server, access))
}

/// All else is NATS's default: a measurement against a server that was tuned down would say nothing.
fn nats_config(tls: Option<(&PathBuf, &PathBuf)>) -> String {
    let mut config = String::from("host: \"127.0.0.1\"\nport: -1\n");
    if let Some((certificate, key)) = tls {
        config.push_str(&format!(
            "tls {{\n  cert_file: {:?}\n  key_file: {:?}\n}}\n",
            certificate.display().to_string(),
            key.display().to_string()
        ));
    }
    config
}

/// Reads the line in which a NATS server says where it serves.
fn nats_address(line: &str) -> Option<SocketAddr> {
    let (_, address) = line.split_once("Listening for client connections on ")?;
    address.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brokers_log_says_where_it_listens() {
        let line = r#"{"timestamp":"t","level":"INFO","fields":{"message":"the broker serves","version":"0.1.0",
            "quic":"127.0.0.1:41","metrics":"127.0.0.1:42","admin":"127.0.0.1:43"},"target":"felix_broker"}"#;
        let (quic, admin) = ("127.0.0.1:41".parse().unwrap(), "127.0.0.1:43".parse().unwrap());
        assert_eq!(listening(line), Some(Listening { quic, admin }));
        assert_eq!(listening(r#"{"fields":{"message":"something else"}}"#), None);
        assert_eq!(listening("not JSON"), None);
    }

    #[test]
    fn flags_given_last_are_the_users() {
        let arguments = broker_arguments(Path::new("/d"), &["--memory-budget=1GiB".into()]);
        assert_eq!(arguments.first().map(String::as_str), Some("--data-dir=/d"));
        assert_eq!(arguments.last().map(String::as_str), Some("--memory-budget=1GiB"));
        assert_eq!(
            arguments
                .iter()
                .filter(|flag| flag.ends_with("-bind=127.0.0.1:0"))
                .count(),
            3
        );
    }

    #[test]
    fn a_nats_server_has_tls_where_asked_for_and_a_port_of_the_systems_choice() {
        let (certificate, key) = (PathBuf::from("/d/a.crt"), PathBuf::from("/d/a.key"));
        let with = nats_config(Some((&certificate, &key)));
        assert_eq!(
            with,
            "host: \"127.0.0.1\"\nport: -1\ntls {\n  cert_file: \"/d/a.crt\"\n  key_file: \"/d/a.key\"\n}\n"
        );
        assert!(!nats_config(None).contains("tls"));
        let line = "[1] 2026/11/30 17:00:00.000000 [INF] Listening for client connections on 127.0.0.1:4222";
        assert_eq!(nats_address(line), "127.0.0.1:4222".parse().ok());
        assert_eq!(nats_address("[INF] Server is ready"), None);
    }
}
