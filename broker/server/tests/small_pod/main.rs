//! A broker as a process in a control group of 512 MiB: many clients, slow ones, blocked ones and hostile ones. Memory
//! holds, nothing is lost without a word, and good clients are served. Needs root, for the control group.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation is how a test fails"
)]

mod hostile;
mod many;
#[allow(dead_code, reason = "the figures use the rest")]
mod pod;
mod slow;
#[path = "../support/mod.rs"]
mod support;
