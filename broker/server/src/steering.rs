//! How the kernel chooses among the sockets of one port: by the QUIC connection id in each datagram, not by the client's
//! address. The only unsafe code of the broker: there is no safe way to attach a program to a group of sockets.

#![cfg_attr(
    target_os = "linux",
    allow(unsafe_code, reason = "setsockopt with a pointer to a program")
)]

use std::{io, net::UdpSocket};

/// Has the kernel give each datagram of the group that `socket` is in to the socket whose number, in the order of their
/// binding, is the first byte of the datagram's destination connection id modulo `lanes`. Needs no privilege.
///
/// A datagram too short to have such a byte goes to the first socket. A number that no socket has leaves the choice to the
/// kernel's hash of the addresses.
///
/// # Errors
/// What the kernel says, which is that it lacks the option, or that the socket is in no group.
#[cfg(target_os = "linux")]
pub(crate) fn attach(socket: &UdpSocket, lanes: u8) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let mut program = program(lanes);
    let described = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the descriptor is that of a live socket; the value is a `sock_fprog` of the length given, and the kernel copies
    // it and the program that it points to, both of which outlive the call, before it returns.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const described).cast(),
            size_of_val(&described) as libc::socklen_t,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The choice as instructions of classic BPF. Offsets are within the UDP payload. The header forms are those of RFC 8999,
/// which no version of QUIC changes: the top bit of the first byte says whether flags, version and the id's length stand
/// before the id, or flags alone.
#[cfg(target_os = "linux")]
fn program(lanes: u8) -> [libc::sock_filter; 7] {
    use libc::{BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_JA, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_MOD, BPF_RET};
    const LONG_HEADER: u32 = 0x80;
    let instruction = |code: u32, jump_true, jump_false, k| libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k,
    };
    let load_byte = |offset| instruction(BPF_LD | BPF_B | BPF_ABS, 0, 0, offset);
    [
        load_byte(0),
        instruction(BPF_JMP | BPF_JSET | BPF_K, 0, 2, LONG_HEADER),
        load_byte(6),
        instruction(BPF_JMP | BPF_JA, 0, 0, 1),
        load_byte(1),
        instruction(BPF_ALU | BPF_MOD | BPF_K, 0, 0, u32::from(lanes.max(1))),
        instruction(BPF_RET | BPF_A, 0, 0, 0),
    ]
}

/// Other systems cannot.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub(crate) fn attach(_socket: &UdpSocket, _lanes: u8) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
