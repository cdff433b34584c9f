//! The data directory: locked by the live broker, marked with cluster and broker id, keeper of the broker's keys.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::files::{self, PRIVATE};

const LOCK: &str = "felix.lock";
const IDENTITY: &str = "identity.json";
const KEYS: &str = "keys";
const ADMIN: &str = "admin";
const TLS: &str = "tls";
const PEERS: &str = "peers";
/// What the broker itself puts at the top; the store adds the catalogue.
const KNOWN: [&str; 8] = [
    LOCK,
    IDENTITY,
    KEYS,
    ADMIN,
    TLS,
    PEERS,
    "catalogue.json",
    "catalogue.json.tmp",
];
/// At most so many names of unknown entries are logged.
const NAMES_LOGGED: usize = 16;
const FORMAT: u32 = 1;
/// Length of a key file in bytes: the block of SHA-256, longer keys gain nothing.
const KEY_BYTES: usize = 64;

/// A data directory that this process owns until it is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    identity: Identity,
    /// Held for its lock, which the kernel takes back with the process.
    _lock: File,
}

/// Who this broker is; outlives pods and host names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity {
    format: u32,
    /// The cluster that the directory belongs to.
    pub(crate) cluster_id: String,
    /// The broker that the directory belongs to.
    pub(crate) broker_id: String,
}

