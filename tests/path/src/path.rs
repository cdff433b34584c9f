//! The sockets of a path. Each datagram is read and sent by itself, so that what the kernel joins or splits for speed meets the
//! path's faults one by one. What waits is what the kernel's buffers hold, and a few datagrams that are late.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket as StdSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use socket2::SockRef;
use tokio::{
    net::UdpSocket,
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep_until},
};

use crate::line::{Fate, Faults, Line};

/// The largest datagram there is.
const DATAGRAM_BYTES: usize = 65_535;
/// Buffers asked of the kernel, in bytes: as much as the ends ask for.
const BUFFER_BYTES: usize = 8 << 20;
/// Clients that a path knows; what others send is dropped.
const MAX_CLIENTS: usize = 4096;
/// A datagram that is late waits no longer than this for others to overtake it.
const HOLD: Duration = Duration::from_millis(2);

/// A path before a broker; gone when it is dropped.
#[derive(Debug)]
pub struct Path {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What a path has done so far, both directions and all clients together, in datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that came.
    pub taken: u64,
    /// Those that vanished.
    pub lost: u64,
    /// Those that were held back.
    pub late: u64,
    /// Those that were sent two times.
    pub twice: u64,
}

#[derive(Debug)]
struct Shared {
    broker: SocketAddr,
    faults: Faults,
    seed: u64,
    /// Towards the broker, a socket for each client.
    outsides: Mutex<Vec<watch::Sender<Arc<UdpSocket>>>>,
    taken: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    twice: AtomicU64,
}

