//! Running controllers: one loop for every kind, with time limit, back-off, metrics and unreadable objects handled once.

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{DeserializeGuard, NamespaceResourceScope, PartialObjectMeta},
    runtime::{
        Controller,
        controller::{self, Action},
        reflector::ObjectRef,
        watcher,
    },
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    names::{FIELD_MANAGER, MANAGED_BY_LABEL},
    retry::{ReconcileError, Retries},
};

/// How long one reconcile may take: longer means that the API server or a broker hangs.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// How many objects of a kind are worked on at once.
const CONCURRENCY: u16 = 8;
/// Changes of one object within this time are one.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// A kind that the operator keeps: what to do with one object of it.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Object: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// Its name, for metrics and messages.
    const KIND: &'static str;

    /// Brings one object to what it should be.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
    ) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

/// An object of ours, or what is left of one that cannot be read.
pub(crate) type Guarded<K> = DeserializeGuard<K>;

/// Namespace and name of an object.
type Key = (Option<String>, String);

/// What a running controller shares between its reconciles.
struct Shared<R: Reconciler> {
    context: Arc<Context>,
    reconciler: R,
    retries: Arc<Retries<Key>>,
}

/// Runs a controller until `stop`.
pub(crate) async fn run<R: Reconciler>(
    controller: Controller<Guarded<R::Object>>,
    reconciler: R,
    context: Arc<Context>,
    stop: CancellationToken,
) {
    let metrics = context.metrics.clone();
    let retries = Arc::new(Retries::default());
    let shared = Arc::new(Shared {
        context,
        reconciler,
        retries: retries.clone(),
    });
    controller
        .with_config(
            controller::Config::default()
                .concurrency(CONCURRENCY)
                .debounce(DEBOUNCE),
        )
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, error_policy, shared)
        .for_each(|result| {
            match result {
                Ok(_) | Err(controller::Error::ReconcilerFailed(..)) => {}
                // What has failed is looked for again; here ends what is kept about one that is gone.
                Err(controller::Error::ObjectNotFound(gone)) => {
                    retries.succeeded(&(gone.namespace, gone.name))
                }
                Err(controller::Error::QueueError(error)) => {
                    metrics.observe_watch_error(R::KIND);
                    tracing::warn!(kind = R::KIND, %error, "a watch failed and is tried again");
                }
                Err(error @ controller::Error::RunnerError(_)) => {
                    tracing::error!(kind = R::KIND, %error, "the controller ended");
                }
            }
            std::future::ready(())
        })
        .await;
}

async fn reconcile<R: Reconciler>(
    object: Arc<Guarded<R::Object>>,
    shared: Arc<Shared<R>>,
) -> Result<Action, ReconcileError> {
    let started = tokio::time::Instant::now();
    let result = match &object.0 {
        Ok(readable) => tokio::time::timeout(
            TIME_LIMIT,
            shared.reconciler.reconcile(Arc::new(readable.clone())),
        )
        .await
        .unwrap_or(Err(ReconcileError::TimedOut(TIME_LIMIT))),
        Err(invalid) => {
            report_unreadable::<R::Object>(&shared.context, &object, &invalid.error).await;
            Err(ReconcileError::Unreadable(invalid.error.clone()))
        }
    };
    let outcome = if result.is_ok() { "ok" } else { "error" };
    shared
        .context
        .metrics
        .observe_reconcile(R::KIND, outcome, started.elapsed());
    if result.is_ok() {
        shared.retries.succeeded(&(object.namespace(), object.name_any()));
    }
    result
}

fn error_policy<R: Reconciler>(
    object: Arc<Guarded<R::Object>>,
    error: &ReconcileError,
    shared: Arc<Shared<R>>,
) -> Action {
    tracing::warn!(kind = R::KIND, object = %object.name_any(), namespace = object.namespace(), %error, "reconcile failed");
    shared
        .retries
        .failed((object.namespace(), object.name_any()), error, rand::random())
}

