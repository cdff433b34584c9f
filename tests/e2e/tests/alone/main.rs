//! Scenarios that change something that all nodes share, or in which how soon something happens is part of the promise. They
//! run one after another.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod children;
mod every_namespace;
mod kube_proxy;
mod node_tuner;

/// Held by the one scenario that runs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}
