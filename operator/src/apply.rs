//! Server-side apply that writes only where something differs, and deletion with preconditions.

use std::fmt::Debug;

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

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
    /// The object is no JSON object; a fault of the builder.
    #[error("{object} cannot be written: {message}")]
    Malformed {
        /// Kind and name.
        object: String,
        /// What is wrong.
        message: String,
    },
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
        let hash = hex_digest(&value);
        value["metadata"]["annotations"][APPLIED_HASH] = Value::String(hash);
        Ok(Self { resource, value })
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
        self.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn api(&self, client: Client) -> Api<DynamicObject> {
        Api::namespaced_with(client, self.text("/metadata/namespace"), &self.resource)
    }
}

/// Makes an object as it should be. Reads it first, fresh; writes only where it differs.
///
/// # Errors
/// See [`ApplyError`].
pub(crate) async fn apply(client: &Client, desired: &Desired) -> Result<Outcome, ApplyError> {
    let api = desired.api(client.clone());
    let name = desired.text("/metadata/name");
    let failed = |source| ApplyError::Api {
        object: desired.label(),
        source,
    };
    let live = api.get_opt(name).await.map_err(failed)?;
    let Some(live) = live else {
        patch(&api, desired, None).await.map_err(failed)?;
        return Ok(Outcome::Created);
    };
    check_ours(&live, desired)?;
    let live_value = serde_json::to_value(&live).map_err(|error| ApplyError::Malformed {
        object: desired.label(),
        message: error.to_string(),
    })?;
    let Some(path) = difference(&live_value, &desired.value) else {
        return Ok(Outcome::Unchanged);
    };
    tracing::info!(object = %desired.label(), path, "differs");
    patch(&api, desired, live.resource_version())
        .await
        .map_err(failed)?;
    Ok(Outcome::Changed)
}

/// With a resource version the write fails where the object has changed since it was read.
async fn patch(
    api: &Api<DynamicObject>,
    desired: &Desired,
    version: Option<String>,
) -> Result<(), kube::Error> {
    let mut body = desired.value.clone();
    if let Some(version) = version {
        body["metadata"]["resourceVersion"] = Value::String(version);
    }
    let name = desired.text("/metadata/name");
    tracing::info!(object = %desired.label(), "applying");
    api.patch(
        name,
        &PatchParams::apply(FIELD_MANAGER).force(),
        &Patch::Apply(&body),
    )
    .await
    .map(drop)
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
    let wanted_owner = desired
        .value
        .pointer("/metadata/ownerReferences/0/uid")
        .and_then(Value::as_str);
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

/// Whether the API server says that the operator may not do this.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    has_code(error, 403)
}

fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
