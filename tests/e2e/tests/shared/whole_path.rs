//! From `helm install` to figures: the whole path in a restricted namespace with a quota, with a cluster named `felix`.

use anyhow::{Context, Result, ensure};
use felix_client::{Client, Record, SlowSubscriber, Start};
use felix_e2e::{
    Kind, Prometheus, QUICK, SLOW, Space, chart_dir, check_dashboards, cluster, poll, scenario, stream,
};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

#[test]
fn a_benchmark_in_a_restricted_namespace_says_the_same_everywhere() -> Result<()> {
    scenario("whole-path", async |space| {
        let prometheus = Prometheus::install(space).await?;
        space.install_operator(&[]).await?;
        let streams = [
            stream(
                "bench",
                "felix",
                &json!({ "slowSubscriber": { "allowBlock": true } }),
            ),
            stream(
                "orders",
                "felix",
                &json!({ "ringBytes": 1 << 20, "slowSubscriber": { "windowBytes": 1 << 18 } }),
            ),
        ];
        let ready = space
            .ready_cluster(&cluster("felix", &json!({})), &streams)
            .await?;
        check_conditions(&ready.data)?;

        space.apply(Kind::Benchmark, &benchmark()).await?;
        let done = space
            .await_condition((Kind::Benchmark, "matrix"), "Complete", ("True", None), SLOW)
            .await?;
        let status = &done.data["status"];
        ensure!(
            status["phase"] == "Succeeded" && status["passed"] == true,
            "the benchmark: {status:#}"
        );
        let rows = status["rows"].as_array().context("the status has no rows")?;
        check_rows(rows)?;
        check_config_map(space, status, rows).await?;
        for row in rows {
            check_prometheus(&prometheus, &space.name, row).await?;
        }

        let client = space.connect("felix").await?;
        let traffic = tokio::spawn(traffic(client));
        let asked = check_dashboards(&prometheus, &chart_dir().join("dashboards")).await;
        ensure!(
            !traffic.is_finished(),
            "the traffic behind the dashboards broke off: {:?}",
            traffic.await
        );
        traffic.abort();
        eprintln!("whole-path: {} queries of dashboards found samples", asked?);
        Ok(())
    })
}

fn benchmark() -> Value {
    let row = |payload: u32, fanout: u32| json!({ "payloadBytes": payload, "fanout": fanout, "batch": 1, "records": 1000, "warmupRecords": 100 });
    let spec = json!({
        "clusterRef": { "name": "felix" },
        "streamRef": { "name": "bench" },
        "deadline": "5m",
        "resources": {
            "requests": { "cpu": "50m", "memory": "128Mi" },
            "limits": { "cpu": "2", "memory": "512Mi" },
        },
        "latency": { "rows": [row(0, 1), row(0, 10), row(1024, 1), row(1024, 10)] },
    });
    Kind::Benchmark.object("matrix", &spec)
}

fn check_conditions(cluster: &Value) -> Result<()> {
    let conditions = cluster["status"]["conditions"]
        .as_array()
        .context("no conditions")?;
    for expected in ["Ready", "Progressing", "StorageBound", "UdpBuffersGranted"] {
        let condition = conditions.iter().find(|condition| condition["type"] == expected);
        let condition = condition.with_context(|| format!("no condition {expected}"))?;
        let said = condition["reason"]
            .as_str()
            .is_some_and(|reason| !reason.is_empty());
        ensure!(said, "condition {expected} has no reason: {condition}");
    }
    Ok(())
}

fn check_rows(rows: &[Value]) -> Result<()> {
    ensure!(rows.len() == 4, "{} rows, expected 4", rows.len());
    for row in rows {
        for zero in ["dropped", "lost", "duplicates", "reordered"] {
            ensure!(row[zero] == 0, "{zero} is {} in {row}", row[zero]);
        }
        ensure!(
            row["passed"] == true && row["records"] == 1000,
            "the row did not pass: {row}"
        );
        let [p50, p99, p999] =
            ["p50Nanoseconds", "p99Nanoseconds", "p999Nanoseconds"].map(|p| row[p].as_i64().unwrap_or(0));
        ensure!(
            0 < p50 && p50 <= p99 && p99 <= p999,
            "quantiles out of order: {row}"
        );
    }
    Ok(())
}

