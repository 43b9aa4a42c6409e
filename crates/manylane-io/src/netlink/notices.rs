//! Change notifications: a socket that has joined a multicast group of a netlink protocol.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::socket::{bind, messages, open_descriptor, set_option};
use crate::syscall::{check_length, retry};

/// The changes that a subsystem of the calling thread's network namespace announces, from the opening on.
#[derive(Debug)]
pub struct Notices {
    fd: OwnedFd,
    buffer: Box<[u8]>,
    matters: fn(u16) -> bool,
}

impl Notices {
    /// Joins a group of a protocol (netlink(7)). `matters` tells by message type whether a message counts.
    pub(super) fn open(
        protocol: libc::c_int,
        group: libc::c_int,
        matters: fn(u16) -> bool,
    ) -> io::Result<Notices> {
        let fd = open_descriptor(protocol)?;
        bind(fd.as_fd())?;
        set_option(fd.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)?;
        Ok(Notices { fd, buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), matters })
    }

    /// Reads all pending messages without waiting. True if one of them matters, or any was lost.
    pub fn drain(&mut self) -> io::Result<bool> {
        let (matters, mut changed) = (self.matters, false);
        let lost = self.read(|kind, _| changed |= matters(kind))?;
        Ok(changed | lost)
    }

    /// Reads all pending messages without waiting: the type and payload of each. True if any was lost.
    pub(super) fn read(&mut self, mut each: impl FnMut(u16, &[u8])) -> io::Result<bool> {
        let mut lost = false;
        loop {
            let received = retry(|| {
                // SAFETY: recv(2) writes at most the buffer's length.
                let received = unsafe {
                    libc::recv(
                        self.fd.as_raw_fd(),
                        self.buffer.as_mut_ptr().cast(),
                        self.buffer.len(),
                        libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                    )
                };
                check_length(received)
            });
            match received {
                // With MSG_TRUNC the length is the datagram's, also where the buffer took less.
                Ok(length) => {
                    lost |= length > self.buffer.len();
                    for message in messages(&self.buffer[..length.min(self.buffer.len())]) {
                        each(u16::try_from(message.kind).unwrap_or(u16::MAX), message.payload);
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(lost),
                    // The socket overflowed: a lost message may have mattered.
                    Some(libc::ENOBUFS) => lost = true,
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

/// Far more than the kernel sends at once; what is longer is truncated, and the rest lost.
const BUFFER_BYTES: usize = 64 << 10;