/// Says in its status that an object cannot be read. Where even that is refused, the log has it.
async fn report_unreadable<K>(context: &Context, object: &Guarded<K>, error: &str)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let Some(namespace) = object.namespace() else {
        return;
    };
    let generation = object.meta().generation.unwrap_or_default();
    let message = format!("this operator cannot read the object: {error}");
    let finding = felix_crds::Finding::no("Ready", "Unreadable", message);
    // A fixed time: the same words again must be no change.
    let since = object
        .meta()
        .creation_timestamp
        .as_ref()
        .map_or_else(crate::status::now, |t| t.0.to_string());
    let conditions = felix_crds::merge(&[], &[finding], generation, &since);
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": object.name_any(), "uid": object.uid() },
        "status": { "observedGeneration": generation, "conditions": conditions },
    });
    let api: Api<DeserializeGuard<K>> = context.api(&namespace);
    let params = PatchParams::apply("felix-operator-status").force();
    if let Err(error) = api
        .patch_status(&object.name_any(), &params, &Patch::Apply(&body))
        .await
    {
        tracing::warn!(%error, object = %object.name_any(), "the status of an unreadable object was not written");
    }
}

/// What is watched of child kinds: the objects that carry the operator's label.
pub(crate) fn ours() -> watcher::Config {
    watcher::Config::default().labels(&format!("{MANAGED_BY_LABEL}={FIELD_MANAGER}"))
}

/// Also reconciles the root of each changed child; `root` reads it off the child's metadata, which is all that is read.
pub(crate) fn watch<K, R>(
    controller: Controller<Guarded<R>>,
    api: Api<PartialObjectMeta<K>>,
    root: fn(&PartialObjectMeta<K>) -> Option<ObjectRef<Guarded<R>>>,
) -> Controller<Guarded<R>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
    R: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    controller.watches(api, ours(), move |child| root(&child))
}

/// Fails with what is missing unless the kind can be listed everywhere: a missing right must not look like emptiness.
///
/// # Errors
/// The API server's answer.
pub(crate) async fn check_access<K>(apis: Vec<Api<K>>) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    for api in apis {
        api.list_metadata(&ListParams::default().limit(1)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use felix_crds::FelixCluster;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::{
        config::{Cli, Command},
        fake_api::FakeApi,
        metrics::Metrics,
    };

    const CLUSTER: &str = "/apis/felix.dev/v1alpha1/namespaces/ns/felixclusters/odd";

    struct Never;

    impl Reconciler for Never {
        type Object = FelixCluster;
        const KIND: &'static str = "FelixCluster";

        async fn reconcile(&self, _: Arc<FelixCluster>) -> Result<Action, ReconcileError> {
            Err(ReconcileError::Internal(
                "an object that cannot be read was reconciled".to_owned(),
            ))
        }
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_is_told_so_and_waits_for_a_change() {
        let api = FakeApi::default();
        let odd = json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixCluster",
            "metadata": { "name": "odd", "namespace": "ns", "uid": "u", "generation": 4,
                          "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "storage": "a lot" },
        });
        api.put(CLUSTER, odd.clone());
        let Command::Run(args) = Cli::parse_from(["felix-operator", "run"]).command else {
            panic!("not run")
        };
        let context = Arc::new(Context::new(
            api.client(),
            &args,
            Metrics::register(&mut Registry::default()),
        ));
        let shared = Arc::new(Shared {
            context,
            reconciler: Never,
            retries: Arc::default(),
        });
        let object: Arc<Guarded<FelixCluster>> = Arc::new(serde_json::from_value(odd).unwrap());
        let error = reconcile(object.clone(), shared.clone()).await.unwrap_err();
        assert!(matches!(error, ReconcileError::Unreadable(_)), "{error}");
        assert_eq!(
            error_policy(object.clone(), &error, shared.clone()),
            Action::await_change()
        );
        let status = api.get(CLUSTER).unwrap()["status"].clone();
        let ready = &status["conditions"][0];
        assert_eq!(
            (&ready["type"], &ready["status"], &ready["reason"]),
            (&json!("Ready"), &json!("False"), &json!("Unreadable"))
        );
        assert_eq!(status["observedGeneration"], 4);
        // Said again in the same words: for the API server that is no change.
        let _ = reconcile(object, shared).await;
        assert_eq!(api.get(CLUSTER).unwrap()["status"], status);
    }
}
