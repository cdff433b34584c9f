//! Our finalizer: put on objects whose deletion needs the operator, and taken off where nobody will be there for it.

use std::fmt::Debug;

use felix_crds::{FelixCluster, FelixStream};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{
    apply::is_not_found,
    context::Context,
    names::{FIELD_MANAGER, FINALIZER},
};

/// Whether an object has it.
pub(crate) fn is_on<K: Resource>(object: &K) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Puts it on or takes it off, where it is not so already. In a namespace that is being deleted it is not put on any
/// more: an operator in that namespace goes before the object does.
///
/// # Errors
/// Where the API server refuses, for one because the object has changed since it was read: no other finalizer is lost.
pub(crate) async fn keep<K>(context: &Context, object: &K, wanted: bool) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let namespace = object.namespace().unwrap_or_default();
    if wanted == is_on(object) || (wanted && namespace_ends(context, &namespace).await?) {
        return Ok(());
    }
    let others = object
        .finalizers()
        .iter()
        .filter(|finalizer| *finalizer != FINALIZER);
    let mut finalizers: Vec<&str> = others.map(String::as_str).collect();
    if wanted {
        finalizers.push(FINALIZER);
    }
    let body = json!({ "metadata": {
        "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": finalizers,
    } });
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let api: Api<K> = context.api(&namespace);
    match api.patch(&object.name_any(), &params, &Patch::Merge(&body)).await {
        Err(error) if !wanted && is_not_found(&error) => Ok(()),
        result => result.map(drop),
    }
}

/// Whether a namespace is being deleted, and with it all that is in it.
pub(crate) async fn namespace_ends(context: &Context, namespace: &str) -> Result<bool, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let found = namespaces.get_opt(namespace).await?;
    Ok(found.is_none_or(|namespace| namespace.metadata.deletion_timestamp.is_some()))
}

/// The last thing an operator does whose own namespace is being deleted: its pod goes before the other objects there,
/// and nobody would be left to take the finalizers off.
pub(crate) async fn let_go_with_own_namespace(context: &Context) -> Result<(), kube::Error> {
    let namespace = &context.operator_namespace;
    if !namespace_ends(context, namespace).await? {
        return Ok(());
    }
    tracing::info!(
        namespace,
        "the operator's namespace is being deleted: taking the finalizers off there"
    );
    take_off_all::<FelixStream>(context, namespace).await?;
    take_off_all::<FelixCluster>(context, namespace).await
}

async fn take_off_all<K>(context: &Context, namespace: &str) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    for object in context.api::<K>(namespace).list(&ListParams::default()).await? {
        keep(context, &object, false).await?;
    }
    Ok(())
}
