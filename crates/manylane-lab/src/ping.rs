//! [`Pinger`]: echo requests by raw sockets, and whatever ICMP answers (RFC 792, RFC 4443).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use manylane_io::namespace::Host;
use socket2::{Domain, Protocol, Socket, Type};

use crate::content::Content;
use crate::traffic::{TrafficError, is_timeout};

/// Sends `count` echo requests with `size` bytes of data, each after the answer to the one before.
pub fn ping(
    host: &Host,
    destination: IpAddr,
    size: usize,
    count: u32,
) -> Result<PingReport, TrafficError> {
    let mut pinger = Pinger::open(host, destination)?;
    let mut report = PingReport::default();
    for _ in 0..count {
        report.add(pinger.ask(size, PATIENCE)?);
    }
    Ok(report)
}

/// What became of echo requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u64,
    /// Replies with the data that was sent.
    pub received: u64,
    /// Replies with other data.
    pub damaged: u64,
    /// Errors instead of replies, and their senders.
    pub errors: Vec<(IpAddr, IcmpError)>,
    /// The sum of all round trips.
    pub total: Duration,
    /// The fastest round trip.
    pub fastest: Option<Duration>,
}

impl PingReport {
    /// Counts the outcome of a request.
    pub fn add(&mut self, outcome: Outcome) {
        self.sent += 1;
        match outcome {
            Outcome::Reply { round_trip, is_intact: true, .. } => {
                self.received += 1;
                self.total += round_trip;
                self.fastest =
                    Some(self.fastest.map_or(round_trip, |fastest| fastest.min(round_trip)));
            }
            Outcome::Reply { .. } => self.damaged += 1,
            // A flood of errors is not worth more memory than its beginning.
            Outcome::Error { from, error } if self.errors.len() < ERRORS_MAX => {
                self.errors.push((from, error));
            }
            Outcome::Error { .. } | Outcome::Silence => {}
        }
    }

    /// The mean round trip; none without a reply.
    pub fn rtt(&self) -> Option<Duration> {
        let received = u32::try_from(self.received).ok().filter(|received| *received > 0)?;
        Some(self.total / received)
    }
}

/// What became of one echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination answered.
    Reply {
        /// From the request to the reply.
        round_trip: Duration,
        /// Whether it returned the bytes that were sent.
        is_intact: bool,
        /// The hop limit of the reply. IPv4 only: an IPv6 raw socket shows no header.
        hops_left: Option<u8>,
    },
    /// A host reported that the request did not arrive.
    Error {
        /// The sender of the error.
        from: IpAddr,
        /// Why.
        error: IcmpError,
    },
    /// No answer arrived in time.
    Silence,
}

