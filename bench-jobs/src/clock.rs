//! The one clock of a run. Publisher and subscribers live in this process, so latencies are differences of one monotonic
//! clock and no two hosts' clocks are compared.

use std::sync::LazyLock;
use std::time::Instant;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since this process first asked.
pub(crate) fn now_ns() -> u64 {
    // 2^64 ns are 584 years.
    ORIGIN.elapsed().as_nanos() as u64
}
