//! Subscriptions to changes.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::super::NetlinkError;
use super::super::socket::{bind, messages, open_descriptor, set_option};
use super::{Event, Family, Group, decode};
use crate::syscall::{check_length, retry};

/// A subscription to changes of the kernel's routing, in the network namespace in which it was opened.
///
/// All groups share one socket, so events arrive in the kernel's order across groups.
pub struct Watch {
    fd: OwnedFd,
    buffer: Box<[u8]>,
    /// An event was lost, and the socket has not been empty since.
    is_congested: bool,
}

/// The outcome of one [`Watch::read`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The number of events read.
    pub events: usize,
    /// The reader was too slow and the buffer overflowed: events were lost. The kernel reports this once and then
    /// drops everything until its queue is empty; so this stays true until a read has emptied the queue. A dump made
    /// after a read with `overrun` and without `more` is complete again, with the events that follow.
    pub overrun: bool,
    /// The bound of one read was reached: more events may be pending.
    pub more: bool,
}

impl Watch {
    /// Subscribes to `groups`. The kernel buffers up to `receive_buffer` bytes of unread messages; a message takes some
    /// 700 to 1300 of them. Without CAP_NET_ADMIN the buffer is at most `net.core.rmem_max`.
    pub fn open(groups: &[Group], receive_buffer: usize) -> Result<Watch, NetlinkError> {
        let watch = Watch::open_unsubscribed(receive_buffer)
            .map_err(|source| NetlinkError::Unavailable { source })?;
        for &group in groups {
            let number = group.number() as libc::c_int;
            set_option(watch.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, number)
                .map_err(|source| {
                    NetlinkError::refused(format!("listen for {group:?}"), source.into())
                })?;
        }
        Ok(watch)
    }

    fn open_unsubscribed(receive_buffer: usize) -> io::Result<Watch> {
        let fd = open_descriptor(libc::NETLINK_ROUTE)?;
        bind(fd.as_fd())?;
        // The kernel doubles it.
        let half = libc::c_int::try_from(receive_buffer / 2).unwrap_or(libc::c_int::MAX / 2);
        set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half)
            .or_else(|_| set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, half))?;
        let buffer = vec![0; MESSAGE_BYTES_MAX].into_boxed_slice();
        Ok(Watch { fd, buffer, is_congested: false })
    }

    /// Passes the pending events to `each`, without waiting for more.
    pub fn read(&mut self, each: &mut impl FnMut(Event)) -> Result<Read, NetlinkError> {
        let mut read = Read { events: 0, overrun: self.is_congested, more: false };
        for _ in 0..DATAGRAMS_MAX {
            let length = match self.receive() {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_congested = false;
                    return Ok(read);
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    (self.is_congested, read.overrun) = (true, true);
                    continue;
                }
                Err(error) => {
                    let step = "hear of changes of the routing".into();
                    return Err(NetlinkError::refused(step, error.into()));
                }
            };
            let Some(datagram) = self.buffer.get(..length) else {
                // Longer than any known message: treated as lost.
                (self.is_congested, read.overrun) = (true, true);
                continue;
            };
            for message in messages(datagram) {
                if let Some(event) =
                    decode::event(message.kind as u16, message.flags as u16, message.payload)
                {
                    read.events += 1;
                    each(event);
                }
            }
        }
        Ok(Read { more: true, ..read })
    }

    /// The length of the next datagram, which may exceed the buffer.
    fn receive(&mut self) -> io::Result<usize> {
        loop {
            // SAFETY: a `sockaddr_nl` is numbers, for which zeroes are a value.
            let mut from: libc::sockaddr_nl = unsafe { mem::zeroed() };
            let mut from_bytes = size_of_val(&from) as libc::socklen_t;
            let length = retry(|| {
                // SAFETY: recvfrom(2) writes at most the buffer's length into it, and at most
                // `from_bytes` into `from`.
                let received = unsafe {
                    libc::recvfrom(
                        self.fd.as_raw_fd(),
                        self.buffer.as_mut_ptr().cast(),
                        self.buffer.len(),
                        libc::MSG_TRUNC | libc::MSG_DONTWAIT,
                        (&raw mut from).cast(),
                        &raw mut from_bytes,
                    )
                };
                check_length(received)
            })?;
            if from.nl_pid == 0 {
                return Ok(length); // From the kernel.
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Group {
    /// All groups.
    pub const ALL: [Group; 11] = [
        Group::Links,
        Group::Addresses(Family::V4),
        Group::Addresses(Family::V6),
        Group::Routes(Family::V4),
        Group::Routes(Family::V6),
        Group::Rules(Family::V4),
        Group::Rules(Family::V6),
        Group::NextHops,
        Group::Neighbours,
        Group::Netconf(Family::V4),
        Group::Netconf(Family::V6),
    ];

    fn number(self) -> libc::c_uint {
        match self {
            Group::Links => libc::RTNLGRP_LINK,
            Group::Addresses(Family::V4) => libc::RTNLGRP_IPV4_IFADDR,
            Group::Addresses(Family::V6) => libc::RTNLGRP_IPV6_IFADDR,
            Group::Routes(Family::V4) => libc::RTNLGRP_IPV4_ROUTE,
            Group::Routes(Family::V6) => libc::RTNLGRP_IPV6_ROUTE,
            Group::Rules(Family::V4) => libc::RTNLGRP_IPV4_RULE,
            Group::Rules(Family::V6) => libc::RTNLGRP_IPV6_RULE,
            Group::NextHops => libc::RTNLGRP_NEXTHOP,
            Group::Neighbours => libc::RTNLGRP_NEIGH,
            Group::Netconf(Family::V4) => libc::RTNLGRP_IPV4_NETCONF,
            Group::Netconf(Family::V6) => libc::RTNLGRP_IPV6_NETCONF,
        }
    }
}

/// An attribute's length has 16 bits: a route whose next hops fill one attribute, and its other attributes.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Datagrams per read: the reader does other work in between, also in a storm of events.
const DATAGRAMS_MAX: usize = 4096;
