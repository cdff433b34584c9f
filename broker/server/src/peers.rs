//! Who is connected, remembered beyond the process: a broker that was killed says nothing to its clients, so the next one tells
//! those that the former remembered that their connections are gone. A client that is idle need not ask for that.

mod book;
mod slots;
mod teller;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

pub(crate) use book::Book;
pub(crate) use slots::Peer;
pub(crate) use teller::Teller;

/// The peers of this process, each with a slot of the book. There are as many slots as there were connections at a time.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    table: Mutex<Table>,
    changed: Notify,
}

/// What the book does not say yet, by slot: at most one change for each.
type Changes = BTreeMap<u32, Option<Peer>>;

#[derive(Debug, Default)]
struct Table {
    changes: Changes,
    free: Vec<u32>,
    slots: u32,
}

/// A peer that is remembered until this is dropped.
#[derive(Debug)]
pub(crate) struct Remembered {
    peers: Arc<Peers>,
    slot: u32,
}

impl Peers {
    /// Remembers a peer whose handshake is complete: nobody else is ever written down, so nobody else is ever told anything.
    /// Does not wait for the book.
    pub(crate) fn remember(self: &Arc<Self>, peer: Peer) -> Remembered {
        let mut table = self.lock();
        let slot = table.free.pop().unwrap_or_else(|| {
            table.slots += 1;
            table.slots - 1
        });
        table.changes.insert(slot, Some(peer));
        drop(table);
        self.changed.notify_one();
        Remembered {
            peers: Arc::clone(self),
            slot,
        }
    }

    fn take_changes(&self) -> Changes {
        std::mem::take(&mut self.lock().changes)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        let mut table = self.peers.lock();
        table.changes.insert(self.slot, None);
        table.free.push(self.slot);
        drop(table);
        self.peers.changed.notify_one();
    }
}

/// Tells the peers of the former process, then keeps the book until the broker stops, and leaves it empty: a broker that
/// stops in order has told its clients itself. Nothing here fails the broker: where the book cannot be kept, clients find
/// out by their own pings.
pub(crate) async fn keep(peers: Arc<Peers>, book: Book, teller: Teller, stop: CancellationToken) {
    let begun = stop.run_until_cancelled(begin(book, &teller)).await;
    let Some((mut book, mut failing)) = begun.flatten() else {
        return;
    };
    loop {
        let going_on = stop.run_until_cancelled(peers.changed.notified()).await.is_some();
        let changes = peers.take_changes();
        let written = with(book, move |book| {
            if going_on {
                book.write(&changes)
            } else {
                book.clear()
            }
        });
        let Some((kept, written)) = written.await else {
            return;
        };
        note(&kept, written, &mut failing);
        if !going_on {
            return;
        }
        book = kept;
    }
}

/// The book is cleared only when its peers have been told: a process that ends before leaves that to the next. Says also
/// whether that failed.
async fn begin(book: Book, teller: &Teller) -> Option<(Book, bool)> {
    let (book, former) = with(book, |book| book.read()).await?;
    match former {
        Ok(former) => {
            if former.damaged > 0 {
                tracing::warn!(
                    file = %book.path().display(), damaged = former.damaged,
                    "some of the former process's clients are not known; they find out by their pings"
                );
            }
            if !former.peers.is_empty() {
                let told = teller.tell(&former.peers).await;
                tracing::info!(
                    told,
                    "clients of the former process are told that their connections are gone"
                );
            }
        }
        Err(error) => tracing::warn!(
            file = %book.path().display(), %error,
            "the former process's clients are not known; they find out by their pings"
        ),
    }
    let (book, cleared) = with(book, Book::clear).await?;
    let mut failing = false;
    note(&book, cleared, &mut failing);
    Some((book, failing))
}

/// Does what blocks where it may. `None` after a panic, which has said so itself.
async fn with<T: Send + 'static>(
    mut book: Book,
    act: impl FnOnce(&mut Book) -> T + Send + 'static,
) -> Option<(Book, T)> {
    let acted = spawn_blocking(move || {
        let result = act(&mut book);
        (book, result)
    });
    acted.await.ok()
}

/// Says once that the book cannot be written, for as long as that lasts.
fn note(book: &Book, written: io::Result<()>, failing: &mut bool) {
    match written {
        Ok(()) => *failing = false,
        Err(error) if !*failing => {
            *failing = true;
            tracing::warn!(
                file = %book.path().display(), %error,
                "clients cannot be remembered; after a crash they find out by their pings"
            );
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{book::Former, *};

    fn peer(number: u8) -> Peer {
        Peer {
            id: quinn_proto::ConnectionId::new(&[number; 8]),
            remote: ([127, 0, 0, number], 4000).into(),
            local: None,
        }
    }

    fn written(peers: &Peers, book: &mut Book) -> Vec<Peer> {
        book.write(&peers.take_changes()).unwrap();
        let Former { peers, damaged } = book.read().unwrap();
        assert_eq!(damaged, 0);
        peers
    }

    #[test]
    fn slots_are_used_again_and_the_book_says_who_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers");
        let mut book = Book::new(path.clone(), &[7; 64]);
        let peers = Arc::new(Peers::default());
        let first = peers.remember(peer(1));
        let _second = peers.remember(peer(2));
        assert_eq!(written(&peers, &mut book), [peer(1), peer(2)]);
        drop(first);
        assert_eq!(written(&peers, &mut book), [peer(2)]);
        let _third = peers.remember(peer(3));
        // One that comes and goes between two writes leaves nothing.
        drop(peers.remember(peer(4)));
        assert_eq!(written(&peers, &mut book), [peer(3), peer(2)]);
        let slots = std::fs::metadata(path).unwrap().len() / slots::SLOT_BYTES as u64;
        assert_eq!(slots, 3);
    }
}
