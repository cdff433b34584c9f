//! What a slot of the book looks like. Pure: bytes to values and back, under a key, so that what another process or a damaged
//! disk put there is never taken for a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use quinn_proto::ConnectionId;
use ring::hmac;

use crate::lanes::ID_BYTES;

/// Length of a slot in bytes.
pub(crate) const SLOT_BYTES: usize = 64;
/// A slot that nobody has.
pub(crate) const FREE: Slot = [0; SLOT_BYTES];
/// How much of a slot is proven by the rest.
const BODY_BYTES: usize = 48;
const ADDRESS_BYTES: usize = 16;

/// A slot's bytes: families of both addresses, port, scope, both addresses, connection id, proof. Little endian.
pub(crate) type Slot = [u8; SLOT_BYTES];

/// A client as it must be written to when there is no connection any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The id that its packets are sent to.
    pub(crate) id: ConnectionId,
    /// Where it was when its handshake was complete.
    pub(crate) remote: SocketAddr,
    /// The broker's address that it knows, where the system tells.
    pub(crate) local: Option<IpAddr>,
}

/// A slot that this key did not seal, or not with these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// Makes and reads slots.
#[derive(Clone, Debug)]
pub(crate) struct Seal(hmac::Key);

impl Seal {
    /// Derived from a key that outlives the process.
    pub(crate) fn new(key: &[u8]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        // Another layout of slots gets another label.
        let derived = hmac::sign(&key, b"peers 1");
        Self(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
    }

    /// The slot of a peer, or a free one.
    pub(crate) fn seal(&self, peer: Option<&Peer>) -> Slot {
        let Some(peer) = peer else { return FREE };
        let mut slot = FREE;
        let (remote_family, remote) = address(peer.remote.ip());
        let (local_family, local) = peer.local.map_or((0, [0; ADDRESS_BYTES]), address);
        let scope = match peer.remote {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(remote) => remote.scope_id(),
        };
        slot[0] = remote_family;
        slot[1] = local_family;
        slot[2..4].copy_from_slice(&peer.remote.port().to_le_bytes());
        slot[4..8].copy_from_slice(&scope.to_le_bytes());
        slot[8..24].copy_from_slice(&remote);
        slot[24..40].copy_from_slice(&local);
        slot[40..BODY_BYTES].copy_from_slice(&peer.id);
        let proof = self.proof(&slot);
        slot[BODY_BYTES..].copy_from_slice(&proof);
        slot
    }

    /// Who has a slot.
    pub(crate) fn open(&self, slot: &Slot) -> Result<Option<Peer>, Damaged> {
        if *slot == FREE {
            return Ok(None);
        }
        if self.proof(slot) != slot[BODY_BYTES..] {
            return Err(Damaged);
        }
        let port = u16::from_le_bytes([slot[2], slot[3]]);
        let scope = u32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]]);
        let remote = match ip(slot[0], &slot[8..24])? {
            Some(IpAddr::V4(ip)) => (ip, port).into(),
            Some(IpAddr::V6(ip)) => SocketAddrV6::new(ip, port, 0, scope).into(),
            None => return Err(Damaged),
        };
        Ok(Some(Peer {
            id: ConnectionId::new(&slot[40..BODY_BYTES]),
            remote,
            local: ip(slot[1], &slot[24..40])?,
        }))
    }

    fn proof(&self, slot: &Slot) -> [u8; SLOT_BYTES - BODY_BYTES] {
        let mut proof = [0; SLOT_BYTES - BODY_BYTES];
        proof.copy_from_slice(&hmac::sign(&self.0, &slot[..BODY_BYTES]).as_ref()[..SLOT_BYTES - BODY_BYTES]);
        proof
    }
}

const _: () = assert!(40 + ID_BYTES == BODY_BYTES);

fn address(ip: IpAddr) -> (u8, [u8; ADDRESS_BYTES]) {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; ADDRESS_BYTES];
            bytes[..4].copy_from_slice(&ip.octets());
            (4, bytes)
        }
        IpAddr::V6(ip) => (6, ip.octets()),
    }
}

fn ip(family: u8, bytes: &[u8]) -> Result<Option<IpAddr>, Damaged> {
    let bytes: [u8; ADDRESS_BYTES] = bytes.try_into().map_err(|_| Damaged)?;
    match family {
        0 => Ok(None),
        4 => Ok(Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into())),
        6 => Ok(Some(Ipv6Addr::from(bytes).into())),
        _ => Err(Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> Vec<Peer> {
        let linked = SocketAddrV6::new("fe80::1".parse().unwrap(), 65_535, 0, 3);
        [
            ("127.0.0.1:1".parse().unwrap(), None),
            ("10.1.2.3:40000".parse().unwrap(), Some([10, 9, 8, 7].into())),
            (linked.into(), Some("fe80::2".parse().unwrap())),
            ("[::ffff:10.1.2.3]:5".parse().unwrap(), Some([10, 9, 8, 7].into())),
        ]
        .into_iter()
        .map(|(remote, local)| Peer {
            id: ConnectionId::new(&[1, 2, 3, 4, 5, 6, 7, 8]),
            remote,
            local,
        })
        .collect()
    }

    #[test]
    fn slots_come_back_as_they_were() {
        let seal = Seal::new(&[7; 64]);
        for peer in peers() {
            assert_eq!(seal.open(&seal.seal(Some(&peer))), Ok(Some(peer)));
        }
        assert_eq!(seal.open(&seal.seal(None)), Ok(None));
    }

    #[test]
    fn any_changed_bit_is_seen_and_so_is_another_key() {
        let seal = Seal::new(&[7; 64]);
        let slot = seal.seal(Some(&peers()[1]));
        for bit in 0..SLOT_BYTES * 8 {
            let mut changed = slot;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.open(&changed), Err(Damaged), "bit {bit}");
        }
        assert_eq!(Seal::new(&[8; 64]).open(&slot), Err(Damaged));
    }
}
