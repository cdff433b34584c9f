//! What a small pod takes and gives, as a table: run by hand with dev/pod-figures on a machine that does nothing else. The table
//! says whether each bound holds, and nothing fails, because a busy machine would break them; that memory and records are
//! right, the tests say.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "without a figure there is nothing to print"
)]

mod cpu;
#[allow(
    dead_code,
    unused_imports,
    reason = "the figures use the attacks, not the test"
)]
#[path = "../small_pod/hostile.rs"]
mod hostile;
mod idle;
#[allow(dead_code, reason = "the figures use a part")]
#[path = "../small_pod/pod.rs"]
mod pod;
mod rates;
#[path = "../support/mod.rs"]
mod support;
mod table;

use std::future::Future;

use table::{Bound, print};

/// Pairs of each comparison: enough for a median on a quiet machine.
const PAIRS: usize = 7;
/// The comparison with 10,000 streams takes long to set up.
const LONG_PAIRS: usize = 3;

/// Runs the figures whose names contain one of the arguments, or all.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    table::head();
    if is_wanted("idle") {
        idle::figures().await;
    }
    if is_wanted("unread") {
        let ratios = pairs(PAIRS, |unread| rates::fan_out(900, if unread { 100 } else { 0 })).await;
        print(
            "unread: records/s of 900 subscriptions beside 100 that are not read, against alone",
            &ratios,
            Bound::AtLeast(0.9),
        );
    }
    if is_wanted("blocked") {
        let ratios = pairs(PAIRS, rates::nine_publishers).await;
        print(
            "blocked: records/s of 9 publishers beside a blocked one, against alone",
            &ratios,
            Bound::AtLeast(0.9),
        );
    }
    for policy in rates::DROPPING {
        let name = format!(
            "slow: records/s past a subscription under {} that is not read, against alone",
            policy.as_str()
        );
        if is_wanted(&name) {
            let ratios = pairs(PAIRS, |slow| rates::past(slow.then_some(policy))).await;
            print(&name, &ratios, Bound::AtLeast(0.9));
        }
    }
    for attack in rates::ATTACKS {
        let name = format!(
            "hostile: records/s of a good client beside {}, against alone",
            attack.name()
        );
        if is_wanted(&name) {
            let ratios = pairs(PAIRS, |hostile| rates::good_client(hostile.then_some(attack))).await;
            print(&name, &ratios, Bound::AtLeast(0.8));
        }
    }
    if is_wanted("streams") {
        cpu::figures().await;
    }
}

/// Measures so many pairs, without and with what is asked about, in random order, and gives the ratios of with to without.
async fn pairs<F: Future<Output = f64>>(count: usize, measure: impl Fn(bool) -> F) -> Vec<f64> {
    let mut ratios = Vec::new();
    for _ in 0..count {
        let with_first: bool = rand::random();
        let first = measure(with_first).await;
        let second = measure(!with_first).await;
        let (with, without) = if with_first {
            (first, second)
        } else {
            (second, first)
        };
        eprintln!("without {without:.3}, with {with:.3}");
        ratios.push(with / without);
    }
    ratios
}
