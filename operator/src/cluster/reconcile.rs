//! The steps in their order, for one cluster.

use std::time::Duration;

use felix_crds::{Condition, ConditionStatus, FelixCluster, FelixClusterStatus};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{Api, ResourceExt, api::PropagationPolicy, runtime::controller::Action};
use time::OffsetDateTime;

use super::{
    access, build,
    deletion::{self, Farewell},
    dereference::{Observed, dereference, workload},
    facts, growth, material,
    restart::{self, RestartStep},
    status::{self, Obstacle, Outcome},
    storage::{self, ClaimTemplate, Correction},
    validate::{Defaults, ValidatedCluster, validate},
};
use crate::{
    apply::{ApplyError, apply, apply_if_unchanged, delete_same, delete_unchanged},
    context::Context,
    lasting::{self, Owner},
    retry::ReconcileError,
};

/// While something is on its way that no watch tells.
const SOON: Duration = Duration::from_secs(15);

/// Brings one cluster to what its object says.
pub(crate) async fn reconcile(context: &Context, cluster: &FelixCluster) -> Result<Action, ReconcileError> {
    let namespace = cluster.namespace().unwrap_or_default();
    let Some(observed) = dereference(context, &namespace, &cluster.name_any()).await? else {
        return Ok(Action::await_change());
    };
    if observed.cluster.metadata.deletion_timestamp.is_some() {
        return Ok(match deletion::finish(context, &observed).await? {
            Farewell::Done => Action::await_change(),
            Farewell::Waiting => {
                if !observed.workload.pods.is_empty() {
                    write_status(context, &observed, leaving(&observed)).await?;
                }
                Action::requeue(SOON)
            }
        });
    }
    let defaults = Defaults {
        broker_image: context.broker_image.clone(),
        cluster_domain: context.cluster_domain.clone(),
    };
    let validated = match validate(&observed, &defaults) {
        Ok(validated) => validated,
        Err(invalid) => {
            let obstacle = Obstacle {
                reason: "Invalid",
                message: invalid.to_string(),
            };
            write_status(
                context,
                &observed,
                status::refused(&observed, &obstacle, &crate::status::now()),
            )
            .await?;
            return Ok(Action::requeue(context.resync));
        }
    };
    let (obstacle, error) = if observed.cluster.spec.paused {
        (None, None)
    } else {
        match carry_out(context, &observed, &validated).await {
            Ok(obstacle) => (obstacle, None),
            Err(error) if error.is_race() => return Err(error),
            Err(error) => (Some(obstacle_of(&error)), Some(error)),
        }
    };
    let outcome = look_again(context, &observed, &validated, obstacle).await?;
    let status = status::status(&observed, &validated, &outcome, &crate::status::now());
    let action = Action::requeue(next_look(&status, context.resync));
    write_status(context, &observed, status).await?;
    error.map_or(Ok(action), Err)
}

/// What a cluster says while its pods stop.
fn leaving(observed: &Observed) -> FelixClusterStatus {
    let pods: Vec<String> = observed.workload.pods.iter().map(ResourceExt::name_any).collect();
    let obstacle = Obstacle {
        reason: "Leaving",
        message: format!(
            "its volumes are deleted once its pods have stopped ({}); a pod on a node that is gone stops when that node \
             is deleted",
            pods.join(", ")
        ),
    };
    status::refused(observed, &obstacle, &crate::status::now())
}

/// Applies everything. An obstacle is something that only time or a person can remove.
async fn carry_out(
    context: &Context,
    observed: &Observed,
    cluster: &ValidatedCluster,
) -> Result<Option<Obstacle>, ReconcileError> {
    deletion::keep_finalizer(context, &observed.cluster).await?;
    let plan = storage::plan(cluster, &observed.workload);
    let claims = plan.clone().unwrap_or_else(|_| ClaimTemplate::wanted(cluster));
    let now = OffsetDateTime::now_utc();
    let kept = material::keep(observed, &cluster.certificate_names, now);
    let internal = |error: material::MaterialError| ReconcileError::Internal(error.to_string());
    let (material, made) = material::make(kept, cluster, now).map_err(internal)?;
    let objects = build::build(cluster, &material, &claims)?;
    let owner = Owner::new(context, cluster.names.namespace(), &cluster.owner);
    let client = &context.client;
    lasting::apply_lasting(&owner, &objects.ca, observed.ca.as_ref()).await?;
    apply_if_unchanged(
        client,
        &objects.server_certificate,
        observed.server_certificate.as_ref(),
    )
    .await?;
    apply_if_unchanged(client, &objects.admin_token, observed.admin_token.as_ref()).await?;
    for desired in &objects.supporting {
        apply(client, desired).await?;
    }
    tell_what_was_made(context, observed, made).await;
    match plan {
        Ok(_) => {
            if observed.workload.stateful_set.is_none() {
                // Its claims have no owner either.
                owner.must_live().await?;
            }
            apply(client, &objects.stateful_set).await?;
            Ok(None)
        }
        Err(correction) => correct_storage(context, observed, correction).await.map(Some),
    }
}