/// Keys that outlive the process, so that clients of a killed one are answered at once.
#[derive(Clone)]
pub(crate) struct QuicKeys {
    /// Makes stateless reset tokens.
    pub(crate) reset: [u8; KEY_BYTES],
    /// Makes address validation tokens.
    pub(crate) token: [u8; KEY_BYTES],
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory or a file in it cannot be made, read or written.
    #[error("data directory: {path}: {source}; make it writable for the broker's user, or set data_dir")]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A live broker holds the directory.
    #[error("data directory {path} is in use by another broker; stop that one, or set data_dir")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The directory belongs to another cluster.
    #[error(
        "data directory {path} belongs to cluster {found}, not to cluster {expected}; set data_dir or cluster_id"
    )]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// The cluster of the settings.
        expected: String,
        /// The cluster of the directory.
        found: String,
    },
    /// A file does not hold what the broker once wrote.
    #[error("{path} is damaged: {reason}; restore it from a copy, or begin with an empty data directory")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl DataDir {
    /// Opens a directory for this process alone, and marks it if it is new. Blocks.
    ///
    /// # Errors
    /// See [`DataDirError`]. Nothing of another cluster or process is changed.
    pub(crate) fn open(path: &Path, cluster_id: Option<&str>) -> Result<Self, DataDirError> {
        files::create_directory(path).map_err(|source| unusable(path, source))?;
        let lock = lock(path)?;
        let identity = read_or_mark(path, cluster_id)?;
        log_unknown_entries(path);
        Ok(Self {
            path: path.to_owned(),
            identity,
            _lock: lock,
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The QUIC keys, made at the first call. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Unusable`] or [`DataDirError::Damaged`].
    pub(crate) fn quic_keys(&self) -> Result<QuicKeys, DataDirError> {
        let directory = self.subdirectory(KEYS)?;
        Ok(QuicKeys {
            reset: key(&directory.join("reset.key"))?,
            token: key(&directory.join("token.key"))?,
        })
    }

    /// The file with the admin token that is used when the settings name none; made at the first call. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Unusable`].
    pub(crate) fn admin_token_file(&self) -> Result<PathBuf, DataDirError> {
        let path = self.subdirectory(ADMIN)?.join("token");
        let make = || {
            let bytes: [u8; 32] = rand::random();
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
                .into_bytes()
        };
        files::read_or_create(&path, PRIVATE, make).map_err(|source| unusable(&path, source))?;
        Ok(path)
    }

    /// The file that says who is connected.
    pub(crate) fn peers_file(&self) -> PathBuf {
        self.path.join(PEERS)
    }

    /// The directory of the broker's own CA. Blocks.
    ///
    /// # Errors
    /// [`DataDirError::Unusable`].
    pub(crate) fn tls_directory(&self) -> Result<PathBuf, DataDirError> {
        self.subdirectory(TLS)
    }

    fn subdirectory(&self, name: &str) -> Result<PathBuf, DataDirError> {
        let path = self.path.join(name);
        files::create_directory(&path).map_err(|source| unusable(&path, source))?;
        Ok(path)
    }
}

fn unusable(path: &Path, source: io::Error) -> DataDirError {
    DataDirError::Unusable {
        path: path.to_owned(),
        source,
    }
}

fn lock(directory: &Path) -> Result<File, DataDirError> {
    let path = directory.join(LOCK);
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        .open(&path);
    let file = open.map_err(|source| unusable(&path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DataDirError::Locked {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(unusable(&path, source)),
    }
}

fn read_or_mark(directory: &Path, cluster_id: Option<&str>) -> Result<Identity, DataDirError> {
    let path = directory.join(IDENTITY);
    let make = || {
        let identity = Identity {
            format: FORMAT,
            cluster_id: cluster_id.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned),
            broker_id: uuid::Uuid::new_v4().to_string(),
        };
        serde_json::to_vec(&identity).unwrap_or_default()
    };
    let bytes = files::read_or_create(&path, PRIVATE, make).map_err(|source| unusable(&path, source))?;
    let damaged = |reason: String| DataDirError::Damaged {
        path: path.clone(),
        reason,
    };
    let identity: Identity = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if identity.format != FORMAT {
        return Err(damaged(format!("format {} is not {FORMAT}", identity.format)));
    }
    match cluster_id {
        Some(expected) if expected != identity.cluster_id => Err(DataDirError::OtherCluster {
            path: directory.to_owned(),
            expected: expected.to_owned(),
            found: identity.cluster_id,
        }),
        Some(_) | None => Ok(identity),
    }
}

fn key(path: &Path) -> Result<[u8; KEY_BYTES], DataDirError> {
    let make = || rand::random::<[u8; KEY_BYTES]>().to_vec();
    let bytes = files::read_or_create(path, PRIVATE, make).map_err(|source| unusable(path, source))?;
    let found = bytes.len();
    bytes.try_into().map_err(|_| DataDirError::Damaged {
        path: path.to_owned(),
        reason: format!("has {found} bytes, not {KEY_BYTES}"),
    })
}

/// A volume's top may hold what the broker did not put there, such as `lost+found`: it is named once and left alone.
fn log_unknown_entries(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let unknown: Vec<_> = names
        .filter(|name| !KNOWN.contains(&name.as_str()))
        .take(NAMES_LOGGED)
        .collect();
    if !unknown.is_empty() {
        tracing::info!(directory = %directory.display(), ?unknown, "entries that are not the broker's are left alone");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn identity_and_keys_outlive_the_process_and_are_private() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/b");
        let first = DataDir::open(&path, Some("c1")).unwrap();
        let (identity, keys) = (first.identity().clone(), first.quic_keys().unwrap());
        let token = fs::read(first.admin_token_file().unwrap()).unwrap();
        drop(first);
        let again = DataDir::open(&path, None).unwrap();
        assert_eq!(again.identity(), &identity);
        assert_eq!(again.quic_keys().unwrap().reset, keys.reset);
        assert_eq!(again.quic_keys().unwrap().token, keys.token);
        assert_ne!(keys.reset, keys.token);
        assert_eq!(fs::read(again.admin_token_file().unwrap()).unwrap(), token);
        for file in ["keys/reset.key", "keys/token.key", "admin/token", "identity.json"] {
            let mode = fs::metadata(path.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn a_live_owner_and_another_cluster_are_refused() {
        let top = tempfile::tempdir().unwrap();
        let first = DataDir::open(top.path(), Some("c1")).unwrap();
        assert!(matches!(
            DataDir::open(top.path(), Some("c1")),
            Err(DataDirError::Locked { .. })
        ));
        drop(first);
        let refused = DataDir::open(top.path(), Some("c2")).unwrap_err();
        assert!(
            matches!(&refused, DataDirError::OtherCluster { found, .. } if found == "c1"),
            "{refused}"
        );
    }

    #[test]
    fn foreign_entries_are_left_alone() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("lost+found")).unwrap();
        fs::write(top.path().join("stray"), "x").unwrap();
        std::os::unix::fs::symlink("/no/such", top.path().join("dangling")).unwrap();
        DataDir::open(top.path(), None).unwrap();
        assert!(top.path().join("lost+found").is_dir());
        assert_eq!(fs::read(top.path().join("stray")).unwrap(), b"x");
    }

    #[test]
    fn damage_is_named() {
        let top = tempfile::tempdir().unwrap();
        drop(DataDir::open(top.path(), None).unwrap());
        fs::write(top.path().join(IDENTITY), "{").unwrap();
        assert!(matches!(
            DataDir::open(top.path(), None),
            Err(DataDirError::Damaged { .. })
        ));
        fs::remove_file(top.path().join(IDENTITY)).unwrap();
        fs::create_dir(top.path().join(KEYS)).unwrap();
        fs::write(top.path().join("keys/reset.key"), "short").unwrap();
        let directory = DataDir::open(top.path(), None).unwrap();
        assert!(matches!(directory.quic_keys(), Err(DataDirError::Damaged { .. })));
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_unusable() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("file");
        fs::write(&path, "x").unwrap();
        assert!(matches!(
            DataDir::open(&path, None),
            Err(DataDirError::Unusable { .. })
        ));
    }
}
