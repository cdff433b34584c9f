//! How large datagrams may be: what the interfaces carry, what the settings allow, and a test at the start that datagrams of
//! those sizes arrive. Sizes are bytes of UDP payload.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use quinn::udp::{Transmit, UdpSocketState};
use socket2::SockRef;

use crate::settings::{LARGEST_MTU, SAFE_MTU, Settings};

/// Datagrams of loopback peers, guaranteed: the interface carries them, and a fixed size cannot be mistaken for a black
/// hole. Twice the rate of 1,452 bytes; more gains little, and ten segments of GSO must fit one UDP datagram.
const LOOPBACK_MTU: u16 = 4096;
/// Headers of IPv6 and UDP.
const IP_OVERHEAD: u32 = 48;
/// Where no interface says more: what Ethernet carries.
const USUAL_MTU: u32 = 1500;

/// Datagrams that QUIC hands to the kernel at once.
const SEGMENTS: usize = 10;
/// How often the test is tried: a busy machine may drop what it would carry at another time.
const TRIES: usize = 3;
/// Longest wait for each datagram of the test. On one machine they take microseconds.
const ARRIVAL: Duration = Duration::from_millis(500);
/// Receive buffer of the test: all its datagrams fit, with the kernel's bookkeeping.
const TEST_BUFFER: usize = 256 << 10;

/// The sizes that connections are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramSizes {
    /// The one size of peers on the loopback interface.
    pub(crate) loopback: u16,
    /// What connections of other peers begin with.
    pub(crate) initial: u16,
    /// The largest that is tried with other peers.
    pub(crate) largest: u16,
    /// Whether datagrams as large as these have arrived here.
    pub(crate) arrive: bool,
}

/// The packets that this machine's interfaces carry, in bytes, headers of IP included; none where it cannot be told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Interfaces {
    loopback: Option<u32>,
    /// Of the others, the one that carries the smallest, which all of them carry.
    smallest: Option<u32>,
    /// And the one that carries the largest.
    largest: Option<u32>,
}

impl Interfaces {
    pub(crate) fn of_this_machine() -> Self {
        let mut found = Self::default();
        for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path().join("mtu")).unwrap_or_default();
            if let Ok(packet) = text.trim().parse() {
                found.add(entry.file_name() == "lo", packet);
            }
        }
        found
    }

    fn add(&mut self, is_loopback: bool, packet: u32) {
        if is_loopback {
            self.loopback = Some(packet);
        } else {
            self.smallest = Some(self.smallest.map_or(packet, |smallest| smallest.min(packet)));
            self.largest = self.largest.max(Some(packet));
        }
    }
}

/// What is left of a packet for UDP, within the bounds.
fn payload(packet: u32) -> u16 {
    let payload = u16::try_from(packet.saturating_sub(IP_OVERHEAD)).unwrap_or(u16::MAX);
    payload.clamp(SAFE_MTU, LARGEST_MTU)
}

impl DatagramSizes {
    /// The sizes that the settings and the interfaces allow.
    pub(crate) fn new(settings: &Settings, interfaces: Interfaces) -> Self {
        let size = |size: u32| u16::try_from(size).unwrap_or(u16::MAX);
        let by_interface = |packet: Option<u32>| payload(packet.unwrap_or(USUAL_MTU));
        let largest = settings
            .mtu_upper_bound
            .map_or_else(|| by_interface(interfaces.largest), size);
        let initial = settings
            .initial_mtu
            .map_or_else(|| by_interface(interfaces.smallest), size);
        // Where the loopback interface does not carry the usual size, every path's has to do.
        let loopback = interfaces.loopback.map_or(LOOPBACK_MTU, payload);
        let allowed = settings.mtu_upper_bound.map_or(LOOPBACK_MTU, size);
        Self {
            loopback: LOOPBACK_MTU.min(loopback).min(allowed),
            initial: initial.min(largest),
            largest,
            arrive: true,
        }
    }

    /// The same after datagrams of these sizes were sent to the broker's own address, as QUIC sends them. Sizes that did not
    /// arrive are replaced by the one that every path carries. Blocks: for a moment if they arrive, else for seconds.
    pub(crate) fn tested(self, bound: IpAddr) -> Self {
        let address = match bound {
            IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V4(_) | IpAddr::V6(_) => bound,
        };
        let mut tested = self;
        for size in [&mut tested.loopback, &mut tested.initial, &mut tested.largest] {
            if *size == SAFE_MTU || arrives(address, *size) {
                continue;
            }
            tracing::warn!(
                %address, bytes = *size, instead = SAFE_MTU,
                "datagrams of this size vanish between sockets of this machine; a smaller size is used"
            );
            *size = SAFE_MTU;
            tested.arrive = false;
        }
        tested
    }
}

/// Whether datagrams of a size arrive. An error on the way is as good as a loss.
fn arrives(address: IpAddr, size: u16) -> bool {
    let test = || -> io::Result<bool> {
        let to = UdpSocket::bind(SocketAddr::new(address, 0))?;
        SockRef::from(&to).set_recv_buffer_size(TEST_BUFFER)?;
        let from = UdpSocket::bind(SocketAddr::new(address, 0))?;
        let state = UdpSocketState::new((&from).into())?;
        Ok((0..TRIES).any(|_| pass(&state, &from, &to, size)))
    };
    test().unwrap_or_else(|error| {
        tracing::warn!(%address, %error, "cannot test whether large datagrams arrive");
        false
    })
}