/// What an ICMP error says, the same words for both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The hop limit (TTL) was used up on the way.
    TimeExceeded,
    /// The destination cannot be reached.
    Unreachable {
        /// ICMP's or ICMPv6's own number for the reason.
        code: u8,
    },
    /// The packet is larger than a link on the way carries.
    TooBig {
        /// What the link carries.
        mtu: u32,
    },
    /// Another error.
    Other {
        /// ICMP's or ICMPv6's own number.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// A raw ICMP socket of one host, aimed at one destination.
pub struct Pinger {
    /// The standard library's receive tells the sender and needs no uninitialised memory. The type
    /// works with any kind of socket.
    socket: UdpSocket,
    destination: IpAddr,
    identifier: u16,
    sequence: u16,
    buffer: Vec<u8>,
}

impl Pinger {
    /// Opens a socket on `host`.
    pub fn open(host: &Host, destination: IpAddr) -> Result<Pinger, TrafficError> {
        let socket = host
            .run(move || raw_socket(destination))
            .map_err(|source| TrafficError::new("open a raw ICMP socket", source))?;
        let buffer = vec![0; DATAGRAM_MAX];
        let identifier = next_identifier();
        Ok(Pinger { socket: socket.into(), destination, identifier, sequence: 0, buffer })
    }

    /// Sets the hop limit (TTL) of requests.
    pub fn set_hops(&mut self, hops: u8) -> Result<(), TrafficError> {
        let socket = socket2::SockRef::from(&self.socket);
        let set = match self.destination {
            IpAddr::V4(_) => socket.set_ttl_v4(hops.into()),
            IpAddr::V6(_) => socket.set_unicast_hops_v6(hops.into()),
        };
        set.map_err(|source| TrafficError::new("set the hop limit", source))
    }

    /// Sends a request with `size` bytes of data and waits for what comes of it, at most `patience`.
    pub fn ask(&mut self, size: usize, patience: Duration) -> Result<Outcome, TrafficError> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = self.request(size);
        let begun = Instant::now();
        // The port of a raw socket's address is no port; zero is always right (raw(7)).
        let to = SocketAddr::new(self.destination, 0);
        self.socket.send_to(&request, to).map_err(|source| {
            TrafficError::new(format!("send {size} bytes to {}", self.destination), source)
        })?;
        let fail = |source| TrafficError::new("receive ICMP", source);
        loop {
            let Some(left) = patience.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
            else {
                return Ok(Outcome::Silence);
            };
            self.socket.set_read_timeout(Some(left)).map_err(fail)?;
            let (length, from) = match self.socket.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if is_timeout(&error) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(fail(error)),
            };
            let answer = self.read(&self.buffer[..length], &request, from.ip());
            if let Some(mut outcome) = answer {
                if let Outcome::Reply { round_trip, .. } = &mut outcome {
                    *round_trip = begun.elapsed();
                }
                return Ok(outcome);
            }
        }
    }

    fn request(&self, size: usize) -> Vec<u8> {
        let mut request = vec![0; HEADER_LEN + size];
        request[0] = self.words().request;
        request[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        request[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        let seed = u64::from(self.identifier) << 16 | u64::from(self.sequence);
        Content::new(seed).fill(&mut request[HEADER_LEN..]);
        // ICMPv6's sum includes addresses: the kernel makes it (RFC 3542 §3.1).
        if self.destination.is_ipv4() {
            let sum = checksum(&request);
            request[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        request
    }

    /// What a received message says of `request`; nothing, if it is about something else.
    fn read(&self, message: &[u8], request: &[u8], from: IpAddr) -> Option<Outcome> {
        let (message, hops_left) = match self.destination {
            // Raw IPv4 sockets receive the IP header, IPv6 ones do not.
            IpAddr::V4(_) => (message.get(ipv4_header_len(message)?..)?, message.get(8).copied()),
            IpAddr::V6(_) => (message, None),
        };
        let (kind, code) = (*message.first()?, *message.get(1)?);
        let words = self.words();
        if kind == words.reply {
            let is_ours = from == self.destination && message.get(4..8)? == &request[4..8];
            return is_ours.then(|| Outcome::Reply {
                round_trip: Duration::ZERO,
                is_intact: message[HEADER_LEN..] == request[HEADER_LEN..],
                hops_left,
            });
        }
        let error = self.error(kind, code, message)?;
        let quoted = message.get(HEADER_LEN..)?;
        let quoted = match self.destination {
            IpAddr::V4(_) => quoted.get(ipv4_header_len(quoted)?..)?,
            IpAddr::V6(_) => after_ipv6_header(quoted)?,
        };
        let is_ours = quoted.first() == Some(&words.request) && quoted.get(4..8)? == &request[4..8];
        is_ours.then_some(Outcome::Error { from, error })
    }

    fn error(&self, kind: u8, code: u8, message: &[u8]) -> Option<IcmpError> {
        let word = u32::from_be_bytes(*message.get(4..8)?.first_chunk()?);
        let other = IcmpError::Other { kind, code };
        Some(match (self.destination, kind, code) {
            // RFC 1191 §4: the lower half is the next hop's MTU.
            (IpAddr::V4(_), 3, 4) => IcmpError::TooBig { mtu: word & 0xffff },
            (IpAddr::V4(_), 3, _) => IcmpError::Unreachable { code },
            (IpAddr::V4(_), 11, 0) => IcmpError::TimeExceeded,
            (IpAddr::V4(_), 4 | 5 | 11 | 12, _) => other,
            (IpAddr::V6(_), 1, _) => IcmpError::Unreachable { code },
            (IpAddr::V6(_), 2, _) => IcmpError::TooBig { mtu: word },
            (IpAddr::V6(_), 3, 0) => IcmpError::TimeExceeded,
            (IpAddr::V6(_), 3..128, _) => other, // RFC 4443 §2.1: errors are below 128.
            _ => return None,
        })
    }

    fn words(&self) -> Words {
        match self.destination {
            IpAddr::V4(_) => Words { request: 8, reply: 0 },
            IpAddr::V6(_) => Words { request: 128, reply: 129 },
        }
    }
}

/// ICMP's or ICMPv6's numbers for the two messages of a ping.
struct Words {
    request: u8,
    reply: u8,
}

/// Every pinger of a host sees all answers: by their numbers they know their own.
fn next_identifier() -> u16 {
    static LAST: Mutex<u16> = Mutex::new(0);
    let mut last = LAST.lock().expect("nobody panics with the lock");
    *last = last.wrapping_add(1);
    *last
}

fn raw_socket(destination: IpAddr) -> io::Result<Socket> {
    let (domain, protocol) = match destination {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn ipv4_header_len(packet: &[u8]) -> Option<usize> {
    Some(usize::from(packet.first()? & 0xf) * 4)
}

/// What follows the IPv6 header and, of a first fragment, the fragment header (RFC 8200 §4.5).
fn after_ipv6_header(packet: &[u8]) -> Option<&[u8]> {
    const FRAGMENT: u8 = 44;
    let start = if *packet.get(6)? == FRAGMENT { 48 } else { 40 };
    packet.get(start..)
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |two: &[u8]| u64::from(two[0]) << 8 | u64::from(*two.get(1).unwrap_or(&0));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An answer within one machine takes less than a millisecond; a busy one may make it wait.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// ICMP header, identifier and sequence number.
const HEADER_LEN: usize = 8;
const DATAGRAM_MAX: usize = 65_535;
const ERRORS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of a message with its sum is zero (RFC 1071 §1).
    #[test]
    fn a_message_with_its_checksum_sums_to_zero() {
        for length in [8, 9, 1480] {
            let mut message = vec![0; length];
            Content::new(length as u64).fill(&mut message);
            message[2..4].fill(0);
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(checksum(&message), 0, "{length} bytes");
        }
    }

    #[test]
    fn a_report_counts_only_intact_replies() {
        let mut report = PingReport::default();
        let reply = |is_intact| Outcome::Reply {
            round_trip: Duration::from_micros(10),
            is_intact,
            hops_left: None,
        };
        report.add(reply(true));
        report.add(reply(false));
        report.add(Outcome::Silence);
        assert_eq!((report.sent, report.received, report.damaged), (3, 1, 1));
        assert_eq!(report.rtt(), Some(Duration::from_micros(10)));
        assert_eq!(report.fastest, report.rtt());
        assert_eq!(PingReport::default().rtt(), None);
    }
}
