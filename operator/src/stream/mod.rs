//! FelixStream: a stream at the broker that is as its object says.

mod controller;
mod deletion;
mod dereference;
mod document;
mod plan;
mod status;
mod watch;

pub(crate) use watch::{check_access, run};
