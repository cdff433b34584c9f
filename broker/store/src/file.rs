//! The store of a single broker: one JSON file, replaced as a whole by write, sync, rename and sync of the directory.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::{Catalogue, Store, SwapError, SwapFuture, catalogue::FORMAT};

const FILE: &str = "catalogue.json";
const TEMPORARY: &str = "catalogue.json.tmp";

/// The catalogue in a directory that no other process writes to.
#[derive(Clone, Debug)]
pub struct FileStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// Serialises writers; holds the reason once the state of the disk is unknown.
    writer: Mutex<Option<String>>,
    newest: watch::Sender<Arc<Catalogue>>,
}

/// Why the catalogue could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file could not be read or written.
    #[error("{path}: {source}; the broker needs to read and write there")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The document does not parse.
    #[error("{path} is damaged: {reason}; restore it from a copy")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and why it does not parse.
        reason: String,
    },
    /// The document was written by another version of the software.
    #[error("{path} has format {found}, this broker reads format {FORMAT}; use the version that wrote it")]
    Format {
        /// The file.
        path: PathBuf,
        /// The format that it has.
        found: u32,
    },
    /// The document is about another cluster.
    #[error("{path} belongs to cluster {found}, not {expected}; use another data directory")]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// The cluster that was asked for.
        expected: String,
        /// The cluster that the document is about.
        found: String,
    },
}

impl FileStore {
    /// Opens the catalogue of `cluster_id` in `directory`, or writes the first, empty one. Blocks.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(directory: &Path, cluster_id: &str) -> Result<Self, OpenError> {
        let path = directory.join(FILE);
        let io = |source| OpenError::Io {
            path: path.clone(),
            source,
        };
        let catalogue = match fs::read(&path) {
            Ok(bytes) => parse(&path, &bytes, cluster_id)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let first = Catalogue::new(cluster_id);
                write_temporary(directory, &first).map_err(io)?;
                put_in_place(directory).map_err(io)?;
                first
            }
            Err(error) => return Err(io(error)),
        };
        let newest = watch::Sender::new(Arc::new(catalogue));
        Ok(Self {
            shared: Arc::new(Shared {
                directory: directory.to_owned(),
                writer: Mutex::new(None),
                newest,
            }),
        })
    }
}

impl Store for FileStore {
    fn watch(&self) -> watch::Receiver<Arc<Catalogue>> {
        self.shared.newest.subscribe()
    }

    fn compare_and_swap(&self, expected: u64, next: Catalogue) -> SwapFuture<'_> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || shared.swap(expected, next)).await;
            written.unwrap_or_else(|error| Err(SwapError::Unknown(error.to_string())))
        })
    }
}

impl Shared {
    fn swap(&self, expected: u64, next: Catalogue) -> Result<Arc<Catalogue>, SwapError> {
        let mut unknown = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = &*unknown {
            return Err(SwapError::Unknown(reason.clone()));
        }
        let actual = self.newest.borrow().version();
        if actual != expected {
            return Err(SwapError::Conflict { expected, actual });
        }
        assert!(next.version() > expected, "a change raises the version");
        write_temporary(&self.directory, &next).map_err(SwapError::Failed)?;
        if let Err(error) = put_in_place(&self.directory) {
            *unknown = Some(error.to_string());
            return Err(SwapError::Unknown(error.to_string()));
        }
        let next = Arc::new(next);
        self.newest.send_replace(Arc::clone(&next));
        Ok(next)
    }
}

fn parse(path: &Path, bytes: &[u8], cluster_id: &str) -> Result<Catalogue, OpenError> {
    /// Read first, so that a later form is refused as such rather than as damage.
    #[derive(serde::Deserialize)]
    struct Form {
        format: u32,
    }
    let damaged = |error: serde_json::Error| OpenError::Damaged {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let form: Form = serde_json::from_slice(bytes).map_err(damaged)?;
    if form.format != FORMAT {
        return Err(OpenError::Format {
            path: path.to_owned(),
            found: form.format,
        });
    }
    let catalogue: Catalogue = serde_json::from_slice(bytes).map_err(damaged)?;
    if catalogue.cluster_id() != cluster_id {
        return Err(OpenError::OtherCluster {
            path: path.to_owned(),
            expected: cluster_id.to_owned(),
            found: catalogue.cluster_id().to_owned(),
        });
    }
    Ok(catalogue)
}

fn write_temporary(directory: &Path, catalogue: &Catalogue) -> io::Result<()> {
    let bytes = serde_json::to_vec(catalogue)?;
    let mut file = File::create(directory.join(TEMPORARY))?;
    file.write_all(&bytes)?;
    file.sync_all()
}

/// The rename is the moment of change; the sync of the directory makes it last.
fn put_in_place(directory: &Path) -> io::Result<()> {
    fs::rename(directory.join(TEMPORARY), directory.join(FILE))?;
    File::open(directory)?.sync_all()
}
