//! IPv6: header, extension headers, and addresses that have no business in a header.
//!
//! Before changing the walk read RFC 8200 §4 (extension headers) and RFC 7045 (what a forwarder may
//! do about them); before changing a martian, RFC 4291 §2.5 and §2.7.

mod objection;

use std::net::Ipv6Addr;

use super::ip::{Fragment, Transport};
use super::{be16, protocol};

pub use objection::Objection;

/// The fixed header.
pub const HEADER_LEN: usize = 40;

/// Extension headers we walk over before we call it nonsense.
///
/// RFC 8200 §4.1 has each at most once and destination options twice, which makes six with the
/// authentication header. Two to spare; a bound at all, because each costs the worker time.
pub const EXTENSION_HEADERS_MAX: usize = 8;

/// Destination options we look through for the one that changes an address (RFC 8504 §5.3 lets even
/// a host stop at eight).
const DESTINATION_OPTIONS_MAX: usize = 16;

/// A checked packet: version 6, and the payload length fits the bytes (RFC 8200 §3).
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
    packet: &'a [u8],
}

/// Where the extension headers lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// To this. A protocol we do not know ends the chain too, also if it is an extension header, and so do
    /// hop-by-hop options elsewhere than in front, which are none (RFC 8200 §4).
    Transport(Transport),
    /// Out of the packet.
    Malformed,
    /// The packet has more than [`EXTENSION_HEADERS_MAX`].
    TooMany,
}

impl Chain {
    /// The transport, if the chain leads there.
    #[inline]
    pub fn transport(self) -> Option<Transport> {
        match self {
            Chain::Transport(transport) => Some(transport),
            Chain::Malformed | Chain::TooMany => None,
        }
    }
}

impl<'a> View<'a> {
    /// The packet in `bytes`, cut to its payload length. A packet that [lacks a length](View::lacks_length) is one
    /// without payload here.
    #[inline]
    pub fn checked(bytes: &'a [u8]) -> Option<View<'a>> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let end = HEADER_LEN + usize::from(be16(header[4], header[5]));
        View::cut(header, bytes.get(..end)?)
    }

    /// As [`View::checked`], for a packet of up to `len` bytes whose front is in `bytes`: what the header
    /// counts must be there, and the views of it end where the bytes do.
    #[inline]
    pub fn front(bytes: &'a [u8], len: usize) -> Option<View<'a>> {
        View::quoted(bytes).filter(|view| HEADER_LEN + usize::from(view.payload_len()) <= len)
    }

    /// As [`View::checked`], for a packet quoted in an ICMP error: its end may be missing. A packet that [lacks a
    /// length](View::lacks_length) ends where `bytes` do.
    #[inline]
    pub fn quoted(bytes: &'a [u8]) -> Option<View<'a>> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let end = HEADER_LEN + usize::from(be16(header[4], header[5]));
        let end = if lacks_length(header) { bytes.len() } else { end };
        View::cut(header, bytes.get(..end).unwrap_or(bytes))
    }

    #[inline]
    fn cut(header: &'a [u8; HEADER_LEN], packet: &'a [u8]) -> Option<View<'a>> {
        let payload = packet.get(HEADER_LEN..)?;
        (header[0] >> 4 == 6).then_some(View { header, payload, packet })
    }

    /// The whole packet, without what stood behind it.
    #[inline]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.header[0] << 4 | self.header[1] >> 4
    }

    /// The flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.header[1] & 0x0f, self.header[2], self.header[3]])
    }

    /// The payload length as the header says, extension headers included.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        be16(self.header[4], self.header[5])
    }

    /// Whether the header counts no payload although hop-by-hop options follow: a jumbogram, whose length is in
    /// one of them, or a packet of no length at all (RFC 2675 §3).
    #[inline]
    pub fn lacks_length(&self) -> bool {
        lacks_length(self.header)
    }

    /// What follows the fixed header ([`super::protocol`]); not yet the transport.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.header[6]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// The sender.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        address(self.header, 8)
    }

    /// The receiver.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        address(self.header, 24)
    }

    /// What follows the fixed header, extension headers included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Follows the extension headers to the transport.
    #[inline]
    pub fn chain(&self) -> Chain {
        // Nearly every packet, without a loop.
        let protocol = self.next_header();
        if is_extension(protocol) { walk(self.packet, protocol) } else { direct(protocol) }
    }
}

#[inline(always)]
fn lacks_length(header: &[u8; HEADER_LEN]) -> bool {
    header[4..7] == [0, 0, protocol::HOP_BY_HOP]
}

#[inline(always)]
fn direct(protocol: u8) -> Chain {
    let fragment = Fragment::None;
    Chain::Transport(Transport { protocol, offset: HEADER_LEN, fragment, final_addresses: true })
}

/// Whether a next header is an extension header that the chain continues behind (RFC 8200 §4).
#[inline(always)]
pub const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AUTHENTICATION
            | protocol::DESTINATION_OPTIONS
    )
}

fn walk(packet: &[u8], first: u8) -> Chain {
    let mut transport = Transport {
        protocol: first,
        offset: HEADER_LEN,
        fragment: Fragment::None,
        final_addresses: true,
    };
    for _ in 0..EXTENSION_HEADERS_MAX {
        match step(packet, transport) {
            Some(next) => transport = next,
            None => return Chain::Malformed,
        }
        let is_last =
            !is_extension(transport.protocol) || transport.protocol == protocol::HOP_BY_HOP;
        if transport.fragment == Fragment::Later || is_last {
            return Chain::Transport(transport);
        }
    }
    Chain::TooMany
}

