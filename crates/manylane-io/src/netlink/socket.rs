//! One netlink request at a time: send it, read until its answer is complete.
//!
//! Strict checking is on (the kernel refuses what it would otherwise ignore), and so are extended
//! acknowledgements: a refusal carries the kernel's explanation, if it has one.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use netlink_bindings::builtin::NlmsgerrAttrs;
use netlink_bindings::nlctrl;
use netlink_bindings::traits::{NetlinkRequest, Protocol};

use crate::syscall::{check, check_length, retry};

/// A socket to one of the kernel's subsystems, bound to the network namespace of the thread that opened it.
pub struct Socket {
    fd: OwnedFd,
    /// The kernel's number of the generic netlink family that the socket is for.
    family: Option<u16>,
    sequence: u32,
    buffer: Box<[u8]>,
}

/// A request that the kernel refused.
#[derive(Debug)]
pub struct Refusal {
    /// The kernel's explanation, if it sent one.
    pub explanation: Option<String>,
    /// The error number.
    pub source: io::Error,
}

impl From<io::Error> for Refusal {
    fn from(source: io::Error) -> Refusal {
        Refusal { explanation: None, source }
    }
}

impl Socket {
    /// Opens a route socket in the calling thread's network namespace.
    pub fn open() -> io::Result<Socket> {
        Socket::open_protocol(libc::NETLINK_ROUTE)
    }

    /// Opens a generic netlink socket there, for requests of this family (Documentation/userspace-api/netlink/
    /// intro.rst): the family's number differs between kernels, and is looked up.
    pub fn open_generic(family: &CStr) -> Result<Socket, Refusal> {
        let mut socket = Socket::open_protocol(libc::NETLINK_GENERIC)?;
        let mut request = nlctrl::Request::new().op_getfamily_do();
        request.encode().push_family_name(family);
        socket.family = Some(socket.query(&request, |reply| reply.get_family_id().ok())?);
        Ok(socket)
    }

    pub(super) fn open_protocol(protocol: libc::c_int) -> io::Result<Socket> {
        let fd = open_descriptor(protocol)?;
        for option in [
            libc::NETLINK_EXT_ACK,
            libc::NETLINK_GET_STRICT_CHK,
            libc::NETLINK_CAP_ACK, // Do not repeat the request in an error.
        ] {
            set_option(fd.as_fd(), libc::SOL_NETLINK, option, 1)?;
        }
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Ok(Socket { fd, family: None, sequence: 0, buffer })
    }

    /// Sends `request` and waits until the kernel has executed it.
    pub fn acknowledge<R: NetlinkRequest>(&mut self, request: &R) -> Result<(), Refusal> {
        self.send(request, libc::NLM_F_ACK)?;
        self.replies(|_| ()).map(|_interrupted| ())
    }

