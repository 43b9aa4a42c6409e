//! What a frame says, field by field.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::generate::{ICMP, ICMPV6, checksum};
use super::{link, plan};

/// A field of a frame and its bytes.
pub type Field = (&'static str, Vec<u8>);

/// All fields of a frame that two routers have to agree on. What is each router's own choice is left out:
/// the identification of packets that it makes (RFC 6864 §4.1). Of a checksum, whether it is right.
pub fn fields(frame: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut rest = Rest { bytes: frame, fields: &mut fields };
    rest.take("link destination", 6);
    rest.take("link source", 6);
    rest.take("EtherType", 2);
    let packet = rest.bytes;
    match Ip::of(frame) {
        Some(Ip::V4(header)) => {
            let is_own = plan::is_routers(header.source.into());
            rest.take("version and header length", 1);
            rest.take("type of service", 1);
            rest.take("total length", 2);
            match is_own {
                true => rest.skip(2),
                false => rest.take("identification", 2),
            }
            rest.take("flags and fragment offset", 2);
            rest.take("TTL", 1);
            rest.take("protocol", 1);
            let is_right = checksum(&[&packet[..header.len]]) == 0;
            rest.take_sum("header checksum", is_right);
            rest.take("source", 4);
            rest.take("destination", 4);
            rest.take("options", header.len - 20);
            if header.protocol == ICMP && header.offset == 0 {
                let message = rest.bytes;
                rest.icmp(checksum(&[message]) == 0);
            }
        }
        Some(Ip::V6(header)) => {
            rest.take("version, class and label", 4);
            rest.take("payload length", 2);
            rest.take("next header", 1);
            rest.take("hop limit", 1);
            rest.take("source", 16);
            rest.take("destination", 16);
            if header.next == ICMPV6 {
                rest.icmp(packet.len() >= 44 && is_icmpv6_right(packet));
            }
        }
        None => {}
    }
    let len = rest.bytes.len();
    rest.take("payload", len);
    fields
}

/// What a checksum that is right says; shorter than one.
const RIGHT: &[u8] = &[1];

/// Whether the checksum of an ICMPv6 message behind the fixed header is right.
fn is_icmpv6_right(packet: &[u8]) -> bool {
    let len = ((packet.len() - 40) as u32).to_be_bytes();
    checksum(&[&packet[8..40], &len, &[0, 0, 0, ICMPV6], &packet[40..]]) == 0
}

struct Rest<'a> {
    bytes: &'a [u8],
    fields: &'a mut Vec<Field>,
}

impl Rest<'_> {
    fn take(&mut self, name: &'static str, len: usize) {
        let (field, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.fields.push((name, field.to_vec()));
        self.bytes = rest;
    }

    fn skip(&mut self, len: usize) {
        self.bytes = &self.bytes[len.min(self.bytes.len())..];
    }

    /// A checksum: which it is follows from the other fields, if it is right.
    fn take_sum(&mut self, name: &'static str, is_right: bool) {
        match is_right {
            true => {
                self.fields.push((name, RIGHT.to_vec()));
                self.skip(2);
            }
            false => self.take(name, 2),
        }
    }

    fn icmp(&mut self, is_right: bool) {
        self.take("ICMP type", 1);
        self.take("ICMP code", 1);
        self.take_sum("ICMP checksum", is_right);
        self.take("ICMP word", 4);
    }
}

/// The header of an IP packet, as far as rules read it.
#[derive(Clone, Copy, Debug)]
pub enum Ip {
    V4(V4),
    V6(V6),
}

#[derive(Clone, Copy, Debug)]
pub struct V4 {
    /// Header length.
    pub len: usize,
    /// In units of eight bytes.
    pub offset: u16,
    pub more: bool,
    pub dont_fragment: bool,
    pub ttl: u8,
    pub protocol: u8,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
}

#[derive(Clone, Copy, Debug)]
pub struct V6 {
    pub next: u8,
    pub hop_limit: u8,
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
}

impl Ip {
    /// The IP packet in a frame, if the frame has a whole header of the version that Ethernet says.
    pub fn of(frame: &[u8]) -> Option<Ip> {
        let ether_type = u16::from_be_bytes(frame.get(12..14)?.try_into().ok()?);
        let packet = &frame[14..];
        match ether_type {
            link::IPV4 => V4::of(packet).map(Ip::V4),
            link::IPV6 => V6::of(packet).map(Ip::V6),
            _ => None,
        }
    }

