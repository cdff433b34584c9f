//! FelixBenchmark: one Job that measures, and its results in the status.

mod build;
mod controller;
mod dereference;
mod results;
mod status;
mod summary;
mod validate;
mod verdict;
mod watch;

pub(crate) use results::Results;
pub(crate) use watch::{check_access, run};
