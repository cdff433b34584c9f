//! What the end-to-end scenarios under `tests/` share: a namespace of their own on a real Kubernetes, ways to await what
//! happens there, and eyes (metrics, Prometheus, the audit log).

mod audit;
mod clients;
mod crash_proxy;
mod dashboards;
mod felix;
mod helm;
mod metrics;
mod normalise;
mod process;
mod prometheus;
mod report;
mod space;
mod wait;

pub use audit::{AuditLog, Write};
pub use crash_proxy::{CrashPoint, CrashProxy, Moment};
pub use dashboards::check_dashboards;
pub use felix::{Kind, cluster, stream};
pub use helm::{chart_dir, helm};
pub use metrics::{Sample, Samples};
pub use normalise::normalised;
pub use process::{OperatorProcess, run};
pub use prometheus::Prometheus;
pub use space::{Space, scenario};
pub use wait::{QUICK, SLOW, USUAL, await_list, await_object, poll};
