//! The election against an API server in memory that keeps resource versions; the clock stands still unless it is moved.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// A Lease with its resource version, and whether the server answers.
#[derive(Default)]
struct Server {
    lease: Option<Value>,
    version: u64,
    down: bool,
    /// How often somebody else changes the Lease right before a write.
    disturbed: u32,
}

type Shared = Arc<Mutex<Server>>;

fn candidate(server: &Shared, identity: &str) -> Candidate {
    let server = server.clone();
    let service = service_fn(move |request: hyper::Request<Body>| {
        let server = server.clone();
        async move {
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.unwrap();
            let (status, answer) = answer(&mut server.lock().unwrap(), &method, &body);
            let response = hyper::Response::builder()
                .status(status)
                .body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(response.unwrap())
        }
    });
    Candidate::new(
        Client::new(service, "felix"),
        ("felix", "mine"),
        identity.to_owned(),
        Arc::new(Gate::closed()),
    )
}

fn answer(server: &mut Server, method: &hyper::Method, body: &[u8]) -> (u16, Value) {
    let refused = |code: u16| {
        let reason = if code == 404 { "NotFound" } else { "" };
        (
            code,
            json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "" }),
        )
    };
    if server.down {
        return refused(500);
    }
    if *method == hyper::Method::GET {
        return server
            .lease
            .clone()
            .map_or_else(|| refused(404), |lease| (200, lease));
    }
    if server.disturbed > 0 {
        server.disturbed -= 1;
        server.version += 1;
        server.lease.as_mut().unwrap()["metadata"]["resourceVersion"] = json!(server.version.to_string());
    }
    let mut lease: Value = serde_json::from_slice(body).unwrap();
    let expected = lease["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let present = server
        .lease
        .as_ref()
        .map(|l| l["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
    if expected != present {
        return refused(409);
    }
    server.version += 1;
    lease["metadata"]["resourceVersion"] = json!(server.version.to_string());
    server.lease = Some(lease.clone());
    (200, lease)
}

fn holder(server: &Shared) -> Value {
    server.lock().unwrap().lease.as_ref().unwrap()["spec"]["holderIdentity"].clone()
}

fn unseen() -> Seen {
    Seen {
        record: None,
        since: Instant::now(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_takes_it_and_the_second_waits_for_a_whole_lease_without_a_renewal() {
    let server = Shared::default();
    let (first, second) = (candidate(&server, "a"), candidate(&server, "b"));
    assert!(first.try_acquire(&mut unseen()).await.unwrap());
    let mut seen = unseen();
    assert!(!second.try_acquire(&mut seen).await.unwrap());
    tokio::time::advance(DURATION - Duration::from_secs(1)).await;
    assert!(first.renew().await.unwrap() == Renewal::Done);
    assert!(
        !second.try_acquire(&mut seen).await.unwrap(),
        "a renewal starts the wait anew"
    );
    tokio::time::advance(DURATION - Duration::from_secs(1)).await;
    assert!(!second.try_acquire(&mut seen).await.unwrap());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(second.try_acquire(&mut seen).await.unwrap());
    assert_eq!(holder(&server), "b");
    assert_eq!(
        first.renew().await.unwrap(),
        Renewal::NotOurs,
        "the first must learn that it is none any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_restarted_process_of_the_same_pod_takes_its_lease_back_at_once() {
    let server = Shared::default();
    assert!(
        candidate(&server, "pod-a")
            .try_acquire(&mut unseen())
            .await
            .unwrap()
    );
    assert!(
        candidate(&server, "pod-a")
            .try_acquire(&mut unseen())
            .await
            .unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn of_two_that_read_the_same_lease_one_takes_it() {
    let server = Shared::default();
    let first = candidate(&server, "a");
    assert!(first.try_acquire(&mut unseen()).await.unwrap());
    let read = first.leases.get("mine").await.unwrap();
    assert!(first.replace(&read).await.unwrap());
    assert!(!candidate(&server, "b").replace(&read).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_up_is_free_at_once() {
    let server = Shared::default();
    let (first, second) = (candidate(&server, "a"), candidate(&server, "b"));
    assert!(first.try_acquire(&mut unseen()).await.unwrap());
    let released = CancellationToken::new();
    released.cancel();
    first.hold(&released).await.unwrap();
    assert!(second.try_acquire(&mut unseen()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_gives_up_before_the_lease_ends_and_the_gate_is_shut_by_then() {
    let server = Shared::default();
    let first = candidate(&server, "a");
    assert!(first.acquire(&CancellationToken::new()).await);
    assert!(first.gate.is_open());
    server.lock().unwrap().down = true;
    let started = Instant::now();
    assert!(first.hold(&CancellationToken::new()).await.is_err());
    assert!(started.elapsed() < DURATION);
    assert!(!first.gate.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_label_that_somebody_puts_on_the_lease_does_not_end_the_leader() {
    let server = Shared::default();
    let first = candidate(&server, "a");
    assert!(first.acquire(&CancellationToken::new()).await);
    server.lock().unwrap().disturbed = 2;
    assert_eq!(first.renew().await.unwrap(), Renewal::Overtaken);
    let released = CancellationToken::new();
    let hold = first.hold(&released);
    let release_later = async {
        sleep(RENEW_DEADLINE * 2).await;
        assert!(first.gate.is_open(), "it is renewed after the disturbance");
        released.cancel();
    };
    let (held, ()) = tokio::join!(hold, release_later);
    held.unwrap();
    assert_eq!(holder(&server), Value::Null, "and given up at the end");
}

#[tokio::test(start_paused = true)]
async fn who_is_stopped_while_the_server_says_nothing_ends() {
    let silent = service_fn(async |_: hyper::Request<Body>| {
        std::future::pending::<Result<hyper::Response<Body>, Infallible>>().await
    });
    let gate = Arc::new(Gate::closed());
    let candidate = Candidate::new(
        Client::new(silent, "felix"),
        ("felix", "mine"),
        "a".to_owned(),
        gate,
    );
    let stop = CancellationToken::new();
    let stopping = async {
        sleep(PERIOD).await;
        stop.cancel();
    };
    let (acquired, ()) = tokio::join!(candidate.acquire(&stop), stopping);
    assert!(!acquired);
}
