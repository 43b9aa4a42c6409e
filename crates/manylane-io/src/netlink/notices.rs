//! Word of changes: a socket that belongs to a multicast group of a netlink protocol.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::socket::{messages, open_descriptor, set_option};
use crate::syscall::{check, check_length, retry};

/// What a subsystem of the calling thread's network namespace tells of its changes, from the opening on.
#[derive(Debug)]
pub struct Notices {
    fd: OwnedFd,
    buffer: Box<[u8]>,
    matters: fn(u16) -> bool,
}

impl Notices {
    /// Joins a group of a protocol (netlink(7)). `matters` says of a message type whether such a message is one.
    pub(super) fn open(
        protocol: libc::c_int,
        group: libc::c_int,
        matters: fn(u16) -> bool,
    ) -> io::Result<Notices> {
        let fd = open_descriptor(protocol)?;
        // A socket without an address is no member that the kernel writes to, until it has sent something.
        bind(&fd)?;
        set_option(fd.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)?;
        Ok(Notices { fd, buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), matters })
    }

    /// Reads all that has come, without waiting. True if one of it matters, or something was lost.
    pub fn drain(&mut self) -> io::Result<bool> {
        let mut changed = false;
        loop {
            let received = retry(|| {
                // SAFETY: recv(2) writes at most the buffer's length.
                let received = unsafe {
                    libc::recv(
                        self.fd.as_raw_fd(),
                        self.buffer.as_mut_ptr().cast(),
                        self.buffer.len(),
                        libc::MSG_DONTWAIT,
                    )
                };
                check_length(received)
            });
            match received {
                Ok(length) => {
                    let kinds = messages(&self.buffer[..length])
                        .map(|message| u16::try_from(message.kind).unwrap_or(u16::MAX));
                    changed |= kinds.into_iter().any(self.matters);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(changed),
                    // More came than the socket holds: what was lost may have mattered.
                    Some(libc::ENOBUFS) => changed = true,
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Gives the socket an address of the kernel's choice.
fn bind(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sockaddr_nl`.
    let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    // SAFETY: bind(2) reads as many bytes of `address` as it is told to.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Only the headers are read: what a longer datagram says beyond is cut, and its first message counts.
const BUFFER_BYTES: usize = 64 << 10;
