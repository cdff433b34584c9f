//! How long to wait before the next attempt to connect: doubling, capped, jittered. Pure: randomness comes in.

use std::time::Duration;

/// Pause after the first failure, at most. A broker that was restarted is found again quickly.
const FIRST: Duration = Duration::from_millis(20);

/// Longest pause. With jitter the mean is 1 s, so 10,000 clients of a lost broker make about as many attempts a second.
const LONGEST: Duration = Duration::from_secs(2);

/// Doublings after which the pause no longer grows; keeps the shift in range.
const DOUBLINGS_MAX: u32 = 16;

/// Counts failed attempts in a row.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure. `random` is uniform in `0.0..1.0`: the whole pause is jittered, so that clients
    /// that lost the same broker at the same time do not come back at the same time.
    pub(crate) fn next_pause(&mut self, random: f64) -> Duration {
        let ceiling = FIRST
            .saturating_mul(1 << self.failures.min(DOUBLINGS_MAX))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        // At least a quarter, so that no attempt follows at once.
        ceiling.mul_f64(0.25 + 0.75 * random.clamp(0.0, 1.0))
    }

    /// Failures in a row so far.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// An attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..12).map(|_| backoff.next_pause(1.0)).collect();
        assert_eq!(pauses[0], FIRST);
        assert_eq!(pauses[1], FIRST * 2);
        assert_eq!(pauses[2], FIRST * 4);
        assert_eq!(pauses[11], LONGEST);
        assert_eq!(backoff.failures(), 12);
        backoff.reset();
        assert_eq!(backoff.next_pause(1.0), FIRST);
    }

    #[test]
    fn jitter_spreads_over_three_quarters_and_never_reaches_zero() {
        let pause = |random| Backoff::default().next_pause(random);
        assert_eq!(pause(0.0), FIRST / 4);
        assert!(pause(0.5) > pause(0.25) && pause(0.5) < pause(0.75));
    }

    #[test]
    fn any_number_of_failures_is_fine() {
        let mut backoff = Backoff { failures: u32::MAX };
        assert_eq!(backoff.next_pause(1.0), LONGEST);
    }
}