impl Path {
    /// A path to `broker`, on the runtime of the caller. The seed repeats its decisions; when datagrams come is not repeated.
    ///
    /// # Errors
    /// What the system says when it refuses a socket.
    pub fn before(broker: SocketAddr, faults: Faults, seed: u64) -> io::Result<Self> {
        let inside = socket()?;
        let address = inside.local_addr()?;
        let shared = Arc::new(Shared {
            broker,
            faults,
            seed,
            outsides: Mutex::default(),
            taken: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            late: AtomicU64::new(0),
            twice: AtomicU64::new(0),
        });
        let task = tokio::spawn(outward(Arc::new(inside), Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Where clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives all clients other addresses, as a router does that has forgotten them: datagrams to the former ones are lost.
    ///
    /// # Errors
    /// What the system says when it refuses a socket.
    pub fn rebind(&self) -> io::Result<()> {
        let outsides = self
            .shared
            .outsides
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for outside in &*outsides {
            outside.send_replace(self.shared.towards_broker()?);
        }
        Ok(())
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        let Shared {
            taken,
            lost,
            late,
            twice,
            ..
        } = &*self.shared;
        Counts {
            taken: taken.load(Relaxed),
            lost: lost.load(Relaxed),
            late: late.load(Relaxed),
            twice: twice.load(Relaxed),
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn towards_broker(&self) -> io::Result<Arc<UdpSocket>> {
        let socket = std_socket()?;
        socket.connect(self.broker)?;
        UdpSocket::from_std(socket).map(Arc::new)
    }

    /// A direction of its own for a client.
    fn line(&self, client: usize, inward: bool) -> Line {
        let number = 2 * client as u64 + u64::from(inward);
        Line::new(self.faults, self.seed.wrapping_add(number))
    }

    fn count(&self, fate: Fate) {
        self.taken.fetch_add(1, Relaxed);
        match fate {
            Fate::Passes => {}
            Fate::Lost => _ = self.lost.fetch_add(1, Relaxed),
            Fate::Late { .. } => _ = self.late.fetch_add(1, Relaxed),
            Fate::Twice => _ = self.twice.fetch_add(1, Relaxed),
        }
    }
}

fn std_socket() -> io::Result<StdSocket> {
    let socket = StdSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let buffers = SockRef::from(&socket);
    buffers.set_recv_buffer_size(BUFFER_BYTES)?;
    buffers.set_send_buffer_size(BUFFER_BYTES)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn socket() -> io::Result<UdpSocket> {
    UdpSocket::from_std(std_socket()?)
}

/// A client's direction towards the broker.
struct Outward {
    line: Line,
    outside: watch::Receiver<Arc<UdpSocket>>,
}

impl Outward {
    async fn pass(&mut self, datagram: &[u8], shared: &Shared) {
        let step = self.line.take(datagram);
        shared.count(step.fate);
        let outside = Arc::clone(&self.outside.borrow());
        // What cannot be sent is lost, as anything may be.
        for _ in 0..step.fate.times() {
            outside.send(datagram).await.ok();
        }
        for held in step.held {
            outside.send(&held).await.ok();
        }
    }

    async fn release(&mut self) {
        let outside = Arc::clone(&self.outside.borrow());
        for held in self.line.release() {
            outside.send(&held).await.ok();
        }
    }
}

/// Reads what all clients send, and starts what sends back to each.
async fn outward(inside: Arc<UdpSocket>, shared: Arc<Shared>) {
    let mut clients: HashMap<SocketAddr, Outward> = HashMap::new();
    let mut inward = JoinSet::new();
    let mut bytes = vec![0; DATAGRAM_BYTES];
    let mut due: Option<Instant> = None;
    loop {
        if due.is_some_and(|due| due <= Instant::now()) {
            due = None;
            for client in clients.values_mut() {
                client.release().await;
            }
        }
        let received = tokio::select! {
            biased;
            received = inside.recv_from(&mut bytes) => received,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
        };
        let Ok((length, from)) = received else { continue };
        if !clients.contains_key(&from) {
            let number = clients.len();
            let Some(outside) = enter(number, &shared) else {
                continue;
            };
            let line = shared.line(number, true);
            inward.spawn(back(
                Arc::clone(&inside),
                from,
                outside.clone(),
                line,
                Arc::clone(&shared),
            ));
            let line = shared.line(number, false);
            clients.insert(from, Outward { line, outside });
        }
        if let Some(client) = clients.get_mut(&from) {
            client.pass(&bytes[..length], &shared).await;
            if client.line.holds() {
                due.get_or_insert_with(|| Instant::now() + HOLD);
            }
        }
    }
}

/// Makes a new client's socket towards the broker, if there is room for one.
fn enter(number: usize, shared: &Shared) -> Option<watch::Receiver<Arc<UdpSocket>>> {
    if number == MAX_CLIENTS {
        return None;
    }
    let (sender, outside) = watch::channel(shared.towards_broker().ok()?);
    let mut outsides = shared.outsides.lock().unwrap_or_else(PoisonError::into_inner);
    outsides.push(sender);
    Some(outside)
}

/// Sends back to one client what comes for it.
async fn back(
    inside: Arc<UdpSocket>,
    client: SocketAddr,
    mut outside: watch::Receiver<Arc<UdpSocket>>,
    mut line: Line,
    shared: Arc<Shared>,
) {
    let mut bytes = vec![0; DATAGRAM_BYTES];
    let mut due: Option<Instant> = None;
    loop {
        let current = Arc::clone(&outside.borrow_and_update());
        let received = tokio::select! {
            biased;
            changed = outside.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            received = current.recv(&mut bytes) => received,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                for held in line.release() {
                    inside.send_to(&held, client).await.ok();
                }
                continue;
            }
        };
        let Ok(length) = received else { continue };
        let step = line.take(&bytes[..length]);
        shared.count(step.fate);
        for _ in 0..step.fate.times() {
            inside.send_to(&bytes[..length], client).await.ok();
        }
        for held in step.held {
            inside.send_to(&held, client).await.ok();
        }
        due = line.holds().then(|| due.unwrap_or_else(|| Instant::now() + HOLD));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    async fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        let mut bytes = vec![0; DATAGRAM_BYTES];
        let expected = tokio::time::timeout(Duration::from_secs(60), socket.recv_from(&mut bytes));
        let (length, from) = expected.await.unwrap().unwrap();
        bytes.truncate(length);
        (bytes, from)
    }

    #[tokio::test]
    async fn datagrams_go_there_and_back_and_each_client_has_an_address_of_its_own() {
        let broker = socket().unwrap();
        let path = Path::before(broker.local_addr().unwrap(), Faults::NONE, 1).unwrap();
        let clients = [socket().unwrap(), socket().unwrap()];
        let mut addresses = Vec::new();
        for (number, client) in (0_u8..).zip(&clients) {
            client.send_to(&[number; 5000], path.address()).await.unwrap();
            let (datagram, from) = received(&broker).await;
            assert_eq!(datagram, [number; 5000]);
            broker.send_to(&[number, 7], from).await.unwrap();
            assert_eq!(received(client).await, (vec![number, 7], path.address()));
            addresses.push(from);
        }
        assert_ne!(addresses[0], addresses[1]);
        path.rebind().unwrap();
        clients[0].send_to(b"again", path.address()).await.unwrap();
        let (datagram, from) = received(&broker).await;
        assert_eq!(datagram, b"again");
        assert!(!addresses.contains(&from));
        broker.send_to(b"too", from).await.unwrap();
        assert_eq!(received(&clients[0]).await.0, b"too");
        let counts = path.counts();
        assert_eq!(
            (counts.taken, counts.lost, counts.late, counts.twice),
            (6, 0, 0, 0)
        );
    }

    #[tokio::test]
    async fn one_that_is_late_comes_also_where_no_other_does() {
        let late = Faults {
            late: 1.0,
            ..Faults::NONE
        };
        let broker = socket().unwrap();
        let path = Path::before(broker.local_addr().unwrap(), late, 1).unwrap();
        let client = socket().unwrap();
        client.send_to(b"late", path.address()).await.unwrap();
        let (datagram, from) = received(&broker).await;
        assert_eq!(datagram, b"late");
        broker.send_to(b"too", from).await.unwrap();
        assert_eq!(received(&client).await.0, b"too");
        assert_eq!(path.counts().late, 2);
    }

    #[tokio::test]
    async fn doubled_ones_come_twice_and_lost_ones_never() {
        let broker = socket().unwrap();
        let client = socket().unwrap();
        let twice = Faults {
            twice: 1.0,
            ..Faults::NONE
        };
        let doubling = Path::before(broker.local_addr().unwrap(), twice, 1).unwrap();
        client.send_to(b"double", doubling.address()).await.unwrap();
        assert_eq!(received(&broker).await, received(&broker).await);
        let lost = Faults {
            lost: 1.0,
            ..Faults::NONE
        };
        let losing = Path::before(broker.local_addr().unwrap(), lost, 1).unwrap();
        client.send_to(b"lost", losing.address()).await.unwrap();
        while losing.counts().lost == 0 {
            tokio::task::yield_now().await;
        }
        client.send_to(b"next", doubling.address()).await.unwrap();
        assert_eq!(received(&broker).await.0, b"next");
    }
}
