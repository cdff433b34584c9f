//! The Felix broker: sockets, tasks, admin API, metrics, shutdown.
//!
//! [`Server::start`] runs a broker with [`settings::Settings`], as the binary `felix-broker` does; [`embedded`] runs one
//! inside another program.

mod admin;
mod broker;
mod catalogue;
mod clock;
mod connection;
mod connections;
mod data_dir;
mod embedded;
mod files;
mod frames;
mod gauge;
mod http;
mod lanes;
mod listener;
pub mod logging;
mod memory;
mod metrics;
mod mtu;
mod peers;
mod probes;
mod publish;
mod quic_port;
pub mod reference;
mod rings;
mod server;
pub mod settings;
mod shard;
mod steering;
mod streams;
mod subscribe;
mod tls;
mod transport;
mod udp;
mod upkeep;

pub use admin::TokenError;
pub use catalogue::CatalogueError;
pub use data_dir::DataDirError;
pub use embedded::{EmbeddedBroker, EmbeddedConfig, EmbeddedError, embedded};
pub use felix_store::{OverloadPolicy, SlowSubscriberPolicy, SlowSubscriberSpec, StreamClass, StreamSpec};
pub use lanes::LaneThreads;
pub use server::{Addresses, Server, StartError};
pub use tls::TlsError;
pub use transport::ConfigError;
pub use udp::BindError;
