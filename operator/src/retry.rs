//! From a failed reconcile to the next try: how long to wait, per object, and when waiting is no use.

use std::{collections::HashMap, hash::Hash, sync::Mutex, time::Duration};

use kube::runtime::controller::Action;

use crate::{
    apply::{ApplyError, is_conflict},
    broker_api::BrokerApiError,
};

/// The wait after the first failure.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait: what failed for long is looked at about once a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Why a reconcile did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// The API server refused or could not be reached.
    #[error("Kubernetes API: {0}")]
    Kube(#[from] kube::Error),
    /// A child could not be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A broker refused or could not be reached.
    #[error(transparent)]
    Broker(#[from] BrokerApiError),
    /// It took too long.
    #[error("not finished within {0:?}")]
    TimedOut(Duration),
    /// The object cannot be read by this version of the operator; only a change of it can help.
    #[error("the object cannot be read: {0}")]
    Unreadable(String),
    /// The object that something was to be made for is gone, or about to go.
    #[error("FelixCluster {0} was deleted meanwhile")]
    OwnerGone(String),
    /// A fault of ours, with what is known about it.
    #[error("{0}")]
    Internal(String),
}

impl ReconcileError {
    /// Whether the world has moved while it was looked at: nothing is wrong, a fresh look decides anew.
    pub(crate) fn is_race(&self) -> bool {
        match self {
            Self::OwnerGone(_) => true,
            Self::Apply(error) => error.is_race(),
            Self::Kube(error) => is_conflict(error),
            Self::Broker(_) | Self::TimedOut(_) | Self::Unreadable(_) | Self::Internal(_) => false,
        }
    }
}

/// How often each object has failed in a row.
#[derive(Debug)]
pub(crate) struct Retries<K>(Mutex<HashMap<K, u32>>);

impl<K> Default for Retries<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Eq + Hash> Retries<K> {
    /// Forgets the failures of an object.
    pub(crate) fn succeeded(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Counts a failure and says when to try again. `jitter` is a random number from 0 to 1.
    pub(crate) fn failed(&self, key: K, error: &ReconcileError, jitter: f64) -> Action {
        if matches!(error, ReconcileError::Unreadable(_)) {
            return Action::await_change();
        }
        let mut failures = self.lock();
        let count = failures.entry(key).or_insert(0);
        *count = count.saturating_add(1);
        Action::requeue(wait_after(*count, jitter))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<K, u32>> {
        // A panic while counting leaves a count that is at worst one too low.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Doubles with each failure up to the longest wait; the jitter takes up to half of it away.
fn wait_after(failures: u32, jitter: f64) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << (failures.clamp(1, 16) - 1));
    doubled
        .min(LONGEST_WAIT)
        .mul_f64(1.0 - 0.5 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_a_minute_and_starts_over_after_a_success() {
        let retries = Retries::default();
        let error = ReconcileError::Internal("x".to_owned());
        let waits: Vec<Action> = (0..9).map(|_| retries.failed("a", &error, 0.0)).collect();
        let seconds = |s: f64| Action::requeue(Duration::from_secs_f64(s));
        assert_eq!(
            waits[..4],
            [seconds(0.5), seconds(1.0), seconds(2.0), seconds(4.0)]
        );
        assert_eq!(waits[8], seconds(60.0));
        assert_eq!(
            retries.failed("b", &error, 0.0),
            seconds(0.5),
            "each object has its own count"
        );
        retries.succeeded(&"a");
        assert_eq!(retries.failed("a", &error, 0.0), seconds(0.5));
    }

    #[test]
    fn jitter_shortens_by_up_to_half() {
        assert_eq!(wait_after(2, 1.0), Duration::from_millis(500));
        assert_eq!(wait_after(2, 0.0), Duration::from_millis(1000));
    }

    #[test]
    fn an_unreadable_object_waits_for_a_change() {
        let error = ReconcileError::Unreadable("x".to_owned());
        assert_eq!(
            Retries::default().failed("a", &error, 0.0),
            Action::await_change()
        );
    }
}
