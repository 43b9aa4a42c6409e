//! Many datagrams per system call: the kernel answers each request of a batch, and tells each event, in a datagram of its
//! own.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::syscall::{check, retry};

/// The datagrams that one call received.
pub(super) struct Datagrams {
    bytes: Box<[u8]>,
    /// Of each datagram: its length, or nothing where it is to be skipped.
    received: Vec<Datagram>,
}

#[derive(Clone, Copy)]
enum Datagram {
    Whole(usize),
    /// Longer than a buffer.
    Truncated,
    /// Sent by a process.
    Foreign,
}

impl Datagrams {
    pub(super) fn new() -> Datagrams {
        let bytes = vec![0; COUNT * DATAGRAM_BYTES_MAX].into_boxed_slice();
        Datagrams { bytes, received: Vec::with_capacity(COUNT) }
    }

    /// Receives what is pending, up to a bound: the number of datagrams, or `WouldBlock` where none is.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received.clear();
        // SAFETY: zeroes are a value of these structures: numbers and pointers.
        let (mut headers, mut parts, mut senders): (
            [libc::mmsghdr; COUNT],
            [libc::iovec; COUNT],
            [libc::sockaddr_nl; COUNT],
        ) = unsafe { mem::zeroed() };
        let buffers = self.bytes.chunks_exact_mut(DATAGRAM_BYTES_MAX);
        for (((header, part), sender), buffer) in
            headers.iter_mut().zip(&mut parts).zip(&mut senders).zip(buffers)
        {
            part.iov_base = buffer.as_mut_ptr().cast();
            part.iov_len = buffer.len();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut *sender).cast();
            header.msg_hdr.msg_namelen = size_of_val(sender) as libc::socklen_t;
        }
        let count = retry(|| {
            // SAFETY: recvmmsg(2) writes to `headers`, and to the buffers and senders whose addresses and lengths are
            // in them; all of them live until this function returns. No timeout.
            check(unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    headers.as_mut_ptr(),
                    COUNT as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            })
        })?;
        let headers = headers.iter().zip(&senders).take(count as usize);
        self.received.extend(headers.map(|(header, sender)| {
            let length = header.msg_len as usize;
            match header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 || length > DATAGRAM_BYTES_MAX {
                _ if sender.nl_pid != 0 => Datagram::Foreign,
                true => Datagram::Truncated,
                false => Datagram::Whole(length),
            }
        }));
        Ok(self.received.len())
    }

    /// The kernel's datagrams among those of the last call; `None` for one that was longer than a buffer.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let buffers = self.bytes.chunks_exact(DATAGRAM_BYTES_MAX);
        self.received.iter().zip(buffers).filter_map(|(datagram, buffer)| match *datagram {
            Datagram::Whole(length) => Some(Some(&buffer[..length])),
            Datagram::Truncated => Some(None),
            Datagram::Foreign => None,
        })
    }
}

/// Datagrams per call.
const COUNT: usize = 64;

/// The kernel allocates at most a page for an answer (`NLMSG_DEFAULT_SIZE`), and no more for an event.
const DATAGRAM_BYTES_MAX: usize = 4096;
