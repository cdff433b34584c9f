//! The dashboards of the chart: well formed, and each query asks for metrics that something of ours exposes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by failing"
)]

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

/// What the operator shows of finished benchmarks.
const BENCHMARK_METRICS: [&str; 5] = [
    "felix_benchmark_delivery_latency_seconds",
    "felix_benchmark_published_records_per_second",
    "felix_benchmark_delivered_records_per_second",
    "felix_benchmark_delivered_bytes_per_second",
    "felix_benchmark_dropped_records",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn dashboards() -> Vec<(String, Value)> {
    let folder = root().join("charts/felix/dashboards");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let dashboard = serde_json::from_str(&fs::read_to_string(path).unwrap());
        (
            name.clone(),
            dashboard.unwrap_or_else(|error| panic!("{name}: {error}")),
        )
    };
    let found: Vec<_> = paths.map(read).collect();
    assert!(found.len() >= 2, "broker and benchmark dashboards are expected");
    found
}

/// Names from the table of the reference page, histograms also with what their series are called.
fn known_metrics() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/src/metrics.md")).unwrap();
    let mut known: BTreeSet<String> = BENCHMARK_METRICS.iter().map(|name| (*name).to_owned()).collect();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `felix_")) {
        let mut cells = row.split('|').map(str::trim);
        let name = format!("felix_{}", cells.next().unwrap().trim_end_matches('`'));
        if cells.next() == Some("histogram") {
            known.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
        } else {
            known.insert(name);
        }
    }
    assert!(known.len() > 20, "the reference page has no table of metrics");
    known
}

/// Every word in a query that begins as our metrics do.
fn metrics_in(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("felix_"))
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|panel| panel["type"] != "row")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[test]
fn every_query_asks_for_metrics_that_exist() {
    let known = known_metrics();
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().unwrap() {
                let query = text(target, "expr");
                let asked: Vec<_> = metrics_in(query).collect();
                assert!(!asked.is_empty(), "{name}: {query} asks for nothing of ours");
                for metric in asked {
                    assert!(known.contains(metric), "{name}: {metric} does not exist: {query}");
                }
                assert!(
                    !query.contains("vector("),
                    "{name}: an empty panel must show: {query}"
                );
                assert!(
                    !query.contains("rate(") || query.contains("[$__rate_interval]"),
                    "{name}: {query}"
                );
            }
        }
    }
}

#[test]
fn variables_are_asked_for_by_metrics_that_exist_and_every_query_uses_the_namespace() {
    let known = known_metrics();
    for (name, dashboard) in dashboards() {
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            let query = text(&variable["query"], "query");
            assert!(
                metrics_in(query).count() == 1 && metrics_in(query).all(|m| known.contains(m)),
                "{name}: {query}"
            );
        }
        let names: BTreeSet<_> = variables.iter().map(|variable| text(variable, "name")).collect();
        assert!(
            names.contains("datasource") && names.contains("namespace"),
            "{name}: {names:?}"
        );
        for target in panels(&dashboard).flat_map(|panel| panel["targets"].as_array().unwrap()) {
            assert!(
                text(target, "expr").contains(r#"namespace=~"$namespace""#),
                "{name}: {target}"
            );
        }
    }
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    for (name, dashboard) in dashboards() {
        let mut ids = BTreeSet::new();
        for panel in panels(&dashboard) {
            let title = text(panel, "title");
            assert!(
                text(panel, "description").len() > 20,
                "{name}: {title} has no description"
            );
            assert!(
                !text(&panel["fieldConfig"]["defaults"], "unit").is_empty(),
                "{name}: {title} has no unit"
            );
            assert!(
                ids.insert(panel["id"].as_i64().unwrap()),
                "{name}: {title} has the id of another panel"
            );
            assert_eq!(
                text(&panel["datasource"], "uid"),
                "${datasource}",
                "{name}: {title}"
            );
            for target in panel["targets"].as_array().unwrap() {
                let labelled = panel["type"] == "table" || !text(target, "legendFormat").is_empty();
                assert!(labelled, "{name}: {title} has a series without a legend");
            }
        }
    }
}
