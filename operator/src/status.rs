//! Writing a status: server-side apply to the status subresource, only where it differs from what is there.

use std::fmt::Debug;

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

/// The field manager of the status: what the spec's manager owns is no concern of it.
const STATUS_MANAGER: &str = "felix-operator-status";

/// The time now, as conditions carry it: RFC 3339 in whole seconds.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes `status` to the object, unless `before` (its status as it was read) is the same. Tells whether it wrote.
///
/// # Errors
/// Where the API server refuses; an object of the same name but another identity is refused, too.
pub(crate) async fn write<K, S>(
    api: &Api<K>,
    object: &K,
    before: Option<&S>,
    status: &S,
) -> Result<bool, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    S: Serialize + PartialEq,
{
    if before == Some(status) {
        return Ok(false);
    }
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": object.name_any(), "uid": object.uid() },
        "status": status,
    });
    api.patch_status(
        &object.name_any(),
        &PatchParams::apply(STATUS_MANAGER).force(),
        &Patch::Apply(&body),
    )
    .await?;
    Ok(true)
}
