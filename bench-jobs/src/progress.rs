//! Progress of the running row for people: a bar on a terminal, a plain line now and then elsewhere. On stderr, so that
//! stdout carries results alone.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::table::grouped;

const BAR_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(5);
const BAR_CELLS: u64 = 32;

/// How far the running row is. Subscribers add to the counter; everybody else reads.
pub(crate) struct Progress {
    label: Mutex<String>,
    expected: AtomicU64,
    delivered: AtomicU64,
}

impl Progress {
    /// Nothing runs yet.
    pub(crate) fn new() -> Self {
        Self {
            label: Mutex::new(String::new()),
            expected: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
        }
    }

    /// A row begins that expects this many deliveries, warm-up included.
    pub(crate) fn begin(&self, label: &str, expected: u64) {
        *self.label.lock().unwrap_or_else(PoisonError::into_inner) = label.to_owned();
        self.delivered.store(0, Ordering::Relaxed);
        self.expected.store(expected, Ordering::Relaxed);
    }

    /// What subscribers add their deliveries to. A statistic: it orders nothing.
    pub(crate) fn counter(&self) -> &AtomicU64 {
        &self.delivered
    }

    /// Deliveries that the running row expects.
    pub(crate) fn expected(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
    }

    /// Deliveries that the running row has seen.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    fn label(&self) -> String {
        self.label.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Shows `progress` until the handle is dropped or aborted.
pub(crate) fn show(progress: Arc<Progress>) -> Shown {
    let terminal = std::io::stderr().is_terminal();
    let task = tokio::spawn(async move {
        let mut tick = tokio::time::interval(if terminal { BAR_EVERY } else { LINE_EVERY });
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await;
        loop {
            tick.tick().await;
            let (done, all) = (progress.delivered(), progress.expected());
            if all == 0 || done >= all {
                continue;
            }
            let label = progress.label();
            if terminal {
                eprint!("\r\x1b[2K{}", bar(&label, done, all));
                // A terminal that went away is no reason to stop measuring.
                std::io::stderr().flush().ok();
            } else {
                eprintln!("{}", plain(&label, done, all));
            }
        }
    });
    Shown { task, terminal }
}

/// The shown progress; ends with it.
pub(crate) struct Shown {
    task: tokio::task::JoinHandle<()>,
    terminal: bool,
}

impl Shown {
    /// Wipes the bar, so that a result can take its line.
    pub(crate) fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.task.abort();
        self.clear();
    }
}

fn bar(label: &str, done: u64, all: u64) -> String {
    let full = done
        .saturating_mul(BAR_CELLS)
        .checked_div(all)
        .unwrap_or(0)
        .min(BAR_CELLS);
    let cells: String = (0..BAR_CELLS)
        .map(|cell| if cell < full { '#' } else { '.' })
        .collect();
    format!(
        "{label} [{cells}] {:>3} %  {} / {}",
        percent(done, all),
        grouped(done),
        grouped(all)
    )
}

fn plain(label: &str, done: u64, all: u64) -> String {
    format!(
        "{label}: {} of {} deliveries, {} %",
        grouped(done),
        grouped(all),
        percent(done, all)
    )
}

fn percent(done: u64, all: u64) -> u64 {
    done.saturating_mul(100).checked_div(all).unwrap_or(0).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_at_the_end_and_empty_at_the_start() {
        assert!(bar("r", 0, 10).contains(&".".repeat(32)));
        assert!(bar("r", 10, 10).contains(&"#".repeat(32)));
        assert!(bar("r", 5, 10).contains(" 50 %"));
        assert_eq!(plain("r", 1_500, 3_000), "r: 1,500 of 3,000 deliveries, 50 %");
    }
}
