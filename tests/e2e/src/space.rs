//! A scenario's own place: a namespace that enforces the restricted pod standard and has a quota, and goes away afterwards.

use std::{panic::AssertUnwindSafe, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use futures::FutureExt;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, NamespaceResourceScope},
    discovery,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    Samples,
    felix::{Kind, condition},
    helm, report,
    wait::{QUICK, USUAL, await_list, await_object, poll},
};

/// Who the scenarios are to the API server's field management.
const FIELD_MANAGER: &str = "felix-e2e";
/// After this a scenario has failed, whatever it waits for.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A namespace of a scenario's own.
#[derive(Clone)]
pub struct Space {
    /// Speaks to the API server as whoever KUBECONFIG says.
    pub client: Client,
    /// Name of the namespace.
    pub name: String,
}

/// Runs `body` in a namespace of its own; on failure prints what the namespace looked like.
///
/// FELIX_E2E_KEEP=1 leaves the namespace of a failed scenario in place.
///
/// # Errors
/// If the body fails or panics, or if what it left behind cannot be taken away.
pub fn scenario(name: &str, body: impl for<'a> AsyncFnOnce(&'a Space) -> Result<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let begun = std::time::Instant::now();
        let space = Space::create(name).await?;
        eprintln!("{name}: in namespace {}", space.name);
        let body = AssertUnwindSafe(tokio::time::timeout(LIMIT, body(&space)))
            .catch_unwind()
            .await;
        let outcome = match body {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(anyhow!("not done in {LIMIT:?}")),
            Err(_) => Err(anyhow!("panicked")),
        };
        if outcome.is_err() {
            report::print(&space).await;
        }
        let keep = outcome.is_err() && std::env::var_os("FELIX_E2E_KEEP").is_some();
        let removed = if keep { Ok(()) } else { space.remove().await };
        eprintln!("{name}: {:.0} s", begun.elapsed().as_secs_f64());
        outcome.and(removed).with_context(|| format!("scenario {name}"))
    })
}

