//! Measures how long the kernel makes packet sockets wait on this machine, for users of libpcap.
//!
//! The kernel binds a packet socket at once if it receives nothing yet. If it already receives, the kernel first
//! removes its hook and waits until no CPU can be using the hook (`packet_do_bind`); for a ring it waits in any case
//! (`packet_set_ring`), and also in close(2) (`packet_release`). `docs/packet-sockets.md` explains this.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::interface::Interface;
use crate::syscall::check;

/// A sequence of calls that opens a packet socket for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// Created for all packets, bound to the same protocol, of any device.
    Unchanged,
    /// Created for all packets, then bound to the device: as by libpcap before 1.10.
    ProtocolFirst,
    /// Created with protocol 0, then bound to the device with the protocol.
    BoundOnce,
    /// As `BoundOnce`, with a ring created in between: as by libpcap since 1.10.
    WithRing,
}

impl Sequence {
    /// All sequences.
    pub const ALL: [Sequence; 4] =
        [Sequence::Unchanged, Sequence::ProtocolFirst, Sequence::BoundOnce, Sequence::WithRing];
}

/// How long the calls on a socket took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// Until it received.
    pub open: Duration,
    /// Until it was closed.
    pub close: Duration,
}

/// Opens and closes a socket on `interface` of the calling thread's network namespace by the sequence `sequence`. Other
/// programs are not disturbed: it does not enable promiscuous mode, and holds a few packets at most, for a moment.
///
/// Needs CAP_NET_RAW; without it, the error is `EPERM`.
pub fn packet_socket(interface: &Interface, sequence: Sequence) -> io::Result<Durations> {
    let begin = Instant::now();
    let first = match sequence {
        Sequence::Unchanged | Sequence::ProtocolFirst => ALL,
        Sequence::BoundOnce | Sequence::WithRing => 0,
    };
    let socket = open(first)?;
    if sequence == Sequence::WithRing {
        make_ring(&socket)?;
    }
    bind(&socket, if sequence == Sequence::Unchanged { 0 } else { interface.index }, ALL)?;
    let open = begin.elapsed();
    let begin = Instant::now();
    drop(socket);
    Ok(Durations { open, close: begin.elapsed() })
}

/// Opens a packet socket for a protocol, in the calling thread's network namespace.
pub fn open(protocol: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes no pointer.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, protocol.to_be().into()) })?;
    // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a packet socket to a device, by its index, and to a protocol; index 0 is any device.
pub fn bind(socket: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: bind(2) reads the address, of the given length.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(())
}

/// Makes the smallest ring, of TPACKET_V1.
fn make_ring(socket: &OwnedFd) -> io::Result<()> {
    let ring = libc::tpacket_req {
        tp_block_size: RING_BYTES,
        tp_block_nr: 1,
        tp_frame_size: RING_BYTES,
        tp_frame_nr: 1,
    };
    let length = size_of_val(&ring) as libc::socklen_t;
    // SAFETY: PACKET_RX_RING reads a `struct tpacket_req`, for sockets of the first version.
    check(unsafe {
        let (fd, ring) = (socket.as_raw_fd(), (&raw const ring).cast());
        libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, ring, length)
    })?;
    Ok(())
}

const ALL: u16 = libc::ETH_P_ALL as u16;
/// A multiple of every page size.
const RING_BYTES: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::netlink::Netlink;

    /// Needs root.
    #[test]
    fn each_sequence_opens_a_socket() {
        if let Err(error) = Namespace::new_for_this_thread() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: {error}");
            eprintln!("SKIPPED {error}");
            return;
        }
        let mut netlink = Netlink::open().expect("netlink is always there");
        netlink.set_up("lo").expect("every namespace has one");
        let interface = Interface::read("lo").expect("as above");
        for sequence in Sequence::ALL {
            let waited =
                packet_socket(&interface, sequence).unwrap_or_else(|error| panic!("{error}"));
            assert!(waited.open > Duration::ZERO && waited.close > Duration::ZERO, "{sequence:?}");
        }
    }
}
