//! The UDP sockets of the broker's port, one a lane, and their buffers: asked for, granted by the kernel, asked for again
//! while short.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::steering;

/// Why the endpoint's socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has the port.
    #[error("{setting}: {address} is in use; stop the process that has it, or choose another port")]
    InUse {
        /// The setting that names the address.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be used for another reason.
    #[error("{setting}: {address}: {source}")]
    Failed {
        /// The setting that names the address.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

impl BindError {
    pub(crate) fn new(setting: &'static str, address: SocketAddr, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::AddrInUse {
            Self::InUse { setting, address }
        } else {
            Self::Failed {
                setting,
                address,
                source,
            }
        }
    }
}

/// One direction of a socket's buffers, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) asked: u64,
    pub(crate) granted: u64,
}

impl Buffer {
    fn is_short(self) -> bool {
        self.granted < self.asked
    }
}

/// Both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffers {
    pub(crate) receive: Buffer,
    pub(crate) send: Buffer,
}

impl Buffers {
    /// Whether the kernel gave less than was asked for in either direction.
    pub(crate) fn is_short(self) -> bool {
        self.receive.is_short() || self.send.is_short()
    }

    /// The smaller grant of two sockets in each direction.
    fn least(self, other: Self) -> Self {
        let smaller = |one: Buffer, two: Buffer| if two.granted < one.granted { two } else { one };
        Self {
            receive: smaller(self.receive, other.receive),
            send: smaller(self.send, other.send),
        }
    }
}

/// Second handles to the sockets of the port, to ask for their buffers while the endpoints use them.
#[derive(Debug)]
pub(crate) struct BufferHandle {
    sockets: Vec<UdpSocket>,
    receive: u64,
    send: u64,
}

/// Binds the port: one socket for each of `lanes`, in the order of the lanes, or one alone where the system cannot steer
/// datagrams to their lanes.
///
/// The first socket is bound without any sharing option, so that a port in use is refused, also where the other process, or
/// another broker of the same user, would share it.
pub(crate) fn bind(address: SocketAddr, lanes: u8) -> Result<Vec<UdpSocket>, BindError> {
    let failed = |source| BindError::new("quic_bind", address, source);
    let first = socket(address).map_err(failed)?;
    first.bind(&address.into()).map_err(failed)?;
    let first = UdpSocket::from(first);
    let others = if lanes > 1 {
        share(&first, lanes).unwrap_or_else(|error| {
            tracing::warn!(%error, lanes, "this system does not steer datagrams to lanes: there is one lane");
            Vec::new()
        })
    } else {
        Vec::new()
    };
    Ok([first].into_iter().chain(others).collect())
}

