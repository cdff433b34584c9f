//! What a broker takes for streams and connections that do nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    pod::Pod,
    support::{STREAM, within},
    table::{Bound, print},
};

const STREAMS: usize = 10_000;
const CONNECTIONS: usize = 1000;
/// What connections do at their beginning is over after so long.
const SETTLING: Duration = Duration::from_secs(15);
/// Several pings of each connection.
const IDLE: Duration = Duration::from_secs(40);
/// A kibibyte in bytes, and a core's hundredth.
const KIB: f64 = 1024.0;
const PERCENT: f64 = 100.0;

/// The name of one of many streams.
pub(crate) fn name(number: usize) -> String {
    format!("stream-{number}")
}

/// A broker with many streams: one is made, the catalogue is given more like it, and the broker is started again.
pub(crate) async fn with_streams(count: usize, limit: u64, arguments: &[&str]) -> Pod {
    let pod = Pod::start_on(tempfile::tempdir().unwrap(), limit, arguments).await;
    pod.create_stream(
        STREAM,
        json!({ "ringBytes": 1 << 20, "slowSubscriber": { "windowBytes": 1 << 20 } }),
    )
    .await;
    let data_dir = pod.stop().await;
    let path = data_dir.path().join("catalogue.json");
    let mut catalogue: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let model = catalogue["streams"][STREAM].clone();
    for number in 0..count {
        let mut stream = model.clone();
        stream["incarnation"] = format!("{:032x}", number + 1).into();
        catalogue["streams"][name(number)] = stream;
    }
    std::fs::write(&path, serde_json::to_vec(&catalogue).unwrap()).unwrap();
    Pod::start_on(data_dir, limit, arguments).await
}

/// Memory and processor time of idle streams, and of idle connections with a subscription each beside them.
pub(crate) async fn figures() {
    let pod = with_streams(STREAMS, 512 << 20, &[]).await;
    let before = pod.resident_bytes();
    let alone = share_of_a_core(&pod).await;
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let client = pod.client(1 << 20).await;
        let subscription = within(client.subscribe(&name(number)).open()).await.unwrap();
        clients.push((client, subscription));
    }
    let connections = pod.resident_bytes().saturating_sub(before) as f64;
    let beside = share_of_a_core(&pod).await;
    print(
        "idle: MiB of a broker with 10000 idle streams",
        &[before as f64 / KIB / KIB],
        Bound::None,
    );
    print(
        "idle: KiB of an idle connection with a subscription",
        &[connections / CONNECTIONS as f64 / KIB],
        Bound::None,
    );
    print(
        "idle: % of a core for 10000 idle streams",
        &[alone * PERCENT],
        Bound::Below(1.0),
    );
    print(
        "idle: % of a core for 10000 idle streams and 1000 idle subscribers",
        &[beside * PERCENT],
        Bound::Below(1.0),
    );
}

async fn share_of_a_core(pod: &Pod) -> f64 {
    tokio::time::sleep(SETTLING).await;
    let (begun, cpu) = (Instant::now(), pod.cpu_ms());
    tokio::time::sleep(IDLE).await;
    (pod.cpu_ms() - cpu) as f64 / begun.elapsed().as_millis() as f64
}
