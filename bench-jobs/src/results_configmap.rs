//! Leaves the results in the cluster: merge patches to ConfigMaps that the operator made beforehand.
//!
//! The Job may patch these ConfigMaps by name and nothing else, so this speaks plain HTTPS to the API server with the pod's
//! own token; a Kubernetes client library would bring discovery, watches and types that are not needed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Bytes of data put into one ConfigMap. The API server takes 1 MiB per object; the rest is room for metadata.
const CHUNK_BYTES: usize = 900 << 10;

const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Where a pod finds its token and the API server's certificate authority.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A ConfigMap by name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    namespace: String,
    name: String,
}

impl Target {
    /// Reads `NAMESPACE/NAME`; both must be names that Kubernetes takes.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let Some((namespace, name)) = text.split_once('/') else {
            bail!("--results-configmap {text:?} is not NAMESPACE/NAME");
        };
        for part in [namespace, name] {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            let edges = part.starts_with(['-', '.']) || part.ends_with(['-', '.']);
            if part.is_empty() || part.len() > 253 || edges || !part.chars().all(plain) {
                bail!("--results-configmap {text:?}: {part:?} is not a Kubernetes name");
            }
        }
        Ok(Self {
            namespace: namespace.into(),
            name: name.into(),
        })
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{}", self.namespace, self.name)
    }
}

/// Splits result lines over the ConfigMaps: whole lines, in order, the first beside the summary.
///
/// Fails where they do not fit; the summary is never left out.
pub(crate) fn split(lines: &[String], summary: &str, maps: usize) -> anyhow::Result<Vec<String>> {
    let mut chunks = vec![String::new(); maps];
    let mut place = 0;
    let mut room = CHUNK_BYTES.saturating_sub(summary.len());
    for line in lines {
        let needed = line.len() + 1;
        while needed > room {
            place += 1;
            if place >= maps {
                bail!(
                    "the results need more than {maps} ConfigMap(s) of {CHUNK_BYTES} bytes; \
                     give further --results-configmap or fewer rows"
                );
            }
            room = CHUNK_BYTES;
        }
        chunks[place].push_str(line);
        chunks[place].push('\n');
        room -= needed;
    }
    Ok(chunks)
}

/// Writes lines and summary into the targets. Network faults and server errors are tried again for about half a minute.
pub(crate) async fn write(targets: &[Target], lines: &[String], summary: &str) -> anyhow::Result<()> {
    InCluster::from_pod()?.write(targets, lines, summary).await
}

/// The API server as a pod sees it.
struct InCluster {
    host: String,
    port: u16,
    token_file: std::path::PathBuf,
    tls: TlsConnector,
    first_pause: Duration,
}

impl InCluster {
    async fn write(&self, targets: &[Target], lines: &[String], summary: &str) -> anyhow::Result<()> {
        let chunks = split(lines, summary, targets.len())?;
        for (place, (target, chunk)) in targets.iter().zip(chunks).enumerate().rev() {
            // The one with the summary goes last: whoever sees the summary finds all lines in place.
            let data = if place == 0 {
                json!({ "results.jsonl": chunk, "summary.json": summary })
            } else {
                json!({ "results.jsonl": chunk })
            };
            let body = json!({ "data": data }).to_string();
            self.patch(&target.path(), body)
                .await
                .with_context(|| format!("writing ConfigMap {}/{}", target.namespace, target.name))?;
        }
        Ok(())
    }

    fn from_pod() -> anyhow::Result<Self> {
        let variable =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set: not in a pod"));
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let port = variable("KUBERNETES_SERVICE_PORT")?;
        let port = port
            .parse()
            .with_context(|| format!("KUBERNETES_SERVICE_PORT is {port:?}"))?;
        Self::new(host, port, Path::new(SERVICE_ACCOUNT))
    }

