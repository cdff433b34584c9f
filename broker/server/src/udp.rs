//! The UDP socket of the QUIC endpoint, and its buffers: asked for, granted by the kernel, asked for again while short.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

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
}

/// A second handle to the endpoint's socket, to ask for its buffers while the endpoint uses it.
#[derive(Debug)]
pub(crate) struct BufferHandle {
    socket: UdpSocket,
    receive: u64,
    send: u64,
}

/// Binds the socket of the endpoint. Without any sharing option, so that a port in use is refused, also where the other
/// process would share it.
pub(crate) fn bind(address: SocketAddr) -> Result<UdpSocket, BindError> {
    let failed = |source| BindError::new("quic_bind", address, source);
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
    if address.is_ipv6() {
        socket.set_only_v6(false).map_err(failed)?;
    }
    socket.bind(&address.into()).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    Ok(socket.into())
}

impl BufferHandle {
    /// Keeps a handle to the socket and the sizes to ask for, in bytes.
    pub(crate) fn new(socket: &UdpSocket, receive: u64, send: u64) -> io::Result<Self> {
        Ok(Self {
            socket: socket.try_clone()?,
            receive,
            send,
        })
    }

    /// Asks for both sizes and says what the kernel gave. The limit is one value for the whole machine and may have
    /// been raised since the last time; a live socket gets more when it asks again.
    pub(crate) fn ask(&self) -> io::Result<Buffers> {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        sockopt::set_socket_recv_buffer_size(&self.socket, size(self.receive))?;
        sockopt::set_socket_send_buffer_size(&self.socket, size(self.send))?;
        let mut granted = self.granted()?;
        if granted.receive.is_short() {
            // Beyond the limit only for a process with the right to do so; a refusal is no news.
            sockopt::set_socket_recv_buffer_size_force(&self.socket, size(self.receive)).ok();
        }
        if granted.send.is_short() {
            sockopt::set_socket_send_buffer_size_force(&self.socket, size(self.send)).ok();
        }
        if granted.is_short() {
            granted = self.granted()?;
        }
        Ok(granted)
    }

    /// Half of what the kernel says: it doubles each request for its own bookkeeping.
    fn granted(&self) -> io::Result<Buffers> {
        let receive = sockopt::socket_recv_buffer_size(&self.socket)? as u64 / 2;
        let send = sockopt::socket_send_buffer_size(&self.socket)? as u64 / 2;
        Ok(Buffers {
            receive: Buffer {
                asked: self.receive,
                granted: receive,
            },
            send: Buffer {
                asked: self.send,
                granted: send,
            },
        })
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
        let socket = bind(any_port()).unwrap();
        let buffers = BufferHandle::new(&socket, 64 << 10, 32 << 10)
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
        let socket = bind(any_port()).unwrap();
        // The kernel doubles requests and keeps the double below 2 GiB, also for a process that may pass the limit.
        let buffers = BufferHandle::new(&socket, 1 << 30, 1 << 30)
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
        assert!(matches!(bind(address), Err(BindError::InUse { .. })));
    }
}
