//! Connections without packets: made and deleted in the calling thread's network namespace, as conntrack(8) does it.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use manylane_io::netlink::conntrack::{Connection, Conntrack, Tuple};

/// A connection to make.
#[derive(Clone, Copy)]
pub struct Made {
    pub original: Tuple,
    pub reply: Tuple,
    pub status: u32,
    pub timeout: u32,
    pub mark: u32,
    pub zone: u16,
    /// The state of a TCP connection.
    pub state: u8,
}

/// A connection of this machine's documentation networks; those with other numbers have other tuples.
pub fn made(protocol: i32, is_v6: bool, number: u16) -> Made {
    let address = |last| match is_v6 {
        false => IpAddr::from([198, 51, 100, last]),
        true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)]),
    };
    let original = Tuple {
        source: address(1),
        destination: address(2),
        source_port: number,
        destination_port: 80,
        protocol: protocol as u8,
    };
    Made {
        original,
        reply: turned(original),
        status: 2 | 4 | 8, // Answered, assured, confirmed.
        timeout: 1000,
        mark: 0,
        zone: 0,
        state: 3,
    }
}

/// The way back.
pub fn turned(tuple: Tuple) -> Tuple {
    Tuple {
        source: tuple.destination,
        destination: tuple.source,
        source_port: tuple.destination_port,
        destination_port: tuple.source_port,
        protocol: tuple.protocol,
    }
}

/// A socket for the requests.
pub struct Maker(OwnedFd);

impl Maker {
    pub fn open() -> Maker {
        // SAFETY: socket(2) takes no pointer; the kernel just made the descriptor, so nothing else owns it.
        let fd = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let fd = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(fd)
        };
        Maker(fd)
    }

    pub fn make(&self, one: &Made) {
        self.try_make(one, &[]).expect("it is new");
    }

    /// With more attributes, which not every kernel has.
    pub fn try_make(&self, one: &Made, more: &[Vec<u8>]) -> io::Result<()> {
        let mut body = tuple(CTA_TUPLE_ORIG, &one.original);
        body.extend(tuple(CTA_TUPLE_REPLY, &one.reply));
        body.extend(attribute(CTA_STATUS, &one.status.to_be_bytes()));
        body.extend(attribute(CTA_TIMEOUT, &one.timeout.to_be_bytes()));
        body.extend(attribute(CTA_MARK, &one.mark.to_be_bytes()));
        if one.zone != 0 {
            body.extend(attribute(CTA_ZONE, &one.zone.to_be_bytes()));
        }
        if i32::from(one.original.protocol) == libc::IPPROTO_TCP {
            let tcp = [attribute(1, &[one.state]), attribute(4, &[0, 0]), attribute(5, &[0, 0])];
            body.extend(attribute(CTA_PROTOINFO, &attribute(1, &tcp.concat())));
        }
        body.extend(more.concat());
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        self.request(IPCTNL_MSG_CT_NEW, flags, &one.original, &body)
    }

    pub fn mark(&self, of: &Tuple, mark: u32) {
        let body = [tuple(CTA_TUPLE_ORIG, of), attribute(CTA_MARK, &mark.to_be_bytes())].concat();
        self.request(IPCTNL_MSG_CT_NEW, 0, of, &body).expect("it is there");
    }

    pub fn delete(&self, of: &Tuple) {
        self.request(IPCTNL_MSG_CT_DELETE, 0, of, &tuple(CTA_TUPLE_ORIG, of)).expect("it is there");
    }

    fn request(&self, message: u16, flags: i32, of: &Tuple, body: &[u8]) -> io::Result<()> {
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags;
        let family = if of.source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut bytes = (20 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend((1 << 8 | message).to_ne_bytes());
        bytes.extend((flags as u16).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend([family as u8, 0, 0, 0]);
        bytes.extend(body);
        let mut answer = [0; 4096];
        // SAFETY: send(2) reads the bytes; recv(2) writes at most the answer's length.
        let received = unsafe {
            let sent = libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0);
            assert_eq!(sent, bytes.len() as isize, "{}", io::Error::last_os_error());
            libc::recv(self.0.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
        };
        assert!(received >= 20, "{received} bytes");
        match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

/// All but the seconds that are left, which pass.
pub fn timeless(connection: Connection) -> Connection {
    Connection { timeout: None, ..connection }
}

/// Looks one connection up.
pub fn one(conntrack: &mut Conntrack, tuple: Tuple) -> Option<Connection> {
    conntrack.get(&[tuple]).expect("root may")[0]
}

/// Everything that the kernel tells of connections, without a filter.
pub struct Ear(OwnedFd);

/// An event: its message type, `NLM_F_CREATE` for a new connection, and its mark if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    pub message: u16,
    pub is_new: bool,
    pub mark: Option<u32>,
}

impl Ear {
    pub fn open() -> Ear {
        let Maker(fd) = Maker::open();
        // SAFETY: a `sockaddr_nl` is numbers, for which zeroes are a value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = 1 | 2 | 4; // New, update, destroy.
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: bind(2) reads `length` bytes of `address`.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        Ear(fd)
    }

    /// What is pending.
    pub fn heard(&self) -> Vec<Heard> {
        let mut heard = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            // SAFETY: recv(2) writes at most the buffer's length.
            let length = unsafe {
                let (to, size) = (bytes.as_mut_ptr().cast(), bytes.len());
                libc::recv(self.0.as_raw_fd(), to, size, libc::MSG_DONTWAIT)
            };
            let Ok(length) = usize::try_from(length) else { return heard };
            let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
            let mut event = Heard {
                message: half(4) & 0xff,
                is_new: i32::from(half(6)) & libc::NLM_F_CREATE != 0,
                mark: None,
            };
            let mut at = 20;
            while at < length {
                if half(at + 2) & 0x3fff == CTA_MARK {
                    let mark = bytes[at + 4..at + 8].first_chunk().expect("four bytes");
                    event.mark = Some(u32::from_be_bytes(*mark));
                }
                at += usize::from(half(at)).next_multiple_of(4);
            }
            heard.push(event);
        }
    }
}

/// A tuple as an attribute.
pub fn tuple(kind: u16, tuple: &Tuple) -> Vec<u8> {
    let addresses = match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            [attribute(1, &source.octets()), attribute(2, &destination.octets())]
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            [attribute(3, &source.octets()), attribute(4, &destination.octets())]
        }
        other => panic!("{other:?}"),
    };
    let ports = [
        attribute(1, &[tuple.protocol]),
        attribute(2, &tuple.source_port.to_be_bytes()),
        attribute(3, &tuple.destination_port.to_be_bytes()),
    ];
    attribute(kind, &[attribute(1, &addresses.concat()), attribute(2, &ports.concat())].concat())
}

/// An attribute; its payload may be attributes.
pub fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + payload.len() as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub const IPCTNL_MSG_CT_NEW: u16 = 0;
pub const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_TIMEOUT: u16 = 7;
const CTA_MARK: u16 = 8;
const CTA_ZONE: u16 = 18;