/// One step towards claims that can be bound. Everything else has been applied by then.
async fn correct_storage(
    context: &Context,
    observed: &Observed,
    correction: Correction,
) -> Result<Obstacle, ReconcileError> {
    let namespace = observed.names.namespace();
    let message = match correction {
        Correction::Orphan => {
            let api: Api<StatefulSet> = context.api(namespace);
            if let Some(stateful_set) = &observed.workload.stateful_set {
                delete_same(&api, stateful_set, PropagationPolicy::Orphan).await?;
            }
            "the StatefulSet is made again for another class or size of volumes".to_owned()
        }
        Correction::DeleteUnbound(claims) => {
            delete_waiting_pods(context, observed).await?;
            let api: Api<PersistentVolumeClaim> = context.api(namespace);
            for claim in &claims {
                delete_unchanged(&api, claim, PropagationPolicy::Background).await?;
            }
            "claims without a volume are made again for another class or size".to_owned()
        }
        Correction::Wait(message) => message,
        Correction::Foreign(message) => {
            return Ok(Obstacle {
                reason: "ForeignClaim",
                message,
            });
        }
    };
    Ok(Obstacle {
        reason: "CorrectingStorage",
        message,
    })
}

/// Pods that wait for a claim without a volume; they come back with the StatefulSet.
async fn delete_waiting_pods(context: &Context, observed: &Observed) -> Result<(), kube::Error> {
    let api: Api<Pod> = context.api(observed.names.namespace());
    for pod in &observed.workload.pods {
        if !restart::is_ready(pod) && !restart::is_leaving(pod) {
            delete_same(&api, pod, PropagationPolicy::Background).await?;
        }
    }
    Ok(())
}

/// Reads what has become of it, restarts a pod if one must be, and asks the brokers.
async fn look_again(
    context: &Context,
    observed: &Observed,
    cluster: &ValidatedCluster,
    obstacle: Option<Obstacle>,
) -> Result<Outcome, ReconcileError> {
    let mut workload = workload(context, &cluster.names).await?;
    let restart = restart::next(&workload, cluster.replicas);
    let mut refusals = Vec::new();
    if obstacle.is_none() && !observed.cluster.spec.paused {
        let generation = observed.cluster.metadata.generation.unwrap_or_default();
        let refused = growth::refused_before(conditions(&observed.cluster), generation);
        refusals = growth::grow(context, cluster, &mut workload, refused).await?;
        restart_pod(context, observed, &restart).await?;
    }
    let brokers = access::ask_brokers(context, &cluster.names, &workload.pods, &observed.cluster).await?;
    let said = facts::gather(context, cluster, &workload).await?;
    Ok(Outcome {
        workload,
        obstacle,
        restart,
        brokers,
        refusals,
        said,
    })
}

async fn restart_pod(context: &Context, observed: &Observed, step: &RestartStep) -> Result<(), kube::Error> {
    let RestartStep::Restart(pod) = step else {
        return Ok(());
    };
    let api: Api<Pod> = context.api(observed.names.namespace());
    delete_same(&api, pod.as_ref(), PropagationPolicy::Background).await?;
    let note = format!("restarted pod {} to take the change", pod.name_any());
    context
        .events
        .normal(&observed.cluster, "PodRestarted", note)
        .await;
    Ok(())
}

async fn tell_what_was_made(context: &Context, observed: &Observed, made: material::Made) {
    let cluster = &observed.cluster;
    let first = cluster
        .status
        .as_ref()
        .is_none_or(|status| status.cluster_id.is_none());
    if made.ca && !first {
        let note = "made a new CA; the ones before stay in the bundle until they expire";
        context.events.warning(cluster, "CaMade", note).await;
    }
    if made.server && !first {
        context
            .events
            .normal(cluster, "CertificateMade", "made a new server certificate")
            .await;
    }
}

/// Writes the status where it differs, and tells what has turned.
async fn write_status(
    context: &Context,
    observed: &Observed,
    status: FelixClusterStatus,
) -> Result<(), kube::Error> {
    let cluster = &observed.cluster;
    let api: Api<FelixCluster> = context.api(observed.names.namespace());
    if !crate::status::write(&api, cluster, cluster.status.as_ref(), &status).await? {
        return Ok(());
    }
    context
        .events
        .transitions(cluster, conditions(cluster), &status.conditions)
        .await;
    Ok(())
}

fn conditions(cluster: &FelixCluster) -> &[Condition] {
    let status = cluster.status.as_ref();
    status.map_or(&[][..], |status| &status.conditions)
}

/// Buffers may be granted later, and a broker that starts has not spoken yet; nothing but asking tells.
fn next_look(status: &FelixClusterStatus, resync: Duration) -> Duration {
    let holds = |kind: &str| {
        status
            .conditions
            .iter()
            .any(|c| c.kind == kind && c.status == ConditionStatus::True)
    };
    if holds(status::READY) && holds(status::UDP_BUFFERS_GRANTED) {
        resync
    } else {
        SOON.min(resync)
    }
}

fn obstacle_of(error: &ReconcileError) -> Obstacle {
    let reason = match error {
        ReconcileError::Apply(ApplyError::Taken { .. }) => "NameTaken",
        ReconcileError::Apply(ApplyError::Leaving { .. }) => "WaitingForDeletion",
        ReconcileError::Apply(
            ApplyError::Api { .. } | ApplyError::Malformed { .. } | ApplyError::Overtaken { .. },
        )
        | ReconcileError::Kube(_) => "ApiRefused",
        ReconcileError::Broker(_)
        | ReconcileError::OwnerGone(_)
        | ReconcileError::TimedOut(_)
        | ReconcileError::Unreadable(_)
        | ReconcileError::Internal(_) => "Failed",
    };
    Obstacle {
        reason,
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