/// Sends as many datagrams as QUIC does at once and waits for all of them.
fn pass(state: &UdpSocketState, from: &UdpSocket, to: &UdpSocket, size: u16) -> bool {
    let size = usize::from(size);
    // What is left of a try before is not mistaken for this one's.
    let mark: u8 = rand::random();
    let bytes = vec![mark; SEGMENTS * size];
    // A kernel that refuses several at once is sent one at a time the next time, as by QUIC.
    let at_once = state.max_gso_segments().clamp(1, SEGMENTS);
    for contents in bytes.chunks(at_once * size) {
        let Ok(destination) = to.local_addr() else {
            return false;
        };
        let transmit = Transmit {
            destination,
            ecn: None,
            contents,
            segment_size: (at_once > 1).then_some(size),
            src_ip: None,
        };
        if state.try_send(from.into(), &transmit).is_err() {
            return false;
        }
    }
    let mut received = vec![0; size + 1];
    let mut arrived = 0;
    if to.set_read_timeout(Some(ARRIVAL)).is_err() {
        return false;
    }
    while arrived < SEGMENTS {
        match to.recv(&mut received) {
            Ok(length) => {
                arrived += usize::from(length == size && received[..size].iter().all(|byte| *byte == mark));
            }
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(change: impl FnOnce(&mut Settings), loopback: u32, others: &[u32]) -> DatagramSizes {
        let mut settings = Settings::defaults();
        change(&mut settings);
        let mut interfaces = Interfaces::default();
        interfaces.add(true, loopback);
        others.iter().for_each(|packet| interfaces.add(false, *packet));
        DatagramSizes::new(&settings, interfaces)
    }

    #[test]
    fn ten_segments_fit_a_datagram() {
        const { assert!(SEGMENTS * LARGEST_MTU as usize <= 65_507 && LOOPBACK_MTU <= LARGEST_MTU) };
    }

    #[test]
    fn interfaces_bound_the_sizes_and_are_bounded() {
        let of = |others: &[u32]| {
            let sizes = sizes(|_| {}, 65_536, others);
            (sizes.loopback, sizes.initial, sizes.largest)
        };
        assert_eq!(of(&[1500]), (4096, 1452, 1452));
        assert_eq!(of(&[9000]), (4096, 6500, 6500));
        assert_eq!(of(&[1000]), (4096, 1200, 1200));
        // What begins goes through every interface; what is tried may be for one of them alone.
        assert_eq!(of(&[1500, 1420, 9000]), (4096, 1372, 6500));
        assert_eq!(of(&[]), (4096, 1452, 1452));
        assert_eq!(sizes(|_| {}, 1500, &[1500]).loopback, 1452);
        let unknown = DatagramSizes::new(&Settings::defaults(), Interfaces::default());
        assert_eq!((unknown.loopback, unknown.largest), (4096, 1452));
    }

    #[test]
    fn settings_go_before_interfaces_and_bound_loopback_too() {
        let set = |initial, upper| {
            sizes(
                |settings| (settings.initial_mtu, settings.mtu_upper_bound) = (initial, upper),
                65_536,
                &[1500],
            )
        };
        assert_eq!(set(Some(1200), Some(6000)).largest, 6000);
        assert_eq!(set(None, Some(1300)).loopback, 1300);
        assert_eq!(set(None, Some(1300)).initial, 1300);
        assert_eq!(set(Some(1400), None).initial, 1400);
        // What the interface cannot carry is not begun with.
        assert_eq!(set(Some(3000), None).initial, 1452);
    }

    #[test]
    fn what_arrives_is_kept() {
        let before = sizes(|_| {}, 65_536, &[9000]);
        assert_eq!(before.tested(Ipv4Addr::UNSPECIFIED.into()), before);
    }

    #[test]
    fn what_vanishes_is_replaced() {
        // No interface of this machine has this address, so nothing can be sent there.
        let nowhere = Ipv4Addr::new(192, 0, 2, 1).into();
        let tested = sizes(|_| {}, 65_536, &[9000]).tested(nowhere);
        assert_eq!(
            (tested.loopback, tested.initial, tested.largest),
            (SAFE_MTU, SAFE_MTU, SAFE_MTU)
        );
        assert!(!tested.arrive);
    }

    #[test]
    fn a_try_fails_where_a_datagram_is_missing_or_too_large_for_the_kernel() {
        let address = Ipv4Addr::LOCALHOST;
        let (from, to) = (
            UdpSocket::bind((address, 0)).unwrap(),
            UdpSocket::bind((address, 0)).unwrap(),
        );
        let state = UdpSocketState::new((&from).into()).unwrap();
        assert!(pass(&state, &from, &to, 1452));
        // Ten segments of this size do not fit what UDP can carry at once.
        assert!(!pass(&state, &from, &to, 7000));
        // The kernel keeps one datagram or two in so small a buffer and drops the others.
        SockRef::from(&to).set_recv_buffer_size(1).unwrap();
        assert!(!pass(&state, &from, &to, 4096));
    }
}
