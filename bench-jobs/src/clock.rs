//! The one clock of a run. Publisher and subscribers live in this process, so latencies are differences of one monotonic
//! clock and no two hosts' clocks are compared.

use std::sync::LazyLock;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since this process first asked.
pub(crate) fn now_ns() -> u64 {
    // 2^64 ns are 584 years.
    ORIGIN.elapsed().as_nanos() as u64
}

/// Nanoseconds of the machine's monotonic clock, which all processes share: to time what passes between them.
pub(crate) fn shared_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither part is ever negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
