//! Brings the broker's stream to what a FelixStream says.

use std::{sync::Arc, time::Duration};

use felix_crds::FelixStream;
use kube::{Resource, ResourceExt, runtime::controller::Action};

use super::{
    deletion::{self, Claim, Progress},
    dereference::{self, Broker},
    document::StreamAnswer,
    plan::{self, Plan, ValidatedStream},
    status::{self, Outcome},
};
use crate::{
    apply::is_not_found,
    broker_api::{BrokerApi, BrokerApiError, Refusal},
    context::Context,
    controllers::Reconciler,
    retry::ReconcileError,
    status::{now, write},
};

/// How often the broker is asked whether a stream still is as it should be: only a look, nothing is written.
const DRIFT_CHECK: Duration = Duration::from_secs(60);
/// How often a broker that cannot be asked, or a name that is taken, is looked at again.
const NOT_YET: Duration = Duration::from_secs(5);

/// Keeps FelixStreams.
pub(crate) struct StreamReconciler {
    /// The client and the settings.
    pub(crate) context: Arc<Context>,
}

impl Reconciler for StreamReconciler {
    type Object = FelixStream;
    const KIND: &'static str = "FelixStream";

    async fn reconcile(&self, stream: Arc<FelixStream>) -> Result<Action, ReconcileError> {
        if stream.metadata.deletion_timestamp.is_some() {
            return self.finish(&stream).await;
        }
        let outcome = match plan::validate(&stream) {
            Ok(validated) => self.keep(&stream, &validated).await?,
            Err(message) => Outcome::Invalid(message),
        };
        self.write_status(&stream, &outcome).await?;
        Ok(Action::requeue(match outcome {
            Outcome::Ready { .. } => self.context.resync.min(DRIFT_CHECK),
            Outcome::ClusterNotReady(_) | Outcome::NameTaken { .. } => NOT_YET,
            Outcome::Invalid(_) | Outcome::ClusterMissing(_) | Outcome::Refused(_) | Outcome::Leaving(_) => {
                self.context.resync
            }
        }))
    }
}

impl StreamReconciler {
    /// Makes the broker's stream as it should be and tells what came of it.
    async fn keep(&self, stream: &FelixStream, wanted: &ValidatedStream) -> Result<Outcome, ReconcileError> {
        let broker = match dereference::broker(&self.context, stream).await? {
            Broker::ClusterGone => return Ok(Outcome::ClusterMissing(stream.spec.cluster_ref.name.clone())),
            Broker::NotYet => return Ok(Outcome::ClusterNotReady(no_broker(stream))),
            Broker::At(broker) => broker,
        };
        match self.carry_out(stream, wanted, &broker).await {
            Ok(outcome) => Ok(outcome),
            Err(ReconcileError::Broker(error)) => refused(wanted, error),
            Err(error) => Err(error),
        }
    }

    async fn carry_out(
        &self,
        stream: &FelixStream,
        wanted: &ValidatedStream,
        broker: &BrokerApi,
    ) -> Result<Outcome, ReconcileError> {
        let found: Option<StreamAnswer> = broker.stream(&wanted.name).await?;
        match plan::plan(wanted, found.as_ref()) {
            Plan::Keep { incarnation } => {
                deletion::keep_finalizer(&self.context, stream).await?;
                Ok(Outcome::Ready {
                    name: wanted.name.clone(),
                    incarnation,
                })
            }
            Plan::Put(request) => {
                // First, so that nothing is made that nobody would delete.
                deletion::keep_finalizer(&self.context, stream).await?;
                tracing::info!(stream = %wanted.name, owner = %wanted.owner, "putting the stream");
                let answer: StreamAnswer = broker.put_stream(&wanted.name, &request).await?;
                Ok(Outcome::Ready {
                    name: wanted.name.clone(),
                    incarnation: answer.stream.incarnation,
                })
            }
            Plan::Taken {
                owner,
                catalogue_version,
            } => {
                let namespace = stream.namespace().unwrap_or_default();
                let claim = Claim {
                    stream: &wanted.name,
                    owner: &owner,
                    catalogue_version,
                };
                deletion::release_if_orphaned(&self.context, &namespace, broker, &claim).await?;
                Ok(Outcome::NameTaken {
                    name: wanted.name.clone(),
                    owner,
                })
            }
        }
    }

