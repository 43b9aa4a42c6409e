//! Sends and receives single raw frames on a link, bypassing the host's own stack.
//!
//! For labs and tests, in which a program plays the hosts of a link and must see and send every bit. Ports
//! are in [`port`](crate::port); this socket makes a system call for each frame.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::auxiliary::{Auxiliary, Tag};
use crate::netlink::{Netlink, NetlinkError};
use crate::syscall::{check, check_length};

/// A packet socket on one link: see packet(7).
#[derive(Debug)]
pub struct Station {
    /// The standard library's `send` works on any kind of socket.
    socket: UdpSocket,
}

impl Station {
    /// Opens a station on a link of the calling thread's network namespace.
    pub fn open(interface: &str) -> Result<Station, StationError> {
        let refused = |step| {
            move |source| StationError::Refused { interface: interface.to_owned(), step, source }
        };
        let index = Netlink::open()?.link(interface)?.index;
        let socket = socket().map_err(refused("make a packet socket for"))?;
        switch_on(&socket, libc::PACKET_AUXDATA).map_err(refused("request VLAN tags on"))?;
        // Past the queueing discipline: until the kernel has noticed that a new link is up, the qdisc silently drops
        // sent frames.
        switch_on(&socket, libc::PACKET_QDISC_BYPASS).map_err(refused("send at once on"))?;
        // The socket receives only once it is bound: no frames of other links can be pending.
        bind(&socket, index).map_err(refused("listen on"))?;
        Ok(Station { socket: socket.into() })
    }

    /// Sends a frame, Ethernet header included. EMSGSIZE: the frame is too large for the link.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame).map(drop)
    }

    /// Receives the next pending frame into `buffer`, which must be four bytes longer than the frame; `None` when none
    /// is pending. A VLAN tag that the kernel removed is restored.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        let Some(room) = buffer.get_mut(TAG..) else { return Ok(None) };
        let (len, tag) = match self.receive_beside_tag(room) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(tag) = tag.filter(|_| len >= ADDRESSES) else {
            return Ok(Some(&buffer[TAG..TAG + len]));
        };
        buffer.copy_within(TAG..TAG + ADDRESSES, 0);
        buffer[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
        Ok(Some(&buffer[..TAG + len]))
    }

    /// Receives a frame into `buffer`; returns its length, and the tag that was removed from it.
    fn receive_beside_tag(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<Tag>)> {
        let mut auxiliary = Auxiliary::new();
        let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all zeroes is a valid `msghdr`: null pointers and lengths of 0.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
        message.msg_control = (&raw mut auxiliary).cast();
        message.msg_controllen = size_of::<Auxiliary>();
        // SAFETY: recvmsg(2) writes the message, ours, and what it names: at most the given lengths of the bytes of
        // `buffer` and of `auxiliary`, which no other code accesses during the call.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        let len = check_length(received)?;
        Ok((len, auxiliary.tag(message.msg_controllen)))
    }
}

/// Readable when a frame waits.
impl AsFd for Station {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that does not block and receives nothing yet: its protocol is 0.
fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes no pointer.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of packet(7) to 1.
fn switch_on(socket: &OwnedFd, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    // SAFETY: setsockopt(2) reads the integer, of the given length.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, (&raw const on).cast(), len)
    })?;
    Ok(())
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: bind(2) reads the address, of the given length.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(())
}

/// The two addresses of an Ethernet header, and a tag behind them, in bytes.
const ADDRESSES: usize = 12;
const TAG: usize = size_of::<Tag>();

/// Why a station did not open.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum StationError {
    /// The link does not exist, or netlink failed.
    #[error("{0}")]
    Link(#[from] NetlinkError),
    /// The kernel refused a step.
    #[error("cannot {step} {interface}: {source}; {}", next_step(.source))]
    Refused {
        /// The link.
        interface: String,
        /// The step, as in "cannot {step} {interface}".
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// What the operator can do about it.
fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "needs root (CAP_NET_RAW)",
        _ => "check that the link exists and is up (`ip link`)",
    }
}
