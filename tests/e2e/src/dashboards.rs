//! Asks a Prometheus what Grafana would ask for each dashboard, and finds the panels that would be empty.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use serde_json::Value;

use crate::{
    Prometheus,
    wait::{QUICK, poll},
};

/// Resolves the variables of each dashboard in `folder` by their own queries and asks the query of each panel. Returns
/// how many queries were asked.
///
/// # Errors
/// If a variable has no value, or a query finds no sample that is a number within a minute.
pub async fn check_dashboards(prometheus: &Prometheus<'_>, folder: &Path) -> Result<usize> {
    let mut asked = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let dashboard = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
            asked += check(prometheus, &dashboard)
                .await
                .with_context(|| path.display().to_string())?;
        }
    }
    ensure!(asked > 0, "no dashboard in {}", folder.display());
    Ok(asked)
}

async fn check(prometheus: &Prometheus<'_>, dashboard: &Value) -> Result<usize> {
    let variables = resolve(prometheus, dashboard).await?;
    let queries = queries(&dashboard["panels"]);
    ensure!(!queries.is_empty(), "no panel has a query");
    for (title, expression) in &queries {
        let expression = substitute(expression, &variables);
        let what = format!("a sample in panel {title:?}: {expression}");
        poll(&what, QUICK, async || {
            let samples = prometheus.query(&expression).await?;
            Ok(samples.iter().any(|sample| !sample.value.is_nan()).then_some(()))
        })
        .await?;
    }
    Ok(queries.len())
}

/// The value of each variable with everything chosen, in the order in which they are written.
async fn resolve(prometheus: &Prometheus<'_>, dashboard: &Value) -> Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for variable in dashboard["templating"]["list"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().context("a variable without a name")?;
        match variable["type"].as_str() {
            Some("datasource") => {}
            Some("query") => {
                let query = variable["query"]["query"]
                    .as_str()
                    .or_else(|| variable["query"].as_str());
                let query = substitute(query.context("a variable without a query")?, &variables);
                let pattern = variable["regex"].as_str().unwrap_or_default();
                let what = format!("a value of variable {name}: {query}");
                let value = poll(&what, QUICK, async || {
                    let (selector, label) = label_values(&query)?;
                    joined(&prometheus.label_values(label, selector).await?, pattern)
                });
                variables.insert(name.to_owned(), value.await?);
            }
            other => bail!("variable {name} is of type {other:?}, which this check does not know"),
        }
    }
    Ok(variables)
}

/// Selector and label of `label_values(SELECTOR, LABEL)`.
fn label_values(query: &str) -> Result<(&str, &str)> {
    let inside = query
        .trim()
        .strip_prefix("label_values(")
        .and_then(|rest| rest.strip_suffix(')'));
    let parts = inside.and_then(|inside| inside.rsplit_once(','));
    let (selector, label) = parts.with_context(|| format!("not label_values(SELECTOR, LABEL): {query}"))?;
    Ok((selector.trim(), label.trim()))
}

/// What Grafana puts in place of a variable of which all values are chosen; nothing if there is no value.
fn joined(values: &[String], pattern: &str) -> Result<Option<String>> {
    let pattern = Regex::new(pattern.trim_matches('/'))?;
    let chosen = values.iter().filter_map(|value| {
        let found = pattern.captures(value)?;
        Some(if pattern.as_str().is_empty() {
            value.as_str()
        } else {
            found.get(1).or_else(|| found.get(0))?.as_str()
        })
    });
    let mut chosen: Vec<String> = chosen.map(escaped).collect();
    chosen.dedup();
    Ok(match chosen.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("({})", several.join("|"))),
    })
}

/// Escapes what a regular expression inside a quoted string would take for an operator.
fn escaped(value: &str) -> String {
    let escape = |c: char| {
        if "\\^$*+?.()|[]{}".contains(c) {
            format!("\\\\{c}")
        } else {
            c.to_string()
        }
    };
    value.chars().map(escape).collect()
}

/// Title and expression of each query, panels within rows included.
fn queries(panels: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in panels.as_array().into_iter().flatten() {
        let title = panel["title"].as_str().unwrap_or_default();
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((
                title.to_owned(),
                target["expr"].as_str().unwrap_or_default().to_owned(),
            ));
        }
        found.extend(queries(&panel["panels"]));
    }
    found
}

fn substitute(text: &str, variables: &BTreeMap<String, String>) -> String {
    // Grafana's own, for a scrape interval of a few seconds.
    let text = text
        .replace("$__rate_interval", "1m")
        .replace("$__interval", "15s")
        .replace("$__range", "15m");
    // The longest names first, so that no variable's name is taken for the beginning of another's.
    let mut names: Vec<_> = variables.iter().collect();
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    names.into_iter().fold(text, |text, (name, value)| {
        text.replace(&format!("${{{name}}}"), value)
            .replace(&format!("${name}"), value)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_take_their_place() {
        let variables = BTreeMap::from([
            ("pod".to_owned(), "(a|b)".to_owned()),
            ("podname".to_owned(), "c".to_owned()),
        ]);
        let text = substitute(
            "rate(x{p=~\"$pod\",q=\"${pod}\",r=\"$podname\"}[$__rate_interval])",
            &variables,
        );
        assert_eq!(text, "rate(x{p=~\"(a|b)\",q=\"(a|b)\",r=\"c\"}[1m])");
    }

    #[test]
    fn values_are_cut_by_the_pattern_and_joined() {
        let values = [
            "a-broker-0".to_owned(),
            "b-broker-1".to_owned(),
            "other".to_owned(),
        ];
        assert_eq!(
            joined(&values, "/^(.+)-broker-[0-9]+$/").unwrap().unwrap(),
            "(a|b)"
        );
        assert_eq!(joined(&values[2..], "/^(.+)-broker-[0-9]+$/").unwrap(), None);
        assert_eq!(joined(&["x.y".to_owned()], "").unwrap().unwrap(), "x\\\\.y");
    }

    #[test]
    fn queries_in_rows_are_found() {
        let panels = json!([
            { "title": "row", "panels": [{ "title": "in", "targets": [{ "expr": "a" }] }] },
            { "title": "out", "targets": [{ "expr": "b" }, { "expr": "c" }] },
        ]);
        let found: Vec<_> = queries(&panels)
            .into_iter()
            .map(|(title, expression)| format!("{title} {expression}"))
            .collect();
        assert_eq!(found, ["in a", "out b", "out c"]);
    }

    #[test]
    fn label_values_is_read() {
        assert_eq!(
            label_values("label_values(m{a=\"1\",b=\"2\"}, pod)").unwrap(),
            ("m{a=\"1\",b=\"2\"}", "pod")
        );
        assert!(label_values("query_result(x)").is_err());
    }
}
