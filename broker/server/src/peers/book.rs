//! The file of slots in the data directory. It is written without a sync: what a killed process wrote is in the kernel, and
//! after a crash of the machine the clients have other worries. Blocks.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, ErrorKind, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{
    Changes,
    slots::{Damaged, Peer, SLOT_BYTES, Seal, Slot},
};
use crate::{files::PRIVATE, settings::MAX_CONNECTIONS};

/// The file, and the key that its slots are made with.
#[derive(Debug)]
pub(crate) struct Book {
    path: PathBuf,
    seal: Seal,
    /// Open once it was cleared.
    file: Option<File>,
}

/// What a former process left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Former {
    pub(crate) peers: Vec<Peer>,
    /// Slots that hold neither a peer nor nothing.
    pub(crate) damaged: usize,
}

impl Book {
    /// `key` outlives the process.
    pub(crate) fn new(path: PathBuf, key: &[u8]) -> Self {
        Self {
            path,
            seal: Seal::new(key),
            file: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads no more slots than there may be connections.
    ///
    /// # Errors
    /// What the system says. A file that is not there is an empty one.
    pub(crate) fn read(&self) -> io::Result<Former> {
        let mut former = Former::default();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(former),
            Err(error) => return Err(error),
        };
        let mut rest = BufReader::new(file);
        for _ in 0..MAX_CONNECTIONS {
            let mut bytes = Vec::with_capacity(SLOT_BYTES);
            let read = rest.by_ref().take(SLOT_BYTES as u64).read_to_end(&mut bytes)?;
            if read == 0 {
                break;
            }
            let whole = Slot::try_from(bytes).map_err(|_| Damaged);
            match whole.and_then(|slot| self.seal.open(&slot)) {
                Ok(peer) => former.peers.extend(peer),
                Err(Damaged) => former.damaged += 1,
            }
        }
        Ok(former)
    }

    /// Writes down what has changed.
    ///
    /// # Errors
    /// What the system says; some of it may be written.
    pub(crate) fn write(&mut self, changes: &Changes) -> io::Result<()> {
        if self.file.is_none() {
            self.clear()?;
        }
        let Some(file) = &self.file else { return Ok(()) };
        for (slot, peer) in changes {
            let place = u64::from(*slot) * SLOT_BYTES as u64;
            file.write_all_at(&self.seal.seal(peer.as_ref()), place)?;
        }
        Ok(())
    }

    /// Forgets everybody.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(PRIVATE);
        self.file = Some(options.open(&self.path)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quinn_proto::ConnectionId;

    use super::*;

    fn peer(number: u8) -> Peer {
        Peer {
            id: ConnectionId::new(&[number; 8]),
            remote: ([10, 0, 0, number], 4000).into(),
            local: Some([10, 0, 0, 1].into()),
        }
    }

    fn book(directory: &tempfile::TempDir) -> Book {
        Book::new(directory.path().join("peers"), &[7; 64])
    }

    fn five(book: &mut Book) {
        let changes = (0..5).map(|slot| (slot, Some(peer(slot as u8)))).collect();
        book.write(&changes).unwrap();
    }

    #[test]
    fn another_process_reads_what_was_written_and_nothing_once_it_was_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = book(&directory);
        assert_eq!(first.read().unwrap(), Former::default());
        five(&mut first);
        first.write(&[(1, None), (4, None)].into()).unwrap();
        let mut second = book(&directory);
        let former = second.read().unwrap();
        assert_eq!(former.peers, [peer(0), peer(2), peer(3)]);
        assert_eq!(former.damaged, 0);
        second.clear().unwrap();
        assert_eq!(book(&directory).read().unwrap(), Former::default());
    }

    #[test]
    fn the_first_write_of_a_process_forgets_the_former() {
        let directory = tempfile::tempdir().unwrap();
        five(&mut book(&directory));
        let mut second = book(&directory);
        second.write(&[(1, Some(peer(9)))].into()).unwrap();
        assert_eq!(second.read().unwrap().peers, [peer(9)]);
    }

    #[test]
    fn what_is_damaged_or_cut_is_left_out_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let mut written = book(&directory);
        five(&mut written);
        let mut bytes = fs::read(written.path()).unwrap();
        bytes[SLOT_BYTES + 9] ^= 1;
        bytes.truncate(4 * SLOT_BYTES + 50);
        fs::write(written.path(), &bytes).unwrap();
        let former = written.read().unwrap();
        assert_eq!(former.peers, [peer(0), peer(2), peer(3)]);
        assert_eq!(former.damaged, 2);
        fs::write(written.path(), "not a book at all").unwrap();
        let former = written.read().unwrap();
        assert_eq!((former.peers.len(), former.damaged), (0, 1));
    }

    #[test]
    fn a_path_that_cannot_be_written_is_an_error_and_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers");
        fs::create_dir(&path).unwrap();
        let mut book = book(&directory);
        assert!(book.read().is_err());
        assert!(book.write(&[(0, Some(peer(1)))].into()).is_err());
        fs::remove_dir(&path).unwrap();
        book.write(&[(0, Some(peer(1)))].into()).unwrap();
        assert_eq!(book.read().unwrap().peers, [peer(1)]);
    }
}
