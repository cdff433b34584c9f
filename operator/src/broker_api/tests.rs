//! The client against a TLS server that answers as a broker does.

use std::convert::Infallible;

use hyper::{Response, body::Incoming, service::service_fn};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const HOST: &str = "demo-broker-0.demo-brokers.ns.svc";

/// A CA (PEM) and a server configuration with a certificate of it for [`HOST`].
fn certificates() -> (String, ServerConfig) {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let server = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    let certificate = server.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (ca_pem, config)
}

/// Answers each request by `answer` (method, path with query, token, body).
async fn broker(answer: fn(&str, &str, &str, Value) -> (u16, Value)) -> (SocketAddr, String) {
    let (ca, config) = certificates();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            // A client that does not trust us hangs up here.
            let Ok(stream) = tls.accept(tcp).await else {
                continue;
            };
            let service = service_fn(move |request: Request<Incoming>| async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let token = parts.headers[header::AUTHORIZATION].to_str().unwrap();
                let path = parts.uri.to_string();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = answer(parts.method.as_str(), &path, token, body);
                let answer = Full::new(Bytes::from(answer.to_string()));
                Ok::<_, Infallible>(Response::builder().status(status).body(answer).unwrap())
            });
            let serve =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serve);
        }
    });
    (address, ca)
}

fn always_well(_: &str, path: &str, token: &str, _: Value) -> (u16, Value) {
    assert_eq!((path, token), ("/api/v1/broker", "Bearer secret"));
    let buffer = |granted: i64| json!({ "askedBytes": 8, "grantedBytes": granted });
    let broker = json!({
        "clusterId": "c", "brokerId": "b", "version": "0.1.0", "uptimeSeconds": 7, "catalogueVersion": 3,
        "udpBuffers": { "receive": buffer(4), "send": buffer(8) },
    });
    (200, broker)
}

#[tokio::test]
async fn a_broker_is_asked_with_the_token_and_trusted_by_its_ca() {
    let (address, ca) = broker(always_well).await;
    let info = BrokerApi::new(address, HOST, &ca, "secret\n")
        .unwrap()
        .broker()
        .await
        .unwrap();
    assert_eq!((info.broker_id.as_str(), info.cluster_id.as_str()), ("b", "c"));
    assert!(info.udp_buffers.receive.is_clamped() && !info.udp_buffers.send.is_clamped());
}

#[tokio::test]
async fn another_ca_and_another_name_are_refused() {
    let (address, ca) = broker(always_well).await;
    let (other_ca, _) = certificates();
    for (host, ca) in [(HOST, &other_ca), ("demo-broker-1.demo-brokers.ns.svc", &ca)] {
        let error = BrokerApi::new(address, host, ca, "secret")
            .unwrap()
            .broker()
            .await
            .unwrap_err();
        assert!(matches!(error, BrokerApiError::Unreachable { .. }), "{error}");
    }
    // A bundle of several is enough if one of them is right.
    let bundle = format!("{other_ca}{ca}");
    BrokerApi::new(address, HOST, &bundle, "secret")
        .unwrap()
        .broker()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (ca, _) = certificates();
    let error = BrokerApi::new(address, HOST, &ca, "secret")
        .unwrap()
        .broker()
        .await
        .unwrap_err();
    assert!(error.to_string().contains(HOST), "{error}");
}

#[tokio::test]
async fn refusals_keep_the_brokers_words() {
    let (address, ca) = broker(|method, path, _, body| match (method, path) {
        ("GET", "/api/v1/streams/none") => (404, json!({ "code": "NotFound", "message": "no such stream" })),
        ("PUT", "/api/v1/streams/orders") => {
            assert_eq!(body, json!({ "owner": "me" }));
            (
                409,
                json!({ "code": "OwnedByAnother", "message": "taken", "owner": "FelixStream/ns/a" }),
            )
        }
        ("DELETE", "/api/v1/streams/orders?owner=FelixStream%2Fns%2Fa&catalogueVersion=7") => {
            (200, json!({ "catalogueVersion": 8 }))
        }
        ("DELETE", "/api/v1/streams/orders/owner?owner=FelixStream%2Fns%2Fa&catalogueVersion=8") => {
            (200, json!({ "catalogueVersion": 9, "stream": {} }))
        }
        _ => (500, json!("what?")),
    })
    .await;
    let api = BrokerApi::new(address, HOST, &ca, "secret").unwrap();
    assert_eq!(api.stream::<Value>("none").await.unwrap(), None);
    let error = api
        .put_stream::<_, Value>("orders", &json!({ "owner": "me" }))
        .await
        .unwrap_err();
    let BrokerApiError::Refused {
        status: 409, refusal, ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(
        (refusal.code.as_str(), refusal.owner.as_deref()),
        ("OwnedByAnother", Some("FelixStream/ns/a"))
    );
    assert_eq!(
        api.delete_stream("orders", "FelixStream/ns/a", 7)
            .await
            .unwrap()
            .catalogue_version,
        8
    );
    assert_eq!(
        api.release_stream("orders", "FelixStream/ns/a", 8)
            .await
            .unwrap()
            .catalogue_version,
        9
    );
}

#[test]
fn a_bundle_or_a_name_that_cannot_be_used_is_an_error_that_names_the_broker() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let error = BrokerApi::new(address, HOST, broken, "t")
        .unwrap_err()
        .to_string();
    assert!(error.contains(HOST) && error.contains("CA bundle"), "{error}");
    assert!(BrokerApi::new(address, "not a name", "", "t").is_err());
}
