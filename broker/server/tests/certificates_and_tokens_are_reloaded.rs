//! A certificate or token that changes on disk is used without a restart, while connections go on; a broken one is not.

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

mod support;

use std::{fs, path::Path};

use felix_broker::{EmbeddedBroker, EmbeddedConfig, StreamSpec, embedded};
use felix_client::Client;
use hyper::Method;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{PATIENCE, STREAM, http::Api, metric, next_number, publish, within};

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issue(ca: &Ca, directory: &Path) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
    fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    fs::write(
        directory.join("tls.crt"),
        params.signed_by(&key, ca).unwrap().pem(),
    )
    .unwrap();
}

async fn connects(broker: &EmbeddedBroker, ca: &Ca) -> bool {
    let builder = Client::builder(&broker.addr().to_string()).ca_pem(ca.pem());
    within(builder.server_name("localhost").unwrap().connect())
        .await
        .is_ok()
}

async fn broker_in(directory: &Path) -> EmbeddedBroker {
    let mut config = EmbeddedConfig::default();
    config.settings.tls_cert = Some(directory.join("tls.crt"));
    config.settings.tls_key = Some(directory.join("tls.key"));
    config.settings.admin_token_file = Some(directory.join("token"));
    let broker = embedded(config).await.unwrap();
    broker.create_stream(STREAM, StreamSpec::default()).await.unwrap();
    broker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_handshakes_use_the_new_files_and_old_connections_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (ca(), ca());
    issue(&first, directory.path());
    fs::write(directory.path().join("token"), "the-first-token-of-all").unwrap();
    let broker = broker_in(directory.path()).await;
    let client = Client::builder(&broker.addr().to_string()).ca_pem(first.pem());
    let client = within(client.server_name("localhost").unwrap().connect())
        .await
        .unwrap();
    let mut subscription = within(client.subscribe(STREAM).open()).await.unwrap();
    assert!(!connects(&broker, &second).await);

    // A broken pair changes nothing but the count of failures.
    let good_key = fs::read(directory.path().join("tls.key")).unwrap();
    fs::write(directory.path().join("tls.key"), "broken").unwrap();
    within(async {
        while metric(
            &broker.metrics_text(),
            "felix_reload_failures_total{file=\"certificate\"}",
        ) != Some(1)
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fs::write(directory.path().join("tls.key"), good_key).unwrap();
    assert!(connects(&broker, &first).await);

    issue(&second, directory.path());
    fs::write(directory.path().join("token"), "the-second-token-of-all").unwrap();
    within(async { while !connects(&broker, &second).await {} }).await;
    publish(&client, 0..1, 100).await;
    assert_eq!(
        next_number(&mut subscription).await,
        0,
        "the connection made before goes on"
    );

    let api = Api {
        address: broker.admin_addr(),
        ca_pem: second.pem().into_bytes(),
        token: "the-second-token-of-all".into(),
    };
    let taken = async { while api.call(Method::GET, "/api/v1/broker", None).await.0 != 200 {} };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();
    let old = Api {
        token: "the-first-token-of-all".into(),
        ..api
    };
    assert_eq!(old.call(Method::GET, "/api/v1/broker", None).await.0, 401);
    broker.shutdown().await;
}
