//! Which keys stay and which are made, checked with the TLS library that brokers and clients use.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::{Made, Material, SERVER_LIFE, keep, make};
use crate::cluster::{
    dereference::Observed,
    test_support::{defaults, observed},
    validate::{ValidatedCluster, validate},
};

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

fn cluster() -> (Observed, ValidatedCluster) {
    let observed = observed(
        &json!({ "storage": { "size": "1Gi" }, "tls": { "managed": {}, "extraNames": ["10.0.0.1", "FD00::1"] } }),
    );
    let validated = validate(&observed, &defaults()).unwrap();
    (observed, validated)
}

fn secret(entries: &[(&str, &str)]) -> Secret {
    let data = entries
        .iter()
        .map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret {
        data: Some(data.collect()),
        ..Secret::default()
    }
}

/// Puts the material where the operator puts it.
fn store(observed: &mut Observed, material: &Material) {
    let bundle = material.bundle_pem();
    let pair = |pair: &super::KeyPairPem| {
        secret(&[
            ("tls.crt", &pair.certificate),
            ("tls.key", &pair.key),
            ("ca.crt", &bundle),
        ])
    };
    observed.ca = Some(pair(&material.ca));
    observed.server_certificate = Some(pair(&material.server));
    observed.admin_token = Some(secret(&[("token", &material.admin_token)]));
    let data = BTreeMap::from([("ca.crt".to_owned(), bundle)]);
    observed.ca_bundle = Some(ConfigMap {
        data: Some(data),
        ..ConfigMap::default()
    });
}

fn renew(observed: &Observed, cluster: &ValidatedCluster, now: OffsetDateTime) -> (Material, Made) {
    make(keep(observed, &cluster.certificate_names, now), cluster, now).unwrap()
}

/// Whether a client that trusts `trusted` would accept the server certificate for `name`.
fn accepts(trusted: &str, server: &str, name: &str, at: OffsetDateTime) -> bool {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let certificate = CertificateDer::from_pem_slice(server.as_bytes()).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let seconds = u64::try_from(at.unix_timestamp()).unwrap();
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    verifier
        .verify_server_cert(&certificate, &[], &name, &[], at)
        .is_ok()
}

#[test]
fn a_new_cluster_gets_everything_and_clients_accept_it() {
    let (observed, cluster) = cluster();
    let (material, made) = renew(&observed, &cluster, now());
    assert_eq!(
        made,
        Made {
            ca: true,
            server: true,
            admin_token: true
        }
    );
    assert_eq!(material.admin_token.len(), 64);
    for name in [
        "demo",
        "demo.ns.svc",
        "demo.ns.svc.cluster.local",
        "demo-broker-0.demo-brokers.ns.svc",
        "demo-broker-0.demo-brokers.ns.svc.cluster.local",
        "10.0.0.1",
        "fd00::1",
    ] {
        assert!(
            accepts(&material.bundle_pem(), &material.server.certificate, name, now()),
            "{name}"
        );
    }
    assert!(!accepts(
        &material.bundle_pem(),
        &material.server.certificate,
        "other.ns.svc",
        now()
    ));
}

#[test]
fn what_is_good_stays_as_it_is() {
    let (mut observed, cluster) = cluster();
    let (first, _) = renew(&observed, &cluster, now());
    store(&mut observed, &first);
    let (second, made) = renew(&observed, &cluster, now() + Duration::days(1));
    assert!(second == first && made == Made::default());
}

#[test]
fn the_server_certificate_is_renewed_at_two_thirds_of_its_life() {
    let (mut observed, cluster) = cluster();
    let (first, _) = renew(&observed, &cluster, now());
    store(&mut observed, &first);
    let before = renew(
        &observed,
        &cluster,
        now() + SERVER_LIFE * 2 / 3 - Duration::hours(1),
    );
    assert!(!before.1.server);
    let (after, made) = renew(
        &observed,
        &cluster,
        now() + SERVER_LIFE * 2 / 3 + Duration::hours(1),
    );
    assert_eq!(
        made,
        Made {
            server: true,
            ..Made::default()
        }
    );
    assert_eq!(after.ca, first.ca);
}

#[test]
fn other_names_need_another_certificate() {
    let (mut observed, mut cluster) = cluster();
    let (first, _) = renew(&observed, &cluster, now());
    store(&mut observed, &first);
    cluster.certificate_names.push("more.example.com".to_owned());
    assert_eq!(
        renew(&observed, &cluster, now()).1,
        Made {
            server: true,
            ..Made::default()
        }
    );
}

#[test]
fn a_lost_ca_key_is_made_again_and_old_clients_go_on() {
    let (mut observed, cluster) = cluster();
    let (first, _) = renew(&observed, &cluster, now());
    store(&mut observed, &first);
    observed.ca = None;
    let (second, made) = renew(&observed, &cluster, now());
    assert_eq!(
        made,
        Made {
            ca: true,
            ..Made::default()
        }
    );
    assert_ne!(second.ca, first.ca);
    assert_eq!(
        second.bundle,
        [second.ca.certificate.clone(), first.ca.certificate.clone()]
    );
    assert_eq!(
        second.server, first.server,
        "clients that know only the old CA must be able to connect"
    );
    assert!(accepts(
        &first.bundle_pem(),
        &second.server.certificate,
        "demo.ns.svc",
        now()
    ));

    store(&mut observed, &second);
    let later = now() + SERVER_LIFE * 2 / 3 + Duration::hours(1);
    let (third, _) = renew(&observed, &cluster, later);
    assert!(accepts(
        &second.bundle_pem(),
        &third.server.certificate,
        "demo.ns.svc",
        later
    ));
    assert_eq!(third.bundle, second.bundle);
}

#[test]
fn the_old_ca_is_known_from_any_one_of_the_places_that_hold_it() {
    let (mut observed, cluster) = cluster();
    let (first, _) = renew(&observed, &cluster, now());
    store(&mut observed, &first);
    observed.ca = None;
    observed.ca_bundle = None;
    let (second, _) = renew(&observed, &cluster, now());
    assert_eq!(second.bundle.len(), 2);
    assert_eq!(second.server, first.server);
}

#[test]
fn an_expired_ca_leaves_the_bundle() {
    let (mut observed, cluster) = cluster();
    let (first, _) = renew(&observed, &cluster, now());
    store(&mut observed, &first);
    let (second, made) = renew(&observed, &cluster, now() + Duration::days(3700));
    assert!(made.ca && made.server);
    assert_eq!(second.bundle, std::slice::from_ref(&second.ca.certificate));
}

#[test]
fn a_key_that_does_not_belong_to_its_certificate_is_not_used() {
    let (mut observed, cluster) = cluster();
    let (first, _) = renew(&observed, &cluster, now());
    let (other, _) = renew(&observed, &cluster, now());
    store(&mut observed, &first);
    observed.server_certificate = Some(secret(&[
        ("tls.crt", &first.server.certificate),
        ("tls.key", &other.server.key),
    ]));
    assert_eq!(
        renew(&observed, &cluster, now()).1,
        Made {
            server: true,
            ..Made::default()
        }
    );
    observed.admin_token = Some(secret(&[("token", "short")]));
    assert!(renew(&observed, &cluster, now()).1.admin_token);
}
