//! Log lines: for people or as JSON, on standard error.

use tracing_subscriber::filter::LevelFilter;

use crate::settings::{LogFormat, LogLevel};

/// Begins to write log lines. Called once, by the binary; a program that embeds a broker has its own.
pub fn start(format: LogFormat, level: LogLevel) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from_level(level.0))
        .with_writer(std::io::stderr)
        .with_ansi(false);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}
