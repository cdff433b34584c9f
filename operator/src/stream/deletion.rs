//! What deleting a FelixStream does: with `deletionPolicy: Delete` the broker's stream goes, with Retain its owner is let
//! go of.
//!
//! Only with Delete does the object carry our finalizer. Under Retain nobody has to be there when it goes: its owner is
//! released when the deletion is seen, or later, when another object wants the name.

use felix_crds::{DeletionPolicy, FelixStream};
use kube::ResourceExt;

use super::{
    dereference::{self, Broker},
    document::StreamAnswer,
    plan::{self, Farewell, ValidatedStream},
};
use crate::{
    broker_api::{BrokerApi, BrokerApiError},
    context::Context,
    finalizer,
    retry::ReconcileError,
};

/// How far a deletion has come.
pub(crate) enum Progress {
    /// Nothing is left to do for us.
    Done,
    /// The broker cannot be asked, for this reason.
    Waiting(String),
}

/// Who holds a stream's name, as the broker recorded it.
pub(crate) struct Claim<'a> {
    /// The name that clients use.
    pub(crate) stream: &'a str,
    /// The owner.
    pub(crate) owner: &'a str,
    /// The version of the catalogue that says so.
    pub(crate) catalogue_version: u64,
}

/// Adds or removes our finalizer, as the policy asks.
pub(crate) async fn keep_finalizer(context: &Context, stream: &FelixStream) -> Result<(), kube::Error> {
    let wanted = match stream.spec.deletion_policy {
        DeletionPolicy::Delete => true,
        DeletionPolicy::Retain => false,
    };
    finalizer::keep(context, stream, wanted).await
}

/// Does what the policy says for an object that is being deleted, then lets it go. With the cluster or the namespace
/// goes the stream.
pub(crate) async fn finish(context: &Context, stream: &FelixStream) -> Result<Progress, ReconcileError> {
    if !finalizer::is_on(stream) {
        return Ok(Progress::Done);
    }
    let broker = match dereference::broker(context, stream).await? {
        Broker::ClusterGone => return let_go(context, stream).await,
        Broker::NotYet => None,
        Broker::At(broker) => Some(broker),
    };
    if finalizer::namespace_ends(context, &stream.namespace().unwrap_or_default()).await? {
        return let_go(context, stream).await;
    }
    let Some(broker) = broker else {
        return Ok(Progress::Waiting(
            "none of its brokers serves at present".to_owned(),
        ));
    };
    match say_farewell(&plan::identify(stream), &broker).await {
        Ok(()) => let_go(context, stream).await,
        Err(error) => Ok(Progress::Waiting(error.to_string())),
    }
}

/// Releases what an object that is gone has owned, if its broker can be asked now.
pub(crate) async fn release_what_it_owned(
    context: &Context,
    gone: &FelixStream,
) -> Result<(), ReconcileError> {
    let Broker::At(broker) = dereference::broker(context, gone).await? else {
        return Ok(());
    };
    let gone_stream = plan::identify(gone);
    let found: Option<StreamAnswer> = broker.stream(&gone_stream.name).await?;
    let Some(found) = found.filter(|found| found.stream.owner.as_ref() == Some(&gone_stream.owner)) else {
        return Ok(());
    };
    let claim = Claim {
        stream: &gone_stream.name,
        owner: &gone_stream.owner,
        catalogue_version: found.catalogue_version,
    };
    release_if_orphaned(context, &gone.namespace().unwrap_or_default(), &broker, &claim).await
}

/// Releases a name whose recorded owner does not exist. Only owners of the cluster's namespace can be looked up, and a
/// cluster has no others.
pub(crate) async fn release_if_orphaned(
    context: &Context,
    namespace: &str,
    broker: &BrokerApi,
    claim: &Claim<'_>,
) -> Result<(), ReconcileError> {
    let Some(owner) = plan::stream_of_owner(claim.owner, namespace) else {
        return Ok(());
    };
    let streams = context.api::<FelixStream>(namespace);
    if streams.get_opt(owner).await?.is_none() {
        let Claim { stream, owner, .. } = claim;
        tracing::info!(stream, owner, "releasing the stream of an owner that is no more");
        broker
            .release_stream(stream, owner, claim.catalogue_version)
            .await?;
    }
    Ok(())
}

/// Asks the broker to delete or release the stream, where it is this owner's.
async fn say_farewell(stream: &ValidatedStream, broker: &BrokerApi) -> Result<(), BrokerApiError> {
    let found: Option<StreamAnswer> = broker.stream(&stream.name).await?;
    let (name, owner) = (&stream.name, &stream.owner);
    let asked = match plan::farewell(stream, found.as_ref()) {
        Farewell::Nothing => return Ok(()),
        Farewell::Delete { catalogue_version } => {
            tracing::info!(stream = name, owner, "deleting the stream");
            broker.delete_stream(name, owner, catalogue_version).await
        }
        Farewell::Release { catalogue_version } => {
            tracing::info!(stream = name, owner, "releasing the stream");
            broker.release_stream(name, owner, catalogue_version).await
        }
    };
    match asked {
        Err(BrokerApiError::Refused { status: 404, .. }) => Ok(()),
        result => result.map(drop),
    }
}

async fn let_go(context: &Context, stream: &FelixStream) -> Result<Progress, ReconcileError> {
    finalizer::keep(context, stream, false).await?;
    Ok(Progress::Done)
}