    /// Follows an object that is being deleted to its end.
    async fn finish(&self, stream: &FelixStream) -> Result<Action, ReconcileError> {
        match deletion::finish(&self.context, stream).await? {
            Progress::Done => Ok(Action::await_change()),
            Progress::Waiting(why) => {
                let message = format!(
                    "the broker of FelixCluster {} cannot be asked to delete the stream: {why}. The object goes once it \
                     can be, or with its FelixCluster",
                    stream.spec.cluster_ref.name
                );
                self.write_status(stream, &Outcome::Leaving(message)).await?;
                Ok(Action::requeue(NOT_YET))
            }
        }
    }

    /// Writes the status where it differs, and an event where Ready has another reason than before.
    async fn write_status(&self, stream: &FelixStream, outcome: &Outcome) -> Result<(), ReconcileError> {
        let before = stream.status.clone().unwrap_or_default();
        let generation = stream.meta().generation.unwrap_or_default();
        let after = status::status(&before, outcome, generation, &now());
        let api = self
            .context
            .api::<FelixStream>(&stream.namespace().unwrap_or_default());
        match write(&api, stream, stream.status.as_ref(), &after).await {
            // It went while its broker was asked.
            Err(error) if is_not_found(&error) => return Ok(()),
            result => result?,
        };
        self.context
            .events
            .transitions(stream, &before.conditions, &after.conditions)
            .await;
        Ok(())
    }
}

fn no_broker(stream: &FelixStream) -> String {
    format!(
        "no broker of FelixCluster {} serves at present",
        stream.spec.cluster_ref.name
    )
}

/// What a broker's refusal means for the stream; a conflict is tried again at once, with a fresh look.
fn refused(wanted: &ValidatedStream, error: BrokerApiError) -> Result<Outcome, ReconcileError> {
    let BrokerApiError::Refused { status, refusal, .. } = &error else {
        return Ok(Outcome::ClusterNotReady(error.to_string()));
    };
    match (refusal.code.as_str(), &refusal.owner) {
        ("VersionConflict", _) => Err(error.into()),
        ("OwnedByAnother", Some(owner)) => Ok(Outcome::NameTaken {
            name: wanted.name.clone(),
            owner: owner.clone(),
        }),
        _ if matches!(status, 409 | 422) => Ok(Outcome::Refused(said(refusal))),
        _ => Ok(Outcome::ClusterNotReady(error.to_string())),
    }
}

/// The broker's words, with the field that they are about.
fn said(refusal: &Refusal) -> String {
    match &refusal.field {
        Some(field) if !refusal.message.contains(field) => {
            format!("the broker refused {field}: {}", refusal.message)
        }
        Some(_) | None => format!("the broker refused: {}", refusal.message),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted() -> ValidatedStream {
        let stream: FelixStream = serde_json::from_value(json!({
            "apiVersion": "felix.dev/v1alpha1", "kind": "FelixStream",
            "metadata": { "name": "orders", "namespace": "team-a" },
            "spec": { "clusterRef": { "name": "main" } },
        }))
        .unwrap();
        plan::identify(&stream)
    }

    fn refusal(status: u16, code: &str) -> BrokerApiError {
        let refusal = Refusal {
            code: code.to_owned(),
            message: "shards cannot change".to_owned(),
            field: Some("spec.shards".to_owned()),
            owner: Some("FelixStream/team-a/first".to_owned()),
            ..Refusal::default()
        };
        BrokerApiError::Refused {
            host: "h".to_owned(),
            status,
            refusal: Box::new(refusal),
        }
    }

    #[test]
    fn a_refusal_becomes_a_condition_that_says_what_is_wrong() {
        let outcome = |status, code| refused(&wanted(), refusal(status, code)).unwrap();
        assert_eq!(
            outcome(409, "OwnedByAnother"),
            Outcome::NameTaken {
                name: "orders".to_owned(),
                owner: "FelixStream/team-a/first".to_owned()
            }
        );
        for (status, code) in [(409, "Immutable"), (422, "Invalid")] {
            let Outcome::Refused(message) = outcome(status, code) else {
                panic!("{code}")
            };
            assert!(
                message.contains("spec.shards") && message.contains("cannot change"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_race_is_run_again_and_a_broker_that_is_away_is_waited_for() {
        assert!(refused(&wanted(), refusal(409, "VersionConflict")).is_err());
        for error in [
            refusal(401, "Unauthenticated"),
            refusal(503, ""),
            BrokerApiError::Unreachable {
                host: "h".to_owned(),
                message: "refused".to_owned(),
            },
        ] {
            assert!(matches!(
                refused(&wanted(), error),
                Ok(Outcome::ClusterNotReady(_))
            ));
        }
    }
}
