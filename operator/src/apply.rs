//! Server-side apply that writes only where something differs, and deletion with preconditions.
//!
//! A change names the uid and the resource version that were read: without the uid an apply would make anew what somebody
//! has deleted in between.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    difference::{difference, hex_digest, without_nulls},
    names::{APPLIED_HASH, CLUSTER_LABEL, FIELD_MANAGER, MANAGED_BY_LABEL},
};

/// An object as it should be, of any kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Desired {
    resource: ApiResource,
    value: Value,
}

/// What applying did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The object is as it should be; nothing was written.
    Unchanged,
    /// It was made.
    Created,
    /// It was changed.
    Changed,
}

/// Why an object could not be applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The API server refused or could not be reached.
    #[error("{object}: {source}")]
    Api {
        /// Kind and name.
        object: String,
        /// The API server's answer.
        source: kube::Error,
    },
    /// An object of that name exists and is not ours.
    #[error("{object} exists and is not managed by this operator for this object: delete or rename it")]
    Taken {
        /// Kind and name.
        object: String,
    },
    /// The object is on its way out; it is made again when it is gone.
    #[error("{object} is being deleted and is made again when it is gone")]
    Leaving {
        /// Kind and name.
        object: String,
    },
    /// What was decided rests on a reading that is not true any more.
    #[error("{object} was made, changed or deleted by somebody else meanwhile; it is looked at again")]
    Overtaken {
        /// Kind and name.
        object: String,
    },
    /// The object is no JSON object; a fault of the builder.
    #[error("{object} cannot be written: {message}")]
    Malformed {
        /// Kind and name.
        object: String,
        /// What is wrong.
        message: String,
    },
}

impl ApplyError {
    /// Whether a fresh look decides anew, without anything being wrong.
    pub(crate) fn is_race(&self) -> bool {
        match self {
            Self::Overtaken { .. } => true,
            Self::Api { source, .. } => is_conflict(source),
            Self::Taken { .. } | Self::Leaving { .. } | Self::Malformed { .. } => false,
        }
    }
}

impl Desired {
    /// Of a typed object, which must have a name and a namespace.
    ///
    /// # Errors
    /// Where the object cannot be written as JSON or has no name.
    pub(crate) fn new<K>(object: &K) -> Result<Self, ApplyError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let resource = ApiResource::erase::<K>(&());
        let label = format!(
            "{} {}",
            resource.kind,
            object.meta().name.as_deref().unwrap_or_default()
        );
        let malformed = |message: String| ApplyError::Malformed {
            object: label.clone(),
            message,
        };
        let value = serde_json::to_value(object).map_err(|error| malformed(error.to_string()))?;
        let mut value = without_nulls(value);
        if object.meta().name.is_none() || object.meta().namespace.is_none() {
            return Err(malformed("it has no name or no namespace".to_owned()));
        }
        mark(&mut value);
        Ok(Self { resource, value })
    }

    /// The same object, as one that goes with its owner.
    pub(crate) fn owned_by(&self, owner: &OwnerReference) -> Self {
        let mut value = self.value.clone();
        value["metadata"]["ownerReferences"] = json!([owner]);
        mark(&mut value);
        Self {
            resource: self.resource.clone(),
            value,
        }
    }

    /// The object as JSON.
    #[cfg(test)]
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Kind and name, for messages.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.resource.kind, self.text("/metadata/name"))
    }

    fn text(&self, pointer: &str) -> &str {
        self.text_at(pointer).unwrap_or_default()
    }

    fn text_at(&self, pointer: &str) -> Option<&str> {
        self.value.pointer(pointer).and_then(Value::as_str)
    }

    fn failed(&self, source: kube::Error) -> ApplyError {
        ApplyError::Api {
            object: self.label(),
            source,
        }
    }

    fn api(&self, client: Client) -> Api<DynamicObject> {
        Api::namespaced_with(client, self.text("/metadata/namespace"), &self.resource)
    }
}

/// Writes down the hash of what is applied: a field that is applied no more then is a difference, too.
fn mark(value: &mut Value) {
    if let Some(annotations) = value
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(APPLIED_HASH);
        if annotations.is_empty()
            && let Some(metadata) = value["metadata"].as_object_mut()
        {
            metadata.remove("annotations");
        }
    }
    let hash = hex_digest(value);
    value["metadata"]["annotations"][APPLIED_HASH] = Value::String(hash);
}

/// Makes an object as it should be. Reads it first, fresh; writes only where it differs.
///
/// # Errors
/// See [`ApplyError`].
pub(crate) async fn apply(client: &Client, desired: &Desired) -> Result<Outcome, ApplyError> {
    match find(client, desired).await? {
        Some(live) => change(client, desired, &live).await,
        None => create(client, desired).await,
    }
}

/// The same for an object whose content was decided from `read`, what there was of it: a key that has been deleted since
/// must not come back out of the operator's memory, and one that somebody else has made is not overwritten.
///
/// # Errors
/// See [`ApplyError`].
pub(crate) async fn apply_if_unchanged<K: Resource>(
    client: &Client,
    desired: &Desired,
    read: Option<&K>,
) -> Result<Outcome, ApplyError> {
    let live = find(client, desired).await?;
    check_unchanged(desired, live.as_ref(), read)?;
    match live {
        Some(live) => change(client, desired, &live).await,
        None => create(client, desired).await,
    }
}

/// The live object, if there is one and it is ours.
///
/// # Errors
/// See [`ApplyError`].
pub(crate) async fn find(client: &Client, desired: &Desired) -> Result<Option<DynamicObject>, ApplyError> {
    let live = desired
        .api(client.clone())
        .get_opt(desired.text("/metadata/name"))
        .await
        .map_err(|source| desired.failed(source))?;
    if let Some(live) = &live {
        check_ours(live, desired)?;
    }
    Ok(live)
}