    fn new(host: String, port: u16, account: &Path) -> anyhow::Result<Self> {
        let ca = account.join("ca.crt");
        let mut roots = rustls::RootCertStore::empty();
        let certificates =
            CertificateDer::pem_file_iter(&ca).with_context(|| format!("reading {}", ca.display()))?;
        for certificate in certificates {
            roots.add(certificate.context("reading a certificate")?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = TlsConnector::from(Arc::new(config));
        let token_file = account.join("token");
        Ok(Self {
            host,
            port,
            token_file,
            tls,
            first_pause: FIRST_PAUSE,
        })
    }

    async fn patch(&self, path: &str, body: String) -> anyhow::Result<()> {
        let body = Bytes::from(body);
        let mut pause = self.first_pause;
        let mut attempt = 1;
        loop {
            let tried = tokio::time::timeout(ATTEMPT_TIMEOUT, self.patch_once(path, body.clone())).await;
            let again = match tried {
                Ok(Ok(status)) if status.is_success() => return Ok(()),
                Ok(Ok(status)) if !worth_another_try(status) => bail!("the API server answered {status}"),
                Ok(Ok(status)) => anyhow::anyhow!("the API server answered {status}"),
                Ok(Err(error)) => error,
                Err(_) => anyhow::anyhow!("no answer in {} s", ATTEMPT_TIMEOUT.as_secs()),
            };
            if attempt == ATTEMPTS {
                return Err(again.context(format!("gave up after {ATTEMPTS} attempts")));
            }
            tracing::warn!(attempt, error = %again, "results not written yet");
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    async fn patch_once(&self, path: &str, body: Bytes) -> anyhow::Result<StatusCode> {
        let token = std::fs::read_to_string(&self.token_file)
            .with_context(|| format!("reading {}", self.token_file.display()))?;
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let name = ServerName::try_from(self.host.clone())?;
        let stream = self.tls.connect(name, tcp).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::patch(path)
            .header("host", bracketed(&self.host))
            .header("authorization", format!("Bearer {}", token.trim()))
            .header("content-type", "application/merge-patch+json")
            .header("accept", "application/json")
            .header("user-agent", concat!("felix-bench/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let text = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        if !status.is_success()
            && let Ok(text) = text
        {
            let text = text.to_bytes();
            tracing::warn!(%status, answer = %String::from_utf8_lossy(&text[..text.len().min(500)]), "patch refused");
        }
        driver.abort();
        Ok(status)
    }
}

/// Server errors, conflicts and throttling pass by themselves; a refusal or a missing object does not.
fn worth_another_try(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::CONFLICT || status == StatusCode::TOO_MANY_REQUESTS
}

/// An IPv6 address stands in brackets in a host header.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_namespace_and_name() {
        let target = Target::parse("team-a/run-1.results").unwrap();
        assert_eq!(
            target.path(),
            "/api/v1/namespaces/team-a/configmaps/run-1.results"
        );
        for bad in [
            "", "a", "a/", "/b", "a/b/c", "A/b", "a/b?c", "a/../b", "a/..", "./b",
        ] {
            assert!(Target::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lines_stay_whole_and_in_order_over_several_maps() {
        let lines: Vec<_> = (0..7).map(|n| format!("{n}{}", "x".repeat(300 << 10))).collect();
        let chunks = split(&lines, "{}", 4).unwrap();
        assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES));
        let joined: Vec<_> = chunks.iter().flat_map(|chunk| chunk.lines()).collect();
        assert_eq!(joined, lines);
        assert_eq!(
            chunks[0].lines().count(),
            2,
            "the summary takes room in the first"
        );
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_never_cut() {
        let lines = vec!["x".repeat(CHUNK_BYTES + 1)];
        assert!(split(&lines, "{}", 3).is_err());
        assert!(split(&["x".repeat(500 << 10), "y".repeat(500 << 10)], "{}", 1).is_err());
    }

    #[test]
    fn only_what_passes_by_itself_is_tried_again() {
        assert!(worth_another_try(StatusCode::SERVICE_UNAVAILABLE));
        assert!(worth_another_try(StatusCode::CONFLICT));
        assert!(!worth_another_try(StatusCode::FORBIDDEN));
        assert!(!worth_another_try(StatusCode::NOT_FOUND));
    }

    /// One request as the server saw it.
    struct Seen {
        line: String,
        authorization: String,
        content_type: String,
        body: serde_json::Value,
    }

    /// An API server that answers with these codes, one after the other, over TLS; and what a pod knows of it.
    async fn api_server(
        codes: Vec<u16>,
    ) -> (InCluster, tempfile::TempDir, tokio::task::JoinHandle<Vec<Seen>>) {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
        let account = tempfile::tempdir().unwrap();
        std::fs::write(account.path().join("ca.crt"), made.cert.pem()).unwrap();
        std::fs::write(account.path().join("token"), "secret\n").unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut api = InCluster::new("127.0.0.1".into(), port, account.path()).unwrap();
        api.first_pause = Duration::from_millis(1);
        let server = tokio::spawn(async move {
            let mut seen = Vec::new();
            for code in codes {
                let (tcp, _) = listener.accept().await.unwrap();
                let tls = acceptor.accept(tcp).await.unwrap();
                seen.push(answer_once(tls, code).await);
            }
            seen
        });
        (api, account, server)
    }

    async fn answer_once(stream: tokio_rustls::server::TlsStream<TcpStream>, code: u16) -> Seen {
        let (tell, told) = tokio::sync::oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
            let tell = tell.lock().unwrap().take();
            async move {
                let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
                let line = format!("{} {}", request.method(), request.uri());
                let (authorization, content_type) = (header("authorization"), header("content-type"));
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap();
                tell.unwrap()
                    .send(Seen {
                        line,
                        authorization,
                        content_type,
                        body,
                    })
                    .ok();
                let answer = axum::http::Response::builder()
                    .status(code)
                    .body(Full::new(Bytes::from("{}")));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        // The client hangs up as soon as it has its answer.
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await
            .ok();
        told.await.unwrap()
    }

    fn two_targets() -> [Target; 2] {
        [Target::parse("ns/a").unwrap(), Target::parse("ns/b").unwrap()]
    }

    #[tokio::test]
    async fn results_are_merge_patched_with_the_pods_token_the_summary_last() {
        let (api, _account, server) = api_server(vec![503, 200, 200]).await;
        api.write(&two_targets(), &["line".into()], r#"{"passed":true}"#)
            .await
            .unwrap();
        let seen = server.await.unwrap();
        let lines: Vec<_> = seen.iter().map(|seen| seen.line.as_str()).collect();
        let path = |name: &str| format!("PATCH /api/v1/namespaces/ns/configmaps/{name}");
        assert_eq!(lines, [path("b"), path("b"), path("a")]);
        assert!(seen.iter().all(|seen| seen.authorization == "Bearer secret"));
        assert!(
            seen.iter()
                .all(|seen| seen.content_type == "application/merge-patch+json")
        );
        assert_eq!(seen[2].body["data"]["results.jsonl"], "line\n");
        assert_eq!(seen[2].body["data"]["summary.json"], r#"{"passed":true}"#);
        assert!(seen[1].body["data"].get("summary.json").is_none());
    }

    #[tokio::test]
    async fn a_refusal_ends_at_once_and_names_the_configmap() {
        let (api, _account, server) = api_server(vec![403]).await;
        let error = api.write(&two_targets()[..1], &[], "{}").await.unwrap_err();
        assert!(
            format!("{error:#}").contains("ConfigMap ns/a") && format!("{error:#}").contains("403"),
            "{error:#}"
        );
        assert_eq!(server.await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_server_that_never_recovers_is_given_up() {
        let (api, _account, server) = api_server(vec![500; ATTEMPTS as usize]).await;
        let error = api.write(&two_targets()[..1], &[], "{}").await.unwrap_err();
        assert!(
            format!("{error:#}").contains("gave up after 6 attempts"),
            "{error:#}"
        );
        server.await.unwrap();
    }
}
