//! A translator of addresses between one client and a broker, which may at any time send on from another port, as a router
//! does that has forgotten the client or was restarted.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use tokio::{net::UdpSocket, sync::watch, task::JoinHandle};

/// The largest datagram there is.
const DATAGRAM_BYTES: usize = 65_535;

/// A running translator; gone when it is dropped.
pub(crate) struct Nat {
    /// Where the client connects to.
    pub(crate) address: SocketAddr,
    outside: watch::Sender<Arc<UdpSocket>>,
    broker: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Nat {
    pub(crate) async fn before(broker: SocketAddr) -> Self {
        let inside = Arc::new(any_socket().await);
        let (outside, current) = watch::channel(connected(broker).await);
        let client = Arc::new(Mutex::new(None));
        Self {
            address: inside.local_addr().unwrap(),
            outside,
            broker,
            tasks: [
                tokio::spawn(outward(Arc::clone(&inside), current.clone(), Arc::clone(&client))),
                tokio::spawn(inward(inside, current, client)),
            ],
        }
    }

    /// Sends from another port from now on, and forgets the former: what still comes there is lost.
    pub(crate) async fn rebind(&self) {
        self.outside.send_replace(connected(self.broker).await);
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

type Client = Arc<Mutex<Option<SocketAddr>>>;

async fn any_socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

async fn connected(broker: SocketAddr) -> Arc<UdpSocket> {
    let socket = any_socket().await;
    socket.connect(broker).await.unwrap();
    Arc::new(socket)
}

async fn outward(inside: Arc<UdpSocket>, current: watch::Receiver<Arc<UdpSocket>>, client: Client) {
    let mut bytes = vec![0; DATAGRAM_BYTES];
    loop {
        let (length, from) = inside.recv_from(&mut bytes).await.unwrap();
        *client.lock().unwrap() = Some(from);
        let outside = Arc::clone(&current.borrow());
        // What cannot be sent is lost, as anything may be.
        outside.send(&bytes[..length]).await.ok();
    }
}

async fn inward(inside: Arc<UdpSocket>, mut current: watch::Receiver<Arc<UdpSocket>>, client: Client) {
    let mut bytes = vec![0; DATAGRAM_BYTES];
    loop {
        let outside = Arc::clone(&current.borrow_and_update());
        let received = tokio::select! {
            received = outside.recv(&mut bytes) => received,
            changed = current.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let to = *client.lock().unwrap();
        if let (Ok(length), Some(to)) = (received, to) {
            inside.send_to(&bytes[..length], to).await.ok();
        }
    }
}
