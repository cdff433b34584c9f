//! Stateless resets that nobody asked for: one datagram to each peer of a former process (RFC 9000, section 10.3).

use std::{io, net::UdpSocket, time::Duration};

use quinn::udp::{Transmit, UdpSockRef, UdpSocketState};
use ring::hmac;
use tokio::time::{self, MissedTickBehavior};

use super::Peer;
use crate::transport;

/// So many are told at once, and the next ones after a pause: 5,000 a second, as for those that ask. They all connect again.
const AT_ONCE: usize = 50;
const PAUSE: Duration = Duration::from_millis(10);
/// Random bytes before the token. So many, no observer can tell a reset from another packet.
const LEAST_PADDING: usize = 25;
const MOST_PADDING: usize = 50;

/// Writes to peers from the broker's port.
#[derive(Debug)]
pub(crate) struct Teller {
    socket: UdpSocket,
    state: UdpSocketState,
    key: hmac::Key,
}

impl Teller {
    /// Uses a second handle to one of the port's sockets, and the key that reset tokens are made with.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn new(socket: &UdpSocket, key: hmac::Key) -> io::Result<Self> {
        Ok(Self {
            socket: socket.try_clone()?,
            state: UdpSocketState::new(UdpSockRef::from(socket))?,
            key,
        })
    }

    /// Tells each peer that its connection is gone, and says to how many that could be sent. Nobody confirms it: for whom it
    /// is lost, the next ping is answered likewise.
    pub(crate) async fn tell(&self, peers: &[Peer]) -> usize {
        let mut told = 0;
        let mut pauses = time::interval(PAUSE);
        pauses.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for some in peers.chunks(AT_ONCE) {
            pauses.tick().await;
            for peer in some {
                match self.send(peer) {
                    Ok(()) => told += 1,
                    Err(error) => tracing::debug!(peer = %peer.remote, %error, "a client cannot be told"),
                }
            }
        }
        told
    }

    fn send(&self, peer: &Peer) -> io::Result<()> {
        let transmit = Transmit {
            destination: peer.remote,
            ecn: None,
            contents: &reset(&self.key, peer),
            segment_size: None,
            src_ip: peer.local,
        };
        self.state.try_send(UdpSockRef::from(&self.socket), &transmit)
    }
}

/// Looks like a packet with a short header, but for the token at its end.
fn reset(key: &hmac::Key, peer: &Peer) -> Vec<u8> {
    const SHORT_HEADER: u8 = 0x40;
    let padding = rand::random_range(LEAST_PADDING..=MOST_PADDING);
    let mut bytes: Vec<u8> = (0..padding).map(|_| rand::random()).collect();
    bytes[0] = SHORT_HEADER | (bytes[0] >> 2);
    bytes.extend(transport::reset_token(key, &peer.id));
    bytes
}

#[cfg(test)]
mod tests {
    use quinn_proto::ConnectionId;

    use super::*;

    #[tokio::test]
    async fn each_peer_gets_one_datagram_with_its_own_token() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; 64]);
        let broker = UdpSocket::bind("127.0.0.1:0").unwrap();
        broker.set_nonblocking(true).unwrap();
        let teller = Teller::new(&broker, key.clone()).unwrap();
        let clients: Vec<_> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let peers = (0..).zip(&clients).map(|(number, client)| Peer {
            id: ConnectionId::new(&[number; 8]),
            remote: client.local_addr().unwrap(),
            local: None,
        });
        let peers: Vec<_> = peers.collect();
        assert_eq!(teller.tell(&peers).await, 3);
        for (peer, client) in peers.iter().zip(&clients) {
            client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut bytes = [0; 100];
            let (length, from) = client.recv_from(&mut bytes).unwrap();
            assert_eq!(from, broker.local_addr().unwrap());
            assert_eq!(bytes[0] & 0xc0, 0x40);
            let token = hmac::sign(&key, &peer.id);
            assert_eq!(bytes[length - 16..length], token.as_ref()[..16]);
        }
    }
}
