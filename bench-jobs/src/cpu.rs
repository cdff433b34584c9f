//! Processor time of processes: the figure that agrees from run to run on a machine whose wall clock does not.

use std::time::Duration;

use anyhow::Context;
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

/// Processor time used so far by all threads of a process, to the hundredth of a second.
pub(crate) fn of(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat =
        std::fs::read_to_string(&path).with_context(|| format!("reading {path}: has a process ended?"))?;
    let ticks = ticks(&stat).with_context(|| format!("{path} reads {stat:?}"))?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    ))
}

/// User and system time in a line of `/proc/PID/stat`: the 14th and 15th field. The second may hold anything in brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
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

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 120 30 5 6 20 0 1 0 100 0 0";
        assert_eq!(ticks(stat), Some(150));
        assert_eq!(ticks("7 (cut) S 1"), None);
        assert!(of(std::process::id()).unwrap() <= time() + Duration::from_millis(20));
    }
}
