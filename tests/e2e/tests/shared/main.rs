//! Scenarios that run side by side on one Kubernetes, each in a namespace of its own.

mod bad_input;
mod ca_key;
mod chart_definitions;
mod crash_points;
mod idle;
mod life;
mod rollout;
mod slow_subscribers;
mod whole_path;