    pub fn source(self) -> IpAddr {
        match self {
            Ip::V4(header) => header.source.into(),
            Ip::V6(header) => header.source.into(),
        }
    }

    pub fn destination(self) -> IpAddr {
        match self {
            Ip::V4(header) => header.destination.into(),
            Ip::V6(header) => header.destination.into(),
        }
    }
}

impl V4 {
    pub fn of(packet: &[u8]) -> Option<V4> {
        let header: &[u8; 20] = packet.first_chunk()?;
        let len = usize::from(header[0] & 0xf) * 4;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let octets = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let is_whole = header[0] >> 4 == 4 && len >= 20 && packet.len() >= len;
        is_whole.then(|| V4 {
            len,
            offset: word(6) & 0x1fff,
            more: word(6) & 0x2000 != 0,
            dont_fragment: word(6) & 0x4000 != 0,
            ttl: header[8],
            protocol: header[9],
            source: octets(12).into(),
            destination: octets(16).into(),
        })
    }
}

impl V6 {
    pub fn of(packet: &[u8]) -> Option<V6> {
        let header: &[u8; 40] = packet.first_chunk()?;
        let address = |at: usize| <[u8; 16]>::try_from(&header[at..at + 16]).expect("16 bytes");
        (header[0] >> 4 == 6).then(|| V6 {
            next: header[6],
            hop_limit: header[7],
            source: address(8).into(),
            destination: address(24).into(),
        })
    }
}

/// A message of ICMP in a frame, of either version, right behind the IP header: type, code, second word.
pub fn icmp(frame: &[u8]) -> Option<(u8, u8, u32)> {
    let message = match Ip::of(frame)? {
        Ip::V4(header) if header.protocol == ICMP && header.offset == 0 => {
            frame.get(14 + header.len..)?
        }
        Ip::V6(header) if header.next == ICMPV6 => frame.get(54..)?,
        _ => return None,
    };
    let [kind, code, _, _, word @ ..] = *message.first_chunk::<8>()?;
    Some((kind, code, u32::from_be_bytes(word)))
}

/// The packet that an error quotes, behind the first 14 bytes of the error's frame.
fn quoted(frame: &[u8]) -> Option<Vec<u8>> {
    let (kind, ..) = icmp(frame)?;
    let at = match Ip::of(frame)? {
        Ip::V4(header) if matches!(kind, 3 | 11 | 12) => 14 + header.len + 8,
        Ip::V6(_) if matches!(kind, 1..=4) => 62,
        _ => return None,
    };
    Some([&frame[..14], frame.get(at..)?].concat())
}

/// A frame in a line, for the reader of a failure.
pub struct InShort<'a>(pub &'a [u8]);

impl fmt::Display for InShort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.len();
        match Ip::of(self.0) {
            Some(Ip::V4(header)) => {
                let V4 { source, destination, ttl, protocol, .. } = header;
                write!(f, "{source} > {destination} TTL {ttl} protocol {protocol}")?;
                if header.len > 20 {
                    write!(f, " options {}", Hex(&self.0[34..14 + header.len]))?;
                }
                if header.more || header.offset > 0 {
                    let more = if header.more { "+" } else { "" };
                    write!(f, " fragment {}{more}", header.offset)?;
                }
                if header.dont_fragment {
                    f.write_str(" DF")?;
                }
            }
            Some(Ip::V6(header)) => {
                let V6 { source, destination, hop_limit, next, .. } = header;
                write!(f, "{source} > {destination} hops {hop_limit} next {next}")?;
                if matches!(next, 0 | 43 | 44 | 51 | 60) {
                    write!(f, " {}", Hex(&self.0[54..len.min(54 + 40)]))?;
                }
            }
            None => write!(f, "{}", Hex(&self.0[..len.min(60)]))?,
        }
        if let Some((kind, code, word)) = icmp(self.0) {
            write!(f, " ICMP {kind}/{code} word {word:08x}")?;
            if let Some(quoted) = quoted(self.0) {
                write!(f, " about {}", InShort(&quoted))?;
            }
        }
        write!(f, ", {len} bytes")
    }
}

/// Bytes in hexadecimal.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The frames that left by a link, in lines.
pub fn list(frames: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for frame in frames {
        write!(text, "\n      {}", InShort(frame)).expect("a string takes everything");
    }
    if frames.is_empty() { "\n      nothing".into() } else { text }
}