/// Fails where an object is not the one that was read, in the state in which it was read.
///
/// # Errors
/// [`ApplyError::Overtaken`].
pub(crate) fn check_unchanged<K: Resource>(
    desired: &Desired,
    live: Option<&DynamicObject>,
    read: Option<&K>,
) -> Result<(), ApplyError> {
    let version = |meta: &ObjectMeta| (meta.uid.clone(), meta.resource_version.clone());
    if live.map(|live| version(live.meta())) == read.map(|read| version(read.meta())) {
        Ok(())
    } else {
        Err(ApplyError::Overtaken {
            object: desired.label(),
        })
    }
}

/// Makes an object that was not there.
///
/// # Errors
/// See [`ApplyError`].
pub(crate) async fn create(client: &Client, desired: &Desired) -> Result<Outcome, ApplyError> {
    patch(client, desired, None).await?;
    Ok(Outcome::Created)
}

/// Changes a live object where it differs, unless it has changed or gone since it was read.
///
/// # Errors
/// See [`ApplyError`].
pub(crate) async fn change(
    client: &Client,
    desired: &Desired,
    live: &DynamicObject,
) -> Result<Outcome, ApplyError> {
    let Some(path) = differs(desired, live)? else {
        return Ok(Outcome::Unchanged);
    };
    tracing::info!(object = %desired.label(), path, "differs");
    patch(client, desired, Some(live.meta())).await?;
    Ok(Outcome::Changed)
}

/// Where a live object is not as it should be.
///
/// # Errors
/// [`ApplyError::Malformed`].
pub(crate) fn differs(desired: &Desired, live: &DynamicObject) -> Result<Option<String>, ApplyError> {
    let live = serde_json::to_value(live).map_err(|error| ApplyError::Malformed {
        object: desired.label(),
        message: error.to_string(),
    })?;
    Ok(difference(&live, &desired.value))
}

/// With `read` the write fails where the object has changed or gone since.
async fn patch(client: &Client, desired: &Desired, read: Option<&ObjectMeta>) -> Result<(), ApplyError> {
    let mut body = desired.value.clone();
    if let Some(read) = read {
        body["metadata"]["uid"] = json!(read.uid);
        body["metadata"]["resourceVersion"] = json!(read.resource_version);
    }
    tracing::info!(object = %desired.label(), "applying");
    desired
        .api(client.clone())
        .patch(
            desired.text("/metadata/name"),
            &PatchParams::apply(FIELD_MANAGER).force(),
            &Patch::Apply(&body),
        )
        .await
        .map(drop)
        .map_err(|source| desired.failed(source))
}

/// Whether the live object is ours to change: managed by this operator, for the same cluster and the same owner.
fn check_ours(live: &DynamicObject, desired: &Desired) -> Result<(), ApplyError> {
    let label_matches = |key: &str| {
        let wanted = desired.value["metadata"]["labels"]
            .get(key)
            .and_then(Value::as_str);
        live.labels().get(key).map(String::as_str) == wanted
    };
    if live.meta().deletion_timestamp.is_some() {
        return Err(ApplyError::Leaving {
            object: desired.label(),
        });
    }
    if !label_matches(MANAGED_BY_LABEL) || !label_matches(CLUSTER_LABEL) {
        return Err(ApplyError::Taken {
            object: desired.label(),
        });
    }
    let wanted_owner = desired.text_at("/metadata/ownerReferences/0/uid");
    let other_owner = live
        .owner_references()
        .iter()
        .any(|owner| owner.controller == Some(true) && wanted_owner.is_some_and(|uid| uid != owner.uid));
    // The owner of that name before: its objects go with it.
    if other_owner {
        Err(ApplyError::Leaving {
            object: desired.label(),
        })
    } else {
        Ok(())
    }
}

/// Deletes the object of this identity, whatever has become of it since it was read. One that is gone is fine.
///
/// # Errors
/// Where the API server refuses, for one because another object has the name now.
pub(crate) async fn delete_same<K>(
    api: &Api<K>,
    object: &K,
    propagation: PropagationPolicy,
) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    delete(
        api,
        object,
        propagation,
        Preconditions {
            uid: object.uid(),
            resource_version: None,
        },
    )
    .await
}

/// Deletes the object only if it is as it was read. One that is gone is fine.
///
/// # Errors
/// Where the API server refuses, for one because the object has changed.
pub(crate) async fn delete_unchanged<K>(
    api: &Api<K>,
    object: &K,
    propagation: PropagationPolicy,
) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let preconditions = Preconditions {
        uid: object.uid(),
        resource_version: object.resource_version(),
    };
    delete(api, object, propagation, preconditions).await
}

async fn delete<K>(
    api: &Api<K>,
    object: &K,
    propagation: PropagationPolicy,
    preconditions: Preconditions,
) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        preconditions: Some(preconditions),
        propagation_policy: Some(propagation),
        ..DeleteParams::default()
    };
    tracing::info!(object = %object.name_any(), kind = std::any::type_name::<K>(), "deleting");
    match api.delete(&object.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the API server says that the object does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    has_code(error, 404)
}

/// Whether the API server says that the object would not be a valid one.
pub(crate) fn is_invalid(error: &kube::Error) -> bool {
    has_code(error, 422)
}

/// Whether the API server says that the operator may not do this.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    has_code(error, 403)
}

/// Whether the API server says that the object is not what the request takes it for.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    has_code(error, 409)
}

fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
