//! Small files that must be whole or absent: written beside their place, synced, and renamed into it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// For files that only the broker may read.
pub(crate) const PRIVATE: u32 = 0o600;
/// For files that are handed to others.
pub(crate) const PUBLIC: u32 = 0o644;

/// Puts `bytes` in the place of `path`. After success the change survives a crash of the machine.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    // An earlier file of that name may have other permissions, which opening would keep.
    match fs::remove_file(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all()
}

/// Reads a file, or makes it from `make` where there is none.
pub(crate) fn read_or_create(path: &Path, mode: u32, make: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let bytes = make();
            write_atomic(path, &bytes, mode)?;
            Ok(bytes)
        }
        read => read,
    }
}

/// Makes a directory and its parents, readable by the broker alone; leaves one that exists as it is.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
