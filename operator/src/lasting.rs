//! Objects that outlive the object they are made for, so that no owner reference may stand on them.
//!
//! Nothing would ever take one away that is made a moment after that object was deleted. So it is born with an owner
//! reference: if its owner is gone by then, the garbage collector takes it. Only after another look at the owner is the
//! reference taken off, by a change of the very object that was born.

use felix_crds::FelixCluster;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Resource, ResourceExt};

use crate::{
    apply::{ApplyError, Desired, change, check_unchanged, create, differs, find},
    context::Context,
    retry::ReconcileError,
};

/// The FelixCluster that something is made for.
pub(crate) struct Owner<'a> {
    context: &'a Context,
    namespace: &'a str,
    reference: &'a OwnerReference,
}

impl<'a> Owner<'a> {
    /// The FelixCluster of this reference.
    pub(crate) fn new(context: &'a Context, namespace: &'a str, reference: &'a OwnerReference) -> Self {
        Self {
            context,
            namespace,
            reference,
        }
    }

    /// Fails unless the owner is there now, the same one, and not about to go.
    ///
    /// # Errors
    /// [`ReconcileError::OwnerGone`], or the API server's answer.
    pub(crate) async fn must_live(&self) -> Result<(), ReconcileError> {
        let api: Api<FelixCluster> = self.context.api(self.namespace);
        let lives = api
            .get_metadata_opt(&self.reference.name)
            .await?
            .is_some_and(|owner| {
                owner.metadata.uid.as_ref() == Some(&self.reference.uid)
                    && owner.metadata.deletion_timestamp.is_none()
            });
        if lives {
            Ok(())
        } else {
            Err(ReconcileError::OwnerGone(self.reference.name.clone()))
        }
    }
}

/// Makes an object that outlives its owner as it should be. Its content was decided from `read`.
///
/// # Errors
/// See [`ReconcileError`].
pub(crate) async fn apply_lasting<K: Resource>(
    owner: &Owner<'_>,
    desired: &Desired,
    read: Option<&K>,
) -> Result<(), ReconcileError> {
    let client = &owner.context.client;
    let found = find(client, desired).await?;
    if found
        .as_ref()
        .is_some_and(|live| goes_with_another(live, &owner.reference.uid))
    {
        return Err(ApplyError::Leaving {
            object: desired.label(),
        }
        .into());
    }
    check_unchanged(desired, found.as_ref(), read)?;
    let live = match found {
        Some(live) => live,
        None => {
            create(client, &desired.owned_by(owner.reference)).await?;
            let overtaken = || ApplyError::Overtaken {
                object: desired.label(),
            };
            find(client, desired).await?.ok_or_else(overtaken)?
        }
    };
    if differs(desired, &live)?.is_some() {
        owner.must_live().await?;
        change(client, desired, &live).await?;
    }
    Ok(())
}

/// Whether an object that should outlive its owner was born for another one and is about to go with that: what it says is
/// of no account.
pub(crate) fn goes_with_another<K: Resource>(object: &K, owner_uid: &str) -> bool {
    object
        .owner_references()
        .iter()
        .any(|owner| owner.controller == Some(true) && owner.uid != owner_uid)
}
