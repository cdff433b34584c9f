//! Processor time of this process: the figure that agrees from run to run on a machine whose wall clock does not.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time used so far by all threads of this process.
pub(crate) fn time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // Neither part is ever negative.
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Processor seconds for a gigabyte; `None` where nothing was moved.
pub(crate) fn seconds_per_gigabyte(used: Duration, bytes: u64) -> Option<f64> {
    (bytes > 0).then(|| used.as_secs_f64() * 1e9 / bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time() {
        let before = time();
        while time() - before < Duration::from_millis(1) {
            std::hint::black_box(crc32c::crc32c(&[0; 4096]));
        }
        assert_eq!(
            seconds_per_gigabyte(Duration::from_secs(2), 1_000_000_000),
            Some(2.0)
        );
        assert_eq!(seconds_per_gigabyte(Duration::from_secs(2), 0), None);
    }
}
