//! Election of the one working operator among several, by a Lease.
//!
//! The Lease is taken and renewed by replacing it with its resource version, so two cannot take it at once. Whether a
//! holder is gone is judged by how long this process has seen its record unchanged on its own monotonic clock: the clocks
//! of two machines need not agree. Who cannot renew in time ends at once; until then the gate (see `gate.rs`) lets no
//! write through that could come after the end of the Lease. Deletions carry preconditions besides, so that even a
//! leader that does not know that it is none does no harm.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    apply::is_conflict,
    gate::Gate,
    names::{FIELD_MANAGER, MANAGED_BY_LABEL, string_map},
};

/// After this time without a renewal others take the Lease.
const DURATION: Duration = Duration::from_secs(15);
/// After this time without a renewal the holder gives up; what it has sent by then arrives before the Lease ends.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between two renewals, and between two looks at another's Lease.
const PERIOD: Duration = Duration::from_secs(2);

/// A candidate.
pub(crate) struct Candidate {
    leases: Api<Lease>,
    /// The name of the Lease.
    lease: String,
    /// Differs between processes, unless it is the name of a pod: that runs one process at a time.
    identity: String,
    gate: Arc<Gate>,
}

/// The record of another holder and since when it has been unchanged.
struct Seen {
    record: Option<LeaseSpec>,
    since: Instant,
}

/// What came of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// It is ours for longer.
    Done,
    /// It was changed between look and renewal, perhaps only its labels: the next look tells whose it is.
    Overtaken,
    /// It is gone or another's.
    NotOurs,
}

/// The Lease is lost.
#[derive(Debug, thiserror::Error)]
#[error("the Lease {lease} is gone, another's, or could not be renewed for {RENEW_DEADLINE:?}")]
pub(crate) struct Lost {
    lease: String,
}

impl Candidate {
    /// For the Lease of this namespace and name. `client` must not be behind the gate.
    pub(crate) fn new(
        client: Client,
        (namespace, lease): (&str, &str),
        identity: String,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            lease: lease.to_owned(),
            identity,
            gate,
        }
    }

    /// Waits until the Lease is ours. False: stopped before.
    pub(crate) async fn acquire(&self, stop: &CancellationToken) -> bool {
        let mut seen = Seen {
            record: None,
            since: Instant::now(),
        };
        loop {
            let started = Instant::now();
            let tried = tokio::select! {
                () = stop.cancelled() => return false,
                tried = timeout_at(started + RENEW_DEADLINE, self.try_acquire(&mut seen)) => tried,
            };
            match tried {
                Ok(Ok(true)) => {
                    self.gate.open_until(started + RENEW_DEADLINE);
                    tracing::info!(identity = self.identity, "this operator works from now on");
                    return true;
                }
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the Lease was not taken; trying again"),
                Err(_) => tracing::warn!("no answer about the Lease for {RENEW_DEADLINE:?}; trying again"),
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = sleep(PERIOD) => {}
            }
        }
    }

    /// Renews until `released`, then gives the Lease up.
    ///
    /// # Errors
    /// [`Lost`]: the process must end at once.
    pub(crate) async fn hold(&self, released: &CancellationToken) -> Result<(), Lost> {
        let mut deadline = Instant::now() + RENEW_DEADLINE;
        loop {
            tokio::select! {
                () = released.cancelled() => {
                    self.release().await;
                    return Ok(());
                }
                () = sleep(PERIOD) => {}
            }
            let started = Instant::now();
            let why = match timeout_at(deadline, self.renew()).await {
                Ok(Ok(Renewal::Done)) => {
                    deadline = started + RENEW_DEADLINE;
                    self.gate.open_until(deadline);
                    continue;
                }
                Ok(Ok(Renewal::NotOurs)) | Err(_) => return Err(self.lost()),
                Ok(Ok(Renewal::Overtaken)) => "somebody has changed it meanwhile".to_owned(),
                Ok(Err(error)) => error.to_string(),
            };
            tracing::warn!(why, "the Lease was not renewed; trying again");
            if Instant::now() >= deadline {
                return Err(self.lost());
            }
        }
    }

    async fn try_acquire(&self, seen: &mut Seen) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.lease).await? else {
            let params = self.params();
            return match self.leases.create(&params, &self.new_lease()).await {
                Ok(_) => Ok(true),
                Err(error) if is_conflict(&error) => Ok(false),
                Err(error) => Err(error),
            };
        };
        let record = lease.spec.clone();
        if !self.may_take(record.as_ref(), seen) {
            return Ok(false);
        }
        let transitions = record.and_then(|r| r.lease_transitions).unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            lease_transitions: Some(transitions + 1),
            ..self.record()
        });
        self.replace(&lease).await
    }

    /// Whether nobody holds it, we do, or its holder has not stirred for its whole duration.
    fn may_take(&self, record: Option<&LeaseSpec>, seen: &mut Seen) -> bool {
        if seen.record.as_ref() != record {
            *seen = Seen {
                record: record.cloned(),
                since: Instant::now(),
            };
        }
        let holder = record
            .and_then(|r| r.holder_identity.as_deref())
            .unwrap_or_default();
        let duration = record
            .and_then(|r| r.lease_duration_seconds)
            .and_then(|s| u64::try_from(s).ok());
        let duration = duration.map_or(DURATION, Duration::from_secs);
        holder.is_empty() || holder == self.identity || seen.since.elapsed() >= duration
    }

    async fn renew(&self) -> Result<Renewal, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.lease).await? else {
            return Ok(Renewal::NotOurs);
        };
        let Some(record) = lease.spec.as_mut() else {
            return Ok(Renewal::NotOurs);
        };
        if record.holder_identity.as_deref() != Some(self.identity.as_str()) {
            return Ok(Renewal::NotOurs);
        }
        record.renew_time = Some(MicroTime(Timestamp::now()));
        let replaced = self.replace(&lease).await?;
        Ok(if replaced {
            Renewal::Done
        } else {
            Renewal::Overtaken
        })
    }

    fn lost(&self) -> Lost {
        Lost {
            lease: self.lease.clone(),
        }
    }

    /// Best effort: who takes over otherwise waits for the end of the Lease.
    async fn release(&self) {
        let release = async {
            let Some(mut lease) = self.leases.get_opt(&self.lease).await? else {
                return Ok(());
            };
            let ours =
                |record: &&mut LeaseSpec| record.holder_identity.as_deref() == Some(self.identity.as_str());
            let Some(record) = lease.spec.as_mut().filter(ours) else {
                return Ok(());
            };
            record.holder_identity = None;
            record.lease_duration_seconds = Some(1);
            self.replace(&lease).await.map(drop)
        };
        match tokio::time::timeout(PERIOD, release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the Lease was not given up"),
            Err(_) => tracing::warn!("the Lease was not given up in time"),
        }
    }

    /// With the resource version that was read. False: somebody was faster.
    async fn replace(&self, lease: &Lease) -> Result<bool, kube::Error> {
        match self.leases.replace(&self.lease, &self.params(), lease).await {
            Ok(_) => Ok(true),
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn params(&self) -> PostParams {
        PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        }
    }

    fn new_lease(&self) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.lease.clone()),
                labels: Some(string_map([(MANAGED_BY_LABEL, FIELD_MANAGER)])),
                ..ObjectMeta::default()
            },
            spec: Some(self.record()),
        }
    }

    fn record(&self) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests;
