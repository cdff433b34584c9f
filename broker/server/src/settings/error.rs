//! Why settings were refused; each message names the setting as the user wrote it.

use std::path::PathBuf;

/// Why settings were refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A variable begins with `FELIX_` and is none of ours.
    #[error("unknown environment variable {name}; `felix-broker --help` lists those that exist")]
    UnknownVariable {
        /// The variable.
        name: String,
    },
    /// A key of the configuration file is none of ours.
    #[error("unknown key `{key}` in {path}; docs/src/settings.md lists those that exist")]
    UnknownKey {
        /// The key.
        key: String,
        /// The configuration file.
        path: PathBuf,
    },
    /// A value has the wrong type or is out of bounds.
    #[error("{place} is {value:?}, expected {expected}")]
    Invalid {
        /// Flag, variable or key of a file.
        place: String,
        /// What was given.
        value: String,
        /// What is allowed.
        expected: String,
    },
    /// The configuration file cannot be read.
    #[error("configuration file {path}: {source}")]
    Unreadable {
        /// The configuration file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The configuration file is not a YAML mapping.
    #[error("configuration file {path}: {reason}")]
    Syntax {
        /// The configuration file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
}