async fn check_config_map(space: &Space, status: &Value, rows: &[Value]) -> Result<()> {
    let name = status["resultRefs"][0]["name"]
        .as_str()
        .context("no result is named")?;
    let data = space.api::<ConfigMap>().get(name).await?.data.unwrap_or_default();
    let summary: Value = serde_json::from_str(data.get("summary.json").context("no summary.json")?)?;
    let stored = summary["rows"].as_array().context("the summary has no rows")?;
    ensure!(
        stored.len() == rows.len(),
        "{} rows stored, {} in the status",
        stored.len(),
        rows.len()
    );
    for (row, stored) in rows.iter().zip(stored) {
        for (key, value) in row.as_object().into_iter().flatten() {
            ensure!(
                &stored[key] == value,
                "{key} is {value} in the status and {} in ConfigMap {name}",
                stored[key]
            );
        }
    }
    Ok(())
}

async fn check_prometheus(prometheus: &Prometheus<'_>, namespace: &str, row: &Value) -> Result<()> {
    let labels = format!(
        "namespace=\"{namespace}\",benchmark=\"matrix\",payload=\"{}\",fanout=\"{}\",batch=\"{}\"",
        row["payloadBytes"], row["fanout"], row["batch"]
    );
    let latency = |quantile: &str| {
        format!("felix_benchmark_delivery_latency_seconds{{{labels},quantile=\"{quantile}\"}}")
    };
    let rate = |name: &str| format!("felix_benchmark_{name}{{{labels}}}");
    let expected = [
        (latency("0.5"), &row["p50Nanoseconds"], 1e-9),
        (latency("0.99"), &row["p99Nanoseconds"], 1e-9),
        (latency("0.999"), &row["p999Nanoseconds"], 1e-9),
        (
            rate("delivered_records_per_second"),
            &row["deliveredPerSecond"],
            1.0,
        ),
        (
            rate("delivered_bytes_per_second"),
            &row["deliveredBytesPerSecond"],
            1.0,
        ),
        (
            rate("published_records_per_second"),
            &row["publishedPerSecond"],
            1.0,
        ),
        (rate("dropped_records"), &row["dropped"], 1.0),
    ];
    for (query, value, unit) in expected {
        let what = format!("one sample of {query}");
        let samples = poll(&what, QUICK, async || {
            let samples = prometheus.query(&query).await?;
            Ok(<[_; 1]>::try_from(samples).ok())
        });
        let [sample] = samples.await?;
        let expected = value.as_f64().context("not a number in the status")? * unit;
        let difference = (sample.value - expected).abs();
        ensure!(
            difference <= expected * 1e-9,
            "{query} is {}, the status says {expected}",
            sample.value
        );
    }
    Ok(())
}

/// Publishes and subscribes until it is aborted, with a subscription beside that never reads.
async fn traffic(client: Client) -> Result<()> {
    let publisher = client.publisher("orders").open().await?;
    let _unread = client
        .subscribe("orders")
        .start(Start::Latest)
        .policy(SlowSubscriber::DropNew)
        .open()
        .await?;
    let mut read = client
        .subscribe("orders")
        .start(Start::Latest)
        .policy(SlowSubscriber::DropOld)
        .open()
        .await?;
    let reader = tokio::spawn(async move { while let Ok(Some(_)) = read.next().await {} });
    let mut pace = tokio::time::interval(std::time::Duration::from_millis(2));
    while !reader.is_finished() {
        pace.tick().await;
        publisher.send(Record::new(&[1; 512])).await?.await?;
    }
    anyhow::bail!("the reader ended")
}
