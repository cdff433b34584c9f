//! How large datagrams may be, in bytes of UDP payload: what the interfaces of this machine carry, within what QUIC can use.

use std::fs;

/// Every path of QUIC carries this.
const SAFE: u16 = 1200;

/// Ten segments of GSO must fit the 65,507 bytes of a UDP datagram: above this size, delivery stalls for good. Brokers send
/// nothing larger either.
pub(crate) const LARGEST: u16 = 6500;

/// Datagrams between loopback peers: the interface carries far more, more gains little, and a fixed size cannot be mistaken for
/// a path that loses large ones.
const LOOPBACK: u16 = 4096;

/// Headers of IPv6 and UDP.
const OVERHEAD: u32 = 48;

/// Where no interface says more: what Ethernet carries.
const USUAL_PACKET: u32 = 1500;

/// The size for loopback peers.
pub(crate) fn loopback() -> u16 {
    let packet = packets(|name| name == "lo").max();
    packet.map_or(LOOPBACK, |packet| payload(packet).min(LOOPBACK))
}

/// The size that connections to other peers begin with, which every interface carries, and the largest that discovery may try.
pub(crate) fn elsewhere() -> (u16, u16) {
    let others = || packets(|name| name != "lo");
    let size = |packet: Option<u32>| payload(packet.unwrap_or(USUAL_PACKET));
    (size(others().min()), size(others().max()))
}

/// The packets of the interfaces with such names; none where the system does not say.
fn packets(wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    entries
        .filter(move |entry| entry.file_name().to_str().is_some_and(&wanted))
        .filter_map(|entry| {
            fs::read_to_string(entry.path().join("mtu"))
                .ok()?
                .trim()
                .parse()
                .ok()
        })
}

fn payload(packet: u32) -> u16 {
    let payload = u16::try_from(packet.saturating_sub(OVERHEAD)).unwrap_or(u16::MAX);
    payload.clamp(SAFE, LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_within_what_quic_can_use() {
        assert_eq!(payload(1500), 1452);
        assert_eq!(payload(65_536), LARGEST);
        assert_eq!(payload(576), SAFE);
        const { assert!(10 * LARGEST as u32 <= 65_507 && LOOPBACK <= LARGEST) };
        assert!((SAFE..=LOOPBACK).contains(&loopback()));
        let (first, largest) = elsewhere();
        assert!(SAFE <= first && first <= largest && largest <= LARGEST);
    }
}
