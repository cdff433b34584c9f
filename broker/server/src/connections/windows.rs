//! How large the windows of connections are: those that use one share it evenly. Pure.

use std::ops::RangeInclusive;

/// The window of a connection that has nothing to send or to receive but control frames, and the least of any other: it is
/// filled again as it is read.
pub(crate) const FIRST_WINDOW: u32 = 8 << 10;
/// Window of one stream, of which a connection's window is a multiple where memory allows: a publisher that is not read
/// takes no more of it. Enough for 1 GB/s at a round trip of 1 ms.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// Windows in use, in bytes: a fast path gains nothing beyond.
const RANGE: RangeInclusive<u64> = FIRST_WINDOW as u64..=8 << 20;

/// A share of memory for windows, and how many connections use one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    share: u64,
    active: usize,
}

impl Windows {
    /// What is left of a share when each of `connections` at most has its first window.
    pub(super) const fn new(share: u64, connections: usize) -> Self {
        let first = connections as u64 * FIRST_WINDOW as u64;
        Self {
            share: share.saturating_sub(first),
            active: 0,
        }
    }

    /// A connection begins or ceases to use its window. Whether the windows of all change: seldom, because the share is
    /// divided by the next power of two.
    pub(super) fn change(&mut self, more: bool) -> bool {
        let before = self.of(true);
        self.active = if more {
            self.active + 1
        } else {
            self.active.saturating_sub(1)
        };
        self.of(true) != before
    }

    /// The window of a connection that uses it, or does not.
    pub(super) fn of(&self, active: bool) -> u64 {
        let part = self.share / self.active.max(1).next_power_of_two() as u64;
        if active {
            part.clamp(*RANGE.start(), *RANGE.end())
        } else {
            *RANGE.start()
        }
    }

    /// What all windows add up to, with `connections` in all.
    pub(super) fn promised(&self, connections: usize) -> u64 {
        let idle = connections.saturating_sub(self.active) as u64;
        self.active as u64 * self.of(true) + idle * self.of(false)
    }
}

/// Memory for what publishers that are not read may have sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parking {
    places: u64,
    taken: u64,
}

impl Parking {
    pub(super) const fn new(share: u64) -> Self {
        Self {
            places: share / STREAM_WINDOW as u64,
            taken: 0,
        }
    }

    /// Takes a place, if there is one.
    pub(super) const fn enter(&mut self) -> bool {
        let free = self.taken < self.places;
        self.taken += free as u64;
        free
    }

    pub(super) const fn leave(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    pub(super) const fn promised(&self) -> u64 {
        self.taken * STREAM_WINDOW as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_shrink_with_the_number_of_connections_that_use_them() {
        let mut windows = Windows::new(72 << 20, 1024);
        assert_eq!(windows.of(false), u64::from(FIRST_WINDOW));
        assert!(!windows.change(true), "one gets the largest, as before");
        assert_eq!(windows.of(true), 8 << 20);
        let changes = (1..1000).filter(|_| windows.change(true)).count();
        assert_eq!(changes, 7, "from 8 MiB down to 64 KiB by halves");
        assert_eq!(windows.of(true), 64 << 10);
        assert!(windows.promised(1000) <= 72 << 20);
        for _ in 0..1000 {
            windows.change(false);
        }
        assert_eq!(windows.of(true), 8 << 20);
    }

    #[test]
    fn parking_is_bounded_and_places_come_back() {
        let mut parking = Parking::new(2 << 20);
        assert!(parking.enter() && parking.enter() && !parking.enter());
        assert_eq!(parking.promised(), 2 << 20);
        parking.leave();
        assert!(parking.enter());
    }
}