    /// Sends `request`, waits until the kernel has executed it, and returns what `pick` extracted from the reply.
    pub fn query<R: NetlinkRequest, T>(
        &mut self,
        request: &R,
        mut pick: impl FnMut(R::ReplyType<'_>) -> Option<T>,
    ) -> Result<T, Refusal> {
        self.send(request, libc::NLM_F_ACK)?;
        let mut found = None;
        self.replies(|payload| found = pick(R::decode_reply(payload)))?;
        found.ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the kernel sent no such reply").into()
        })
    }

    /// Sends `request` and collects what `pick` extracts from each reply.
    pub fn dump<R: NetlinkRequest, T>(
        &mut self,
        request: &R,
        mut pick: impl FnMut(R::ReplyType<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Refusal> {
        for _ in 0..DUMP_TRIES_MAX {
            let mut found = Vec::new();
            if !self.walk(request, |reply| found.extend(pick(reply)))? {
                return Ok(found);
            }
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "the table changes too fast to read").into())
    }

    /// Sends `request` and passes each reply to `each`, once. True when the table changed during the dump, so that
    /// the replies may be inconsistent.
    pub fn walk<R: NetlinkRequest>(
        &mut self,
        request: &R,
        mut each: impl FnMut(R::ReplyType<'_>),
    ) -> Result<bool, Refusal> {
        self.send(request, 0)?;
        self.replies(|payload| each(R::decode_reply(payload)))
    }

    /// As [`walk`](Socket::walk), until `each` has enough. Then the rest of the list waits in the socket: it can serve no
    /// other request, and is to be closed.
    pub fn walk_until<R: NetlinkRequest>(
        mut self,
        request: &R,
        mut each: impl FnMut(R::ReplyType<'_>) -> ControlFlow<()>,
    ) -> Result<(), Refusal> {
        self.send(request, 0)?;
        self.replies_until(|payload| each(R::decode_reply(payload))).map(|_| ())
    }

    /// The sequence number for one more request.
    pub(super) fn take_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// The sequence number of the last request.
    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Sends several requests at once and waits for the answer to the one numbered `last`, the only one with an
    /// acknowledgement flag; `refused` is called for each earlier request that the kernel refused.
    pub(super) fn exchange(
        &mut self,
        requests: &[u8],
        last: u32,
        mut refused: impl FnMut(u32, Refusal),
    ) -> io::Result<()> {
        self.send_bytes(requests)?;
        loop {
            let received = self.receive()?;
            for message in messages(&self.buffer[..received]) {
                if message.kind != libc::NLMSG_ERROR {
                    continue;
                }
                if let Err(refusal) = outcome(&message) {
                    refused(message.sequence, refusal);
                }
                if message.sequence == last {
                    return Ok(());
                }
            }
        }
    }

    fn send<R: NetlinkRequest>(&mut self, request: &R, flags: i32) -> io::Result<()> {
        let request_type = match (request.protocol(), self.family) {
            (Protocol::Raw { request_type, .. }, _) => request_type,
            (Protocol::Generic(_), Some(family)) => family,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "another socket's request",
                ));
            }
        };
        let sequence = self.take_sequence();
        let payload = request.payload();
        let mut message = Vec::with_capacity(HEADER_BYTES + payload.len());
        message.extend(((HEADER_BYTES + payload.len()) as u32).to_ne_bytes());
        message.extend(request_type.to_ne_bytes());
        message.extend((request.flags() | (libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        message.extend(sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes()); // Port 0: to the kernel.
        message.extend(payload);
        self.send_bytes(&message)
    }

    pub(super) fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        retry(|| {
            // SAFETY: send(2) reads the bytes. An unconnected netlink socket sends to the kernel.
            let sent =
                unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
            check_length(sent)
        })?;
        Ok(())
    }

    /// Passes the payload of each reply to `each`, until the last. True when the table changed during the dump, so that
    /// the replies may be inconsistent.
    fn replies(&mut self, mut each: impl FnMut(&[u8])) -> Result<bool, Refusal> {
        self.replies_until(|payload| {
            each(payload);
            ControlFlow::Continue(())
        })
    }

    fn replies_until(
        &mut self,
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<bool, Refusal> {
        let mut interrupted = false;
        loop {
            let received = self.receive()?;
            for message in messages(&self.buffer[..received]) {
                if message.sequence != self.sequence {
                    continue; // The rest of an abandoned exchange.
                }
                interrupted |= message.flags & libc::NLM_F_DUMP_INTR != 0;
                match message.kind {
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                        return outcome(&message).map(|()| interrupted);
                    }
                    _ if each(message.payload).is_break() => return Ok(interrupted),
                    _ => {}
                }
            }
        }
    }

    fn receive(&mut self) -> io::Result<usize> {
        retry(|| {
            // SAFETY: recv(2) writes at most the buffer's length. MSG_TRUNC makes it return the
            // datagram's real length.
            let received = unsafe {
                libc::recv(
                    self.fd.as_raw_fd(),
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                    libc::MSG_TRUNC,
                )
            };
            match check_length(received)? {
                length if length <= self.buffer.len() => Ok(length),
                length => Err(io::Error::other(format!("a netlink message of {length} bytes"))),
            }
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The kernel's number of a multicast group of a generic netlink family.
pub(super) fn generic_group(family: &CStr, group: &CStr) -> Result<u32, Refusal> {
    let mut socket = Socket::open_protocol(libc::NETLINK_GENERIC)?;
    let mut request = nlctrl::Request::new().op_getfamily_do();
    request.encode().push_family_name(family);
    socket.query(&request, |reply| {
        reply.get_mcast_groups().ok()?.find_map(|one| {
            let is_it = one.get_name().ok()? == group;
            is_it.then(|| one.get_id().ok()).flatten()
        })
    })
}

/// A netlink socket of the calling thread's network namespace.
pub(super) fn open_descriptor(protocol: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes no pointer.
    let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })?;
    // SAFETY: the kernel just made this descriptor for us, so no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets the kernel assign the socket a port number, and returns it. The kernel sends no notifications to a socket
/// without one (`do_one_broadcast`).
pub(super) fn bind(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: a `sockaddr_nl` is numbers, for which zeroes are a value.
    let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    let mut length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: bind(2) reads `length` bytes of `address`.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: getsockname(2) writes at most `length` bytes to `address`.
    check(unsafe {
        libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut length)
    })?;
    Ok(address.nl_pid)
}

/// Sets a numeric socket option.
pub(super) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: setsockopt(2) reads the 4 bytes of `value`.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// One message of a datagram.
pub(super) struct Message<'b> {
    /// The message type (`RTM_*`, `NLMSG_*`).
    pub(super) kind: i32,
    /// `NLM_F_*`.
    pub(super) flags: i32,
    /// The number of the request that it answers.
    pub(super) sequence: u32,
    /// The bytes behind the header.
    pub(super) payload: &'b [u8],
}

/// The messages of a datagram (netlink(7), `struct nlmsghdr`); a malformed one ends the iteration.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let payload = bytes.get(HEADER_BYTES..length)?;
        let message = Message {
            kind: i32::from(u16_at(bytes, 4)?),
            flags: i32::from(u16_at(bytes, 6)?),
            sequence: u32_at(bytes, 8)?,
            payload,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// Decodes NLMSG_ERROR or NLMSG_DONE: an error number, 0 for success, and maybe an explanation.
pub(super) fn outcome(message: &Message<'_>) -> Result<(), Refusal> {
    let errno = u32_at(message.payload, 0).unwrap_or(0) as i32;
    if errno == 0 {
        return Ok(());
    }
    let mut attributes = None;
    if message.flags & libc::NLM_F_ACK_TLVS != 0 {
        // An NLMSG_ERROR repeats the request's header before the attributes (NETLINK_CAP_ACK).
        let before = if message.kind == libc::NLMSG_ERROR { 4 + HEADER_BYTES } else { 4 };
        attributes = message.payload.get(before..);
    }
    let explanation = attributes
        .and_then(|bytes| NlmsgerrAttrs::new(bytes).get_msg().ok())
        .map(|text| text.to_string_lossy().into_owned());
    Err(Refusal { explanation, source: io::Error::from_raw_os_error(-errno) })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// `struct nlmsghdr`.
pub(super) const HEADER_BYTES: usize = mem::size_of::<libc::nlmsghdr>();

/// The kernel fills at most 32 KiB per datagram of a dump (`netlink_dump`).
const BUFFER_BYTES: usize = 64 << 10;

/// A table that changes during five dumps in a row is unlikely to become stable.
const DUMP_TRIES_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_carries_the_kernels_sentence() {
        let text = b"Invalid address\0";
        let mut payload = (-libc::EINVAL).to_ne_bytes().to_vec();
        payload.extend([0; HEADER_BYTES]); // The header of the request.
        payload.extend((4 + text.len() as u16).to_ne_bytes());
        payload.extend(1u16.to_ne_bytes()); // NLMSGERR_ATTR_MSG
        payload.extend(text);
        let flags = libc::NLM_F_ACK_TLVS;
        let message = Message { kind: libc::NLMSG_ERROR, flags, sequence: 1, payload: &payload };
        let refusal = outcome(&message).expect_err("the number is not 0");
        assert_eq!(refusal.explanation.as_deref(), Some("Invalid address"));
        assert_eq!(refusal.source.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_length_that_lies_ends_the_datagram() {
        let mut bytes = 17u32.to_ne_bytes().to_vec();
        bytes.extend([0; 12]);
        assert_eq!(messages(&bytes).count(), 0, "17 bytes announced, 16 there");
        bytes[0] = 3;
        assert_eq!(messages(&bytes).count(), 0, "shorter than its header");
        bytes[0] = 16;
        assert_eq!(messages(&bytes).count(), 1);
    }
}
