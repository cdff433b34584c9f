//! The admin API: who may ask, what is answered, and how owners and versions keep changes apart.

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

mod support;

use felix_broker::{EmbeddedBroker, EmbeddedConfig, embedded};
use hyper::Method;
use serde_json::{Value, json};
use support::http::Api;

async fn broker_and_api() -> (EmbeddedBroker, Api) {
    let broker = embedded(EmbeddedConfig::default()).await.unwrap();
    let token = broker.admin_token().to_owned();
    let api = Api {
        address: broker.admin_addr(),
        ca_pem: broker.ca_pem().to_vec(),
        token,
    };
    (broker, api)
}

async fn put(api: &Api, name: &str, body: Value) -> (u16, Value) {
    api.call(Method::PUT, &format!("/api/v1/streams/{name}"), Some(body))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_answered_without_the_token() {
    let (broker, api) = broker_and_api().await;
    let stranger = Api {
        token: "not-the-token-at-all".into(),
        ..api
    };
    for path in [
        "/api/v1/broker",
        "/api/v1/streams",
        "/api/v1/streams/x",
        "/nothing",
    ] {
        let (status, answer) = stranger.call(Method::GET, path, None).await;
        assert_eq!(
            (status, &answer["code"]),
            (401, &json!("Unauthenticated")),
            "{path}"
        );
    }
    let (status, _) = put(&stranger, "orders", json!({"owner": "a"})).await;
    assert_eq!(status, 401);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_says_who_it_is_and_what_its_buffers_are() {
    let (broker, api) = broker_and_api().await;
    let (status, answer) = api.call(Method::GET, "/api/v1/broker", None).await;
    assert_eq!(status, 200);
    assert_eq!(answer["udpBuffers"]["receive"]["askedBytes"], 8 << 20);
    assert!(answer["udpBuffers"]["send"]["grantedBytes"].as_u64().unwrap() > 0);
    assert_eq!(answer["version"], env!("CARGO_PKG_VERSION"));
    let identity = std::fs::read_to_string(broker.data_dir().join("identity.json")).unwrap();
    let identity: Value = serde_json::from_str(&identity).unwrap();
    assert_eq!(answer["clusterId"], identity["clusterId"]);
    assert_eq!(answer["brokerId"], identity["brokerId"]);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_created_changed_listed_and_deleted_by_its_owner() {
    let (broker, api) = broker_and_api().await;
    let spec = json!({"shards": 2, "ringBytes": 1 << 20, "slowSubscriber": {"windowBytes": 65536}});
    let (status, created) = put(&api, "orders", json!({"owner": "a", "spec": spec})).await;
    assert_eq!(status, 201, "{created}");
    let version = created["catalogueVersion"].as_u64().unwrap();
    assert_eq!(created["stream"]["owner"], "a");
    assert_eq!(created["stream"]["spec"]["slowSubscriber"]["policy"], "drop_new");
    assert!(created["stream"]["createdAt"].as_str().unwrap().ends_with('Z'));

    let (status, same) = put(
        &api,
        "orders",
        json!({"owner": "a", "spec": spec, "catalogueVersion": version}),
    )
    .await;
    assert_eq!((status, &same), (200, &created), "the same again changes nothing");

    let mut larger = spec.clone();
    larger["ringBytes"] = json!(2 << 20);
    let (status, changed) = put(&api, "orders", json!({"owner": "a", "spec": larger})).await;
    assert_eq!(
        (status, changed["catalogueVersion"].as_u64()),
        (200, Some(version + 1))
    );
    assert_eq!(changed["stream"]["incarnation"], created["stream"]["incarnation"]);

    let (_, list) = api.call(Method::GET, "/api/v1/streams", None).await;
    assert_eq!(list["streams"], json!([changed["stream"]]));
    let (_, one) = api.call(Method::GET, "/api/v1/streams/orders", None).await;
    assert_eq!(one, changed);

    let (status, _) = api
        .call(Method::DELETE, "/api/v1/streams/orders?owner=a", None)
        .await;
    assert_eq!(status, 200);
    let (status, gone) = api.call(Method::GET, "/api/v1/streams/orders", None).await;
    assert_eq!((status, &gone["code"]), (404, &json!("NotFound")));
    let (status, _) = api
        .call(Method::DELETE, "/api/v1/streams/orders?owner=a", None)
        .await;
    assert_eq!(status, 404);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_owner_and_an_old_version_are_refused() {
    let (broker, api) = broker_and_api().await;
    let (_, created) = put(&api, "orders", json!({"owner": "FelixStream/a/orders"})).await;
    let version = created["catalogueVersion"].as_u64().unwrap();

    let (status, answer) = put(&api, "orders", json!({"owner": "FelixStream/b/orders"})).await;
    assert_eq!((status, &answer["code"]), (409, &json!("OwnedByAnother")));
    assert_eq!(
        (&answer["owner"], &answer["retry"]),
        (&json!("FelixStream/a/orders"), &json!("do-not-retry"))
    );
    let (status, answer) = api
        .call(Method::DELETE, "/api/v1/streams/orders?owner=b", None)
        .await;
    assert_eq!((status, &answer["code"]), (409, &json!("OwnedByAnother")));

    let stale = json!({"owner": "FelixStream/a/orders", "catalogueVersion": version - 1});
    let (status, answer) = put(&api, "orders", stale).await;
    assert_eq!((status, &answer["code"]), (409, &json!("VersionConflict")));
    assert_eq!(
        (&answer["catalogueVersion"], &answer["retry"]),
        (&json!(version), &json!("retry"))
    );

    let owner = "owner=FelixStream/a/orders";
    let (status, released) = api
        .call(
            Method::DELETE,
            &format!("/api/v1/streams/orders/owner?{owner}"),
            None,
        )
        .await;
    assert_eq!((status, &released["stream"]["owner"]), (200, &Value::Null));
    let (status, adopted) = put(&api, "orders", json!({"owner": "FelixStream/b/orders"})).await;
    assert_eq!(
        (status, &adopted["stream"]["owner"]),
        (200, &json!("FelixStream/b/orders"))
    );
    assert_eq!(
        adopted["stream"]["incarnation"], created["stream"]["incarnation"],
        "it is the same stream"
    );
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_name_the_field() {
    let (broker, api) = broker_and_api().await;
    for (name, body, field) in [
        ("-orders", json!({"owner": "a"}), "name"),
        ("orders", json!({"owner": ""}), "owner"),
        (
            "orders",
            json!({"owner": "a", "spec": {"shards": 65}}),
            "spec.shards",
        ),
        (
            "orders",
            json!({"owner": "a", "spec": {"ringBytes": 1}}),
            "spec.ringBytes",
        ),
        (
            "orders",
            json!({"owner": "a", "spec": {"slowSubscriber": {"policy": "block"}}}),
            "spec.slowSubscriber.policy",
        ),
        (
            "orders",
            json!({"owner": "a", "spec": {"class": "durable"}}),
            "body",
        ),
        ("orders", json!({"owner": "a", "specs": {}}), "body"),
        ("orders", json!([]), "body"),
    ] {
        let (status, answer) = put(&api, name, body).await;
        assert_eq!(
            (status, &answer["code"], &answer["field"]),
            (422, &json!("Invalid"), &json!(field)),
            "{answer}"
        );
        assert_eq!(answer["retry"], "do-not-retry");
    }
    let (_, created) = put(&api, "orders", json!({"owner": "a"})).await;
    let (status, answer) = put(&api, "orders", json!({"owner": "a", "spec": {"shards": 2}})).await;
    assert_eq!(
        (status, &answer["code"], &answer["field"]),
        (409, &json!("Immutable"), &json!("spec.shards"))
    );
    let (status, answer) = api
        .call_raw(Method::PUT, "/api/v1/streams/x", b"{".to_vec())
        .await;
    assert_eq!((status, &answer["code"]), (422, &json!("Invalid")));
    let (status, _) = api
        .call_raw(Method::PUT, "/api/v1/streams/x", vec![b' '; 100_000])
        .await;
    assert_eq!(status, 422);
    let (status, answer) = api.call(Method::DELETE, "/api/v1/streams/orders", None).await;
    assert_eq!((status, &answer["field"]), (422, &json!("query")));
    let (status, _) = api.call(Method::POST, "/api/v1/broker", None).await;
    assert_eq!(status, 405);
    let (_, now) = api.call(Method::GET, "/api/v1/streams/orders", None).await;
    assert_eq!(
        now["catalogueVersion"], created["catalogueVersion"],
        "no refusal changed anything"
    );
    broker.shutdown().await;
}
