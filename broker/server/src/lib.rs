//! The Felix broker process: sockets, tasks, admin API, metrics, shutdown.

mod data_dir;
mod files;
pub mod settings;
mod tls;
mod udp;