impl Space {
    async fn create(scenario: &str) -> Result<Self> {
        let client = Client::try_default()
            .await
            .context("cannot reach a Kubernetes: is KUBECONFIG set?")?;
        install_definitions(&client).await?;
        let suffix = jiff::Timestamp::now().as_microsecond() % 60_000_000;
        let space = Self {
            client,
            name: format!("e2e-{scenario}-{suffix}"),
        };
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {
                "name": space.name,
                "labels": { "pod-security.kubernetes.io/enforce": "restricted", "felix-e2e": scenario },
            },
        }))?;
        Api::all(space.client.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
        // With these four in a quota, a pod with a container that lacks a request or a limit is refused.
        let quota: ResourceQuota = serde_json::from_value(json!({
            "metadata": { "name": "quota" },
            "spec": { "hard": {
                "requests.cpu": "2", "requests.memory": "2Gi", "limits.cpu": "16", "limits.memory": "6Gi", "pods": "20",
            } },
        }))?;
        space
            .api::<ResourceQuota>()
            .create(&PostParams::default(), &quota)
            .await?;
        Ok(space)
    }

    /// Access to objects of a built-in kind in this namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Access to objects of one of our kinds in this namespace.
    #[must_use]
    pub fn felix(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.name, &kind.resource())
    }

    /// Applies one of our objects as a user would, and returns it as it is stored.
    ///
    /// # Errors
    /// The API server's refusal.
    pub async fn apply(&self, kind: Kind, object: &Value) -> kube::Result<DynamicObject> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.felix(kind)
            .patch(
                name,
                &PatchParams::apply(FIELD_MANAGER).force(),
                &Patch::Apply(object),
            )
            .await
    }

    /// Changes one of our objects by a JSON merge patch.
    ///
    /// # Errors
    /// The API server's refusal.
    pub async fn patch(&self, kind: Kind, name: &str, patch: &Value) -> kube::Result<DynamicObject> {
        self.felix(kind)
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Applies the objects of a YAML text, of whatever kind, to this namespace.
    ///
    /// # Errors
    /// If one is not an object, or is refused.
    pub async fn apply_manifests(&self, yaml: &str) -> Result<()> {
        for document in serde_yaml::Deserializer::from_str(yaml) {
            let value = Value::deserialize(document)?;
            if value.is_null() {
                continue;
            }
            let object: DynamicObject = serde_json::from_value(value)?;
            let types = object
                .types
                .clone()
                .context("a manifest without apiVersion and kind")?;
            let kind = GroupVersionKind::try_from(&types)?;
            let (resource, _) = discovery::pinned_kind(&self.client, &kind).await?;
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.name, &resource);
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(&object.name_any(), &parameters, &Patch::Apply(&object))
                .await?;
        }
        Ok(())
    }

    /// Applies an object and expects that the API server refuses it with these words.
    ///
    /// # Errors
    /// If it is taken, or refused for another reason.
    pub async fn expect_refusal(&self, kind: Kind, object: &Value, words: &str) -> Result<()> {
        match self.apply(kind, object).await {
            Ok(stored) => Err(anyhow!(
                "{} was accepted, expected a refusal with {words:?}",
                stored.name_any()
            )),
            Err(error) => {
                ensure!(
                    error.to_string().contains(words),
                    "refused, but without the words {words:?}: {error}"
                );
                Ok(())
            }
        }
    }

    /// Installs the operator for this namespace alone.
    ///
    /// # Errors
    /// If Helm fails or the operator does not become available.
    pub async fn install_operator(&self, values: &[&str]) -> Result<()> {
        helm::install(self, values).await
    }

    /// Awaits a condition that was computed for the object's present generation, and returns the object.
    ///
    /// # Errors
    /// After `limit`.
    pub async fn await_condition(
        &self,
        (kind, name): (Kind, &str),
        condition_type: &str,
        (status, reason): (&str, Option<&str>),
        limit: Duration,
    ) -> Result<DynamicObject> {
        let what = format!(
            "{} {name} with {condition_type}={status} {}",
            kind.name(),
            reason.unwrap_or_default()
        );
        await_object(&self.felix(kind), name, &what, limit, |object| {
            let object = object?;
            let found = condition(object, condition_type)?;
            let current = found["observedGeneration"].as_i64() == object.metadata.generation;
            let fits = found["status"] == status && reason.is_none_or(|reason| found["reason"] == reason);
            (current && fits).then(|| object.clone())
        })
        .await
    }

    /// Awaits Ready=True.
    ///
    /// # Errors
    /// After the usual time-out.
    pub async fn await_ready(&self, kind: Kind, name: &str) -> Result<DynamicObject> {
        self.await_condition((kind, name), "Ready", ("True", None), USUAL)
            .await
    }

    /// Applies a cluster and its streams and awaits that all are ready.
    ///
    /// # Errors
    /// If one is refused or not ready in time.
    pub async fn ready_cluster(&self, cluster: &Value, streams: &[Value]) -> Result<DynamicObject> {
        self.apply(Kind::Cluster, cluster).await?;
        for stream in streams {
            self.apply(Kind::Stream, stream).await?;
        }
        for stream in streams {
            self.await_ready(
                Kind::Stream,
                stream["metadata"]["name"].as_str().unwrap_or_default(),
            )
            .await?;
        }
        self.await_ready(
            Kind::Cluster,
            cluster["metadata"]["name"].as_str().unwrap_or_default(),
        )
        .await
    }

    /// The bundle of CA certificates that clients of a cluster trust.
    ///
    /// # Errors
    /// If it is not there.
    pub async fn ca_bundle(&self, cluster: &str) -> Result<String> {
        let bundle = self.api::<ConfigMap>().get(&format!("{cluster}-ca")).await?;
        bundle
            .data
            .unwrap_or_default()
            .remove("ca.crt")
            .context("the CA bundle has no ca.crt")
    }

    /// The cluster IP and port of a cluster's client Service.
    ///
    /// # Errors
    /// If it is not there.
    pub async fn client_address(&self, cluster: &str) -> Result<String> {
        let service = self.api::<Service>().get(cluster).await?;
        let address = service
            .spec
            .and_then(|spec| spec.cluster_ip)
            .context("the client Service has no address")?;
        Ok(format!("{address}:5000"))
    }

    /// One scrape of a pod, through the API server.
    ///
    /// # Errors
    /// If the pod does not answer, or not in the text format.
    pub async fn scrape(&self, pod: &str, port: u16) -> Result<Samples> {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}:{port}/proxy/metrics", self.name);
        Samples::parse(
            &self
                .client
                .request_text(hyper::Request::get(path).body(Vec::new())?)
                .await?,
        )
    }

    /// Scrapes the first broker of a cluster until `probe` finds what it looks for.
    ///
    /// # Errors
    /// After a minute.
    pub async fn await_metric<T>(
        &self,
        cluster: &str,
        what: &str,
        mut probe: impl FnMut(&Samples) -> Option<T>,
    ) -> Result<T> {
        let pod = format!("{cluster}-broker-0");
        poll(what, QUICK, async || Ok(probe(&self.scrape(&pod, 8080).await?))).await
    }

    /// The only broker of a cluster: its pod.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn broker_pod(&self, cluster: &str) -> Result<Pod> {
        Ok(self.api::<Pod>().get(&format!("{cluster}-broker-0")).await?)
    }

    /// Awaits that the broker's pod is another one than `old` (a uid) and ready.
    ///
    /// # Errors
    /// After the usual time-out.
    pub async fn await_new_broker(&self, cluster: &str, old: &Option<String>) -> Result<Pod> {
        let name = format!("{cluster}-broker-0");
        await_object(&self.api::<Pod>(), &name, "a new broker is ready", USUAL, |pod| {
            let pod = pod.filter(|pod| pod.uid() != *old)?;
            let conditions = pod.status.as_ref()?.conditions.as_ref()?;
            conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True")
                .then(|| pod.clone())
        })
        .await
    }

    /// The pod of the operator.
    ///
    /// # Errors
    /// If there is not exactly one.
    pub async fn operator_pod(&self) -> Result<String> {
        let labels = "app.kubernetes.io/component=operator";
        await_list(
            &self.api::<Pod>(),
            labels,
            "one operator pod",
            QUICK,
            |pods| match pods {
                [pod] => Some(pod.name_any()),
                _ => None,
            },
        )
        .await
    }

    /// Deletes an object and awaits that it is gone.
    ///
    /// # Errors
    /// If it is still there after the usual time-out.
    pub async fn delete_and_await<K>(&self, api: &Api<K>, name: &str) -> Result<()>
    where
        K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Serialize + Send + 'static,
    {
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => await_object(api, name, "gone", USUAL, |object| object.is_none().then_some(())).await,
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the namespace as it stands and awaits that it is gone.
    ///
    /// # Errors
    /// If something in it keeps it from ending.
    pub async fn end(&self) -> Result<()> {
        self.delete_and_await(&Api::<Namespace>::all(self.client.clone()), &self.name)
            .await
    }

    /// A second namespace like this one, for the same scenario.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn another(&self, scenario: &str) -> Result<Self> {
        Self::create(scenario).await
    }

    /// Our objects first, while there is an operator to clean up behind them; then the namespace.
    async fn remove(&self) -> Result<()> {
        for kind in Kind::ALL {
            let api = self.felix(kind);
            for object in api.list(&ListParams::default()).await? {
                self.delete_and_await(&api, &object.name_any()).await?;
            }
        }
        // Claims and the CA's key have no owner; the namespace takes them along.
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.delete(&self.name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            // The scenario may have ended it itself.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Installs our resource definitions as this checkout has them.
async fn install_definitions(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in felix_crds::definitions() {
        let name = definition.name_any();
        api.patch(
            &name,
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(&definition),
        )
        .await?;
        await_object(&api, &name, "established", QUICK, |definition| {
            let conditions = definition?.status.as_ref()?.conditions.as_ref()?;
            conditions
                .iter()
                .any(|c| c.type_ == "Established" && c.status == "True")
                .then_some(())
        })
        .await?;
    }
    Ok(())
}
