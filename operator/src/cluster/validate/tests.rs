//! What is checked and derived before anything is built.

use felix_crds::FelixClusterStatus;
use serde_json::{Value, json};

use super::{Defaults, InvalidCluster, validate};
use crate::cluster::test_support::{CLUSTER_ID, defaults, observed};

fn small() -> Value {
    json!({ "storage": { "size": "1Gi" } })
}

#[test]
fn what_an_older_definition_let_through_is_refused_here() {
    for (spec, part) in [
        (
            json!({ "storage": { "size": "1Gi" }, "replicas": 3 }),
            "set replicas to 1",
        ),
        (json!({ "storage": { "size": "0" } }), "at least 16Mi"),
        (json!({ "storage": { "size": "100m" } }), "thousandths of a byte"),
    ] {
        let error = validate(&observed(&spec), &defaults()).unwrap_err();
        assert!(matches!(error, InvalidCluster::Rules(_)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn an_unset_image_is_resolved_once_and_an_upgrade_does_not_move_it() {
    let newer = Defaults {
        broker_image: "localhost/felix-broker:0.2.0".to_owned(),
        ..defaults()
    };
    let mut cluster = observed(&small());
    assert_eq!(
        validate(&cluster, &newer).unwrap().image.reference,
        "localhost/felix-broker:0.2.0"
    );
    cluster.cluster.status = Some(FelixClusterStatus {
        default_image: Some("localhost/felix-broker:0.1.0".to_owned()),
        ..FelixClusterStatus::default()
    });
    assert_eq!(
        validate(&cluster, &newer).unwrap().image.reference,
        "localhost/felix-broker:0.1.0"
    );
}

#[test]
fn a_named_image_wins_its_digest_over_its_tag_and_it_does_not_become_the_default() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let mut spec = small();
    spec["image"] = json!({ "repository": "r/felix", "tag": "1" });
    let image = validate(&observed(&spec), &defaults()).unwrap().image;
    assert_eq!(
        (image.reference.as_str(), image.kept_default),
        ("r/felix:1", None)
    );
    spec["image"]["digest"] = json!(digest);
    let image = validate(&observed(&spec), &defaults()).unwrap().image;
    assert_eq!(image.reference, format!("r/felix@{digest}"));
}

#[test]
fn the_identity_comes_from_what_outlived_the_object_before() {
    let labelled =
        |id: &str| json!({ "metadata": { "name": "x", "labels": { "felix.dev/cluster-id": id } } });
    let mut cluster = observed(&small());
    assert_eq!(
        super::identify(&cluster),
        CLUSTER_ID,
        "the first object's own uid"
    );
    cluster.cluster.status = Some(FelixClusterStatus {
        cluster_id: Some("written".to_owned()),
        ..FelixClusterStatus::default()
    });
    assert_eq!(super::identify(&cluster), "written");
    cluster.workload.claims = vec![serde_json::from_value(labelled("claim")).unwrap()];
    assert_eq!(super::identify(&cluster), "claim");
    cluster.ca = Some(serde_json::from_value(labelled("ca")).unwrap());
    assert_eq!(super::identify(&cluster), "ca");
}

#[test]
fn without_a_known_domain_the_certificate_has_no_names_in_it() {
    let nowhere = Defaults {
        cluster_domain: None,
        ..defaults()
    };
    let names = validate(&observed(&small()), &nowhere).unwrap().certificate_names;
    assert_eq!(
        names,
        [
            "demo",
            "demo.ns",
            "demo.ns.svc",
            "*.demo-brokers",
            "*.demo-brokers.ns",
            "*.demo-brokers.ns.svc"
        ]
    );
    let names = validate(&observed(&small()), &defaults())
        .unwrap()
        .certificate_names;
    assert!(names.contains(&"*.demo-brokers.ns.svc.cluster.local".to_owned()));
}
