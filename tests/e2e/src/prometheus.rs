//! A real Prometheus in a scenario's namespace, and questions to it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

use crate::{
    Sample, Space,
    wait::{USUAL, await_object},
};

/// Prometheus in the namespace of a scenario.
pub struct Prometheus<'a> {
    space: &'a Space,
}

impl<'a> Prometheus<'a> {
    /// Installs it and awaits that it is ready.
    ///
    /// # Errors
    /// If it is refused or not ready in time.
    pub async fn install(space: &'a Space) -> Result<Self> {
        let manifests = include_str!("../manifests/prometheus.yaml").replace("felix-demo", &space.name);
        space.apply_manifests(&manifests).await?;
        await_object(
            &space.api::<Deployment>(),
            "prometheus",
            "Prometheus is ready",
            USUAL,
            |deployment| (deployment?.status.as_ref()?.ready_replicas? >= 1).then_some(()),
        )
        .await?;
        Ok(Self { space })
    }

    /// The samples that an instant query finds.
    ///
    /// # Errors
    /// If the query is refused.
    pub async fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        let answer = self.ask("query", &[("query", expression)]).await?;
        let result = &answer["data"]["result"];
        match answer["data"]["resultType"].as_str() {
            Some("vector") => result.as_array().into_iter().flatten().map(sample).collect(),
            Some("scalar") => Ok(vec![Sample {
                name: String::new(),
                labels: BTreeMap::new(),
                value: number(&result[1])?,
            }]),
            other => bail!("{expression}: cannot read a result of type {other:?}"),
        }
    }

    /// The values that a label has in the series that a selector matches.
    ///
    /// # Errors
    /// If the selector is refused.
    pub async fn label_values(&self, label: &str, selector: &str) -> Result<Vec<String>> {
        let answer = self
            .ask(&format!("label/{label}/values"), &[("match[]", selector)])
            .await?;
        Ok(serde_json::from_value(answer["data"].clone())?)
    }

    async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let parameters: Vec<_> = parameters
            .iter()
            .map(|(key, value)| format!("{}={}", escaped(key), escaped(value)))
            .collect();
        let uri = format!(
            "/api/v1/namespaces/{}/services/prometheus:http/proxy/api/v1/{path}?{}",
            self.space.name,
            parameters.join("&")
        );
        let request = hyper::Request::get(uri).body(Vec::new())?;
        let answer = self
            .space
            .client
            .request_text(request)
            .await
            .with_context(|| format!("{path} {parameters:?}"))?;
        Ok(serde_json::from_str(&answer)?)
    }
}

fn sample(item: &Value) -> Result<Sample> {
    let mut labels: BTreeMap<String, String> = serde_json::from_value(item["metric"].clone())?;
    let name = labels.remove("__name__").unwrap_or_default();
    Ok(Sample {
        name,
        labels,
        value: number(&item["value"][1])?,
    })
}

fn number(value: &Value) -> Result<f64> {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("not a number: {value}"))
}

/// Percent-encodes all but letters and digits.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| {
        if byte.is_ascii_alphanumeric() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(escape).collect()
}