/// Over one extension header.
fn step(packet: &[u8], at: Transport) -> Option<Transport> {
    // Every extension header has at least eight bytes, and the first names the next.
    let header: &[u8; 8] = packet.get(at.offset..)?.first_chunk()?;
    let mut next = Transport { protocol: header[0], ..at };
    let len = match at.protocol {
        protocol::FRAGMENT => {
            next.fragment = match (be16(header[2], header[3]) & 0xfff8, header[3] & 1) {
                // A second fragment header around a fragment's piece does not make it whole again.
                (0, 0) if at.fragment == Fragment::First => Fragment::First,
                (0, 0) => Fragment::Atomic,
                (0, _) => Fragment::First,
                _ => Fragment::Later,
            };
            8
        }
        // RFC 4302 §2.2: in words of four bytes, minus two.
        protocol::AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
        _ => (usize::from(header[1]) + 1) * 8,
    };
    let end = at.offset + len;
    let whole = packet.get(at.offset..end)?;
    match at.protocol {
        protocol::ROUTING => next.final_addresses &= header[3] == 0, // Segments left.
        protocol::DESTINATION_OPTIONS => next.final_addresses &= keeps_addresses(whole.get(2..)?),
        _ => {}
    }
    Some(Transport { offset: end, ..next })
}

/// Whether none of these destination options is a home address, which then belongs in the
/// pseudo-header instead of the source (RFC 6275 §11.3.1). When in doubt, no.
fn keeps_addresses(options: &[u8]) -> bool {
    const PAD_1: u8 = 0;
    const HOME_ADDRESS: u8 = 201;

    let mut rest = options;
    for _ in 0..DESTINATION_OPTIONS_MAX {
        let behind = match *rest {
            [] => return true,
            [PAD_1, ..] => rest.get(1..),
            [HOME_ADDRESS, ..] => return false,
            [_, len, ..] => rest.get(2 + usize::from(len)..),
            [_] => None,
        };
        match behind {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    false
}

/// A header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// The flow label; its low 20 bits are taken.
    pub flow_label: u32,
    /// What follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// The sender.
    pub source: Ipv6Addr,
    /// The receiver.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Writes the header of a packet with `payload_len` bytes behind it.
    pub fn emit(&self, buf: &mut [u8], payload_len: usize) -> Option<usize> {
        let payload_len = u16::try_from(payload_len).ok()?;
        let header: &mut [u8; HEADER_LEN] = buf.first_chunk_mut()?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&payload_len.to_be_bytes());
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
        Some(HEADER_LEN)
    }
}

/// Whether no node can have sent from this address over a link.
///
/// | addresses          | why                                                           |
/// |--------------------|---------------------------------------------------------------|
/// | `::`               | must never be forwarded (RFC 4291 §2.5.2)                     |
/// | `::1`              | must never be sent outside a node (RFC 4291 §2.5.3)           |
/// | `::ffff:0:0/96`    | IPv4-mapped: for sockets, never on a wire (RFC 6890 §2.2.3)   |
/// | `ff00::/8`         | multicast must not be a source (RFC 4291 §2.7)                |
///
/// The rule is for forwarded or answered packets: duplicate address detection has `::` as source.
#[inline]
pub fn is_martian_source(address: Ipv6Addr) -> bool {
    is_nowhere(address) || address.is_multicast()
}

/// Whether a packet to this address must not be forwarded anywhere, nor taken from a link.
///
/// | addresses          | why                                                                |
/// |--------------------|--------------------------------------------------------------------|
/// | `::`               | must not be a destination (RFC 4291 §2.5.2)                        |
/// | `::1`              | from a link: must be dropped (RFC 4291 §2.5.3)                     |
/// | `::ffff:0:0/96`    | IPv4-mapped (RFC 6890 §2.2.3)                                      |
/// | `ffx0::/16`        | reserved scope: must be dropped in silence (RFC 4291 §2.7)         |
/// | `ffx1::/16`        | interface-local: from a link, to be dropped (RFC 4291 erratum 3480)|
#[inline]
pub fn is_martian_destination(address: Ipv6Addr) -> bool {
    is_nowhere(address) || (address.is_multicast() && address.octets()[1] & 0x0f <= 1)
}

/// Unspecified, loopback or IPv4-mapped: all within ::/64, which one comparison rules out for nearly
/// every address.
#[inline]
fn is_nowhere(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    bits >> 64 == 0 && (bits <= 1 || bits >> 32 == 0xffff)
}

/// Whether the address means something on its own link only: link-local unicast (RFC 4291 §2.5.6) or
/// multicast of link-local scope or less (RFC 4291 §2.7).
#[inline]
pub fn is_link_scoped(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local() || (address.is_multicast() && address.octets()[1] & 0x0f <= 2)
}

/// The group on which a solicitation for `target` is heard: ff02::1:ff00:0/104 and the low 24 bits
/// (RFC 4291 §2.7.1).
#[inline]
pub const fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    const GROUP: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(GROUP | (target.to_bits() & 0x00ff_ffff))
}

/// All nodes of a link, ff02::1 (RFC 4291 §2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

#[inline(always)]
fn address(header: &[u8; HEADER_LEN], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&header[at..at + 16]);
    octets.into()
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
