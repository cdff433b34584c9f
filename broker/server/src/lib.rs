//! The Felix broker process: sockets, tasks, admin API, metrics, shutdown.
