//! FelixBenchmark: one Job that measures, and its results in the status.

mod build;
mod controller;
mod dereference;
mod status;
mod summary;
mod validate;
mod verdict;
