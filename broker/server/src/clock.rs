//! The broker's clock: time since 1970 that never goes back while the process lives.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use felix_wire::Nanos;

/// Wall time at the start of the process, moved on by the monotonic clock: a step of the machine's clock neither
/// reorders records nor makes a latency negative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    started_at: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_at: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Nanos(self.started_at.saturating_add(elapsed))
    }

    pub(crate) fn uptime(&self) -> std::time::Duration {
        self.started.elapsed()
    }
}