/// Binds further sockets to the port of `first`, and has the kernel steer datagrams. On failure `first` is alone again.
fn share(first: &UdpSocket, lanes: u8) -> io::Result<Vec<UdpSocket>> {
    let address = first.local_addr()?;
    let may_share = SockRef::from(first);
    may_share.set_reuse_port(true)?;
    let others = (1..lanes).map(|_| {
        let other = socket(address)?;
        other.set_reuse_port(true)?;
        other.bind(&address.into())?;
        Ok(other.into())
    });
    let shared = others
        .collect::<io::Result<Vec<UdpSocket>>>()
        .and_then(|others| steering::attach(first, lanes).map(|()| others));
    if shared.is_err() {
        may_share.set_reuse_port(false)?;
    }
    shared
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl BufferHandle {
    /// Keeps handles to the sockets and the sizes to ask for, in bytes.
    pub(crate) fn new(sockets: &[UdpSocket], receive: u64, send: u64) -> io::Result<Self> {
        Ok(Self {
            sockets: sockets
                .iter()
                .map(UdpSocket::try_clone)
                .collect::<io::Result<_>>()?,
            receive,
            send,
        })
    }

    /// Asks for both sizes on each socket and says what the kernel gave to the one that got the least. The limit is one
    /// value for the whole machine and may have been raised since the last time; a live socket gets more when it asks again.
    pub(crate) fn ask(&self) -> io::Result<Buffers> {
        let granted = self.sockets.iter().map(|socket| self.ask_on(socket));
        let least = granted.reduce(|least, next| Ok(least?.least(next?)));
        // There is a socket; without one nothing was granted.
        least.unwrap_or_else(|| Ok(self.buffers(0, 0)))
    }

    fn ask_on(&self, socket: &UdpSocket) -> io::Result<Buffers> {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        sockopt::set_socket_recv_buffer_size(socket, size(self.receive))?;
        sockopt::set_socket_send_buffer_size(socket, size(self.send))?;
        let mut granted = self.granted(socket)?;
        if granted.receive.is_short() {
            // Beyond the limit only for a process with the right to do so; a refusal is no news.
            sockopt::set_socket_recv_buffer_size_force(socket, size(self.receive)).ok();
        }
        if granted.send.is_short() {
            sockopt::set_socket_send_buffer_size_force(socket, size(self.send)).ok();
        }
        if granted.is_short() {
            granted = self.granted(socket)?;
        }
        Ok(granted)
    }

    /// Half of what the kernel says: it doubles each request for its own bookkeeping.
    fn granted(&self, socket: &UdpSocket) -> io::Result<Buffers> {
        Ok(self.buffers(
            sockopt::socket_recv_buffer_size(socket)? as u64 / 2,
            sockopt::socket_send_buffer_size(socket)? as u64 / 2,
        ))
    }

    fn buffers(&self, receive: u64, send: u64) -> Buffers {
        Buffers {
            receive: Buffer {
                asked: self.receive,
                granted: receive,
            },
            send: Buffer {
                asked: self.send,
                granted: send,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_port() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn a_small_request_is_granted_in_full() {
        let sockets = bind(any_port(), 2).unwrap();
        let buffers = BufferHandle::new(&sockets, 64 << 10, 32 << 10)
            .unwrap()
            .ask()
            .unwrap();
        assert_eq!(
            buffers.receive,
            Buffer {
                asked: 64 << 10,
                granted: 64 << 10
            }
        );
        assert_eq!(
            buffers.send,
            Buffer {
                asked: 32 << 10,
                granted: 32 << 10
            }
        );
        assert!(!buffers.is_short());
    }

    #[test]
    fn a_request_beyond_every_limit_is_reported_as_short() {
        let sockets = bind(any_port(), 1).unwrap();
        // The kernel doubles requests and keeps the double below 2 GiB, also for a process that may pass the limit.
        let buffers = BufferHandle::new(&sockets, 1 << 30, 1 << 30)
            .unwrap()
            .ask()
            .unwrap();
        assert!(buffers.is_short());
        assert!(buffers.receive.granted > 0 && buffers.receive.granted < 1 << 30);
    }

    #[test]
    fn a_port_that_others_would_share_is_refused() {
        let first = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        first.set_reuse_port(true).unwrap();
        first.bind(&any_port().into()).unwrap();
        let address = first.local_addr().unwrap().as_socket().unwrap();
        for lanes in [1, 4] {
            assert!(matches!(bind(address, lanes), Err(BindError::InUse { .. })));
        }
    }

    #[test]
    fn a_port_of_another_broker_of_the_same_user_is_refused() {
        let first = bind(any_port(), 4).unwrap();
        let address = first[0].local_addr().unwrap();
        for lanes in [1, 4] {
            assert!(matches!(bind(address, lanes), Err(BindError::InUse { .. })));
        }
    }

    #[test]
    fn the_least_of_all_sockets_is_reported_in_each_direction() {
        let buffers = |receive, send| Buffers {
            receive: Buffer {
                asked: 8,
                granted: receive,
            },
            send: Buffer {
                asked: 8,
                granted: send,
            },
        };
        assert_eq!(buffers(8, 4).least(buffers(2, 8)), buffers(2, 4));
    }

    /// Reads what is expected on a socket.
    #[cfg(target_os = "linux")]
    fn received(socket: &UdpSocket) -> Vec<u8> {
        socket.set_nonblocking(false).unwrap();
        socket
            .set_read_timeout(Some(std::time::Duration::from_secs(60)))
            .unwrap();
        let mut bytes = [0; 32];
        let length = socket.recv(&mut bytes).unwrap();
        bytes[..length].to_vec()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn datagrams_go_to_the_lane_that_their_connection_id_names() {
        const LANES: u8 = 3;
        for address in ["127.0.0.1:0", "[::]:0"] {
            let sockets = bind(address.parse().unwrap(), LANES).unwrap();
            let port = sockets[0].local_addr().unwrap().port();
            for first in [0, 1, 2, 3, 127, 128, 254, 255_u8] {
                let lane = usize::from(first % LANES);
                // Another client's address each time.
                let client = UdpSocket::bind(any_port()).unwrap();
                let long = [0xc0, 0, 0, 0, 1, 8, first, 9, 9, 9];
                let short = [0x40, first, 9, 9, 9, 9, 77];
                for sent in [&long[..], &short[..]] {
                    client.send_to(sent, ("127.0.0.1", port)).unwrap();
                    assert_eq!(received(&sockets[lane]), sent);
                }
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_too_short_for_a_connection_id_goes_to_the_first_lane() {
        let sockets = bind(any_port(), 3).unwrap();
        let client = UdpSocket::bind(any_port()).unwrap();
        for sent in [&[][..], &[0x40], &[0xc0, 0, 0, 0, 1, 0]] {
            client.send_to(sent, sockets[0].local_addr().unwrap()).unwrap();
            assert_eq!(received(&sockets[0]), sent);
        }
    }
}
