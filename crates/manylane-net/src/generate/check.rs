//! Is this a packet of a stream, and as a router may have left it?
//!
//! | looked at                      | must be                                                       |
//! |--------------------------------|---------------------------------------------------------------|
//! | MAC addresses                  | to the hosts, from the router                                 |
//! | lengths                        | IP and UDP end where the frame ends                           |
//! | IPv4 header checksum           | right                                                         |
//! | TTL, hop limit                 | less than was sent: a router has forwarded it                 |
//! | TOS; traffic class, flow label | as sent                                                       |
//! | UDP checksum                   | right, and there                                              |
//! | hash                           | that of stamp, addresses, ports and length                    |
//! | pattern                        | where the hash leads                                          |
//!
//! A packet whose bytes no longer say that it is of a stream counts as damaged if a checksum says so, and otherwise as
//! another sender's. In IPv6 nothing covers the hop limit: a wrong one that is below what was sent passes.

use super::stamp::{Ends, Key, Stamp};
use super::{Link, TTL};
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{self, ether_type};
use crate::wire::ip::Fragment;
use crate::wire::{ipv4, ipv6, protocol, udp};

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A whole packet of a stream.
    Whole(Stamp),
    /// A damaged packet.
    Damaged,
    /// No packet of a stream.
    Foreign,
}

/// What the two versions of IP have in common.
struct Packet<'a> {
    source: u128,
    destination: u128,
    payload: &'a [u8],
    pseudo: Sum,
    len: usize,
    ttl: u8,
    /// TOS; traffic class and flow label.
    marks: u32,
}

/// What this frame is, seen from the hosts' side of `link`.
#[inline]
pub(super) fn look(frame: &[u8], link: Link) -> Look {
    let Some(view) = ethernet::View::checked(frame) else { return Look::Damaged };
    let (packet, marks): (_, fn(&Stamp) -> u32) = match view.ether_type() {
        ether_type::IPV4 => (packet_v4(view.payload()), |_| 0),
        ether_type::IPV6 => (packet_v6(view.payload()), |stamp| stamp.flow & 0x000f_ffff),
        _ => return Look::Foreign,
    };
    let packet = match packet {
        Ok(packet) => packet,
        Err(look) => return look,
    };
    let Some(datagram) = udp::View::checked(packet.payload) else { return Look::Damaged };
    let is_valid = datagram.has_valid_checksum(packet.pseudo);
    let Some((stamp, hash)) = Stamp::read(datagram.payload()) else {
        let is_damaged = !is_valid && datagram.checksum() != 0;
        return if is_damaged { Look::Damaged } else { Look::Foreign };
    };
    let ends = Ends {
        source: packet.source,
        destination: packet.destination,
        ports: [datagram.source_port(), datagram.destination_port()],
        payload_len: datagram.payload().len() as u16, // Cut to a length of 16 bits.
    };
    let expected = Key::new(stamp.stream, stamp.flow, &ends).hash(stamp.sequence);
    let (_, rest) = datagram.payload().split_at(super::stamp::STAMP_LEN);
    let is_whole = is_valid
        && hash == expected.stamped()
        && packet.ttl < TTL
        && packet.marks == marks(&stamp)
        && (view.destination(), view.source()) == (link.hosts, link.router)
        && packet.len == view.payload().len()
        && datagram.datagram().len() == packet.payload.len()
        && expected.filled(rest);
    if is_whole { Look::Whole(stamp) } else { Look::Damaged }
}

#[inline(always)]
fn packet_v4(bytes: &[u8]) -> Result<Packet<'_>, Look> {
    let view = ipv4::View::checked(bytes).ok_or(Look::Damaged)?;
    if !view.has_valid_checksum() {
        return Err(Look::Damaged);
    }
    if view.protocol() != protocol::UDP || view.fragment() != Fragment::None {
        return Err(Look::Foreign);
    }
    let (source, destination) = (view.source(), view.destination());
    let len = view.payload().len() as u16; // Below the total length, which has 16 bits.
    Ok(Packet {
        source: source.to_bits().into(),
        destination: destination.to_bits().into(),
        payload: view.payload(),
        pseudo: Sum::pseudo_v4(source, destination, protocol::UDP, len),
        len: view.packet().len(),
        ttl: view.ttl(),
        marks: view.tos().into(),
    })
}

#[inline(always)]
fn packet_v6(bytes: &[u8]) -> Result<Packet<'_>, Look> {
    let view = ipv6::View::checked(bytes).ok_or(Look::Damaged)?;
    if view.next_header() != protocol::UDP {
        return Err(Look::Foreign);
    }
    let (source, destination) = (view.source(), view.destination());
    let len = view.payload().len() as u32; // Has 16 bits in the header.
    Ok(Packet {
        source: source.to_bits(),
        destination: destination.to_bits(),
        payload: view.payload(),
        pseudo: Sum::pseudo_v6(source, destination, protocol::UDP, len),
        len: view.packet().len(),
        ttl: view.hop_limit(),
        marks: u32::from(view.traffic_class()) << 20 | view.flow_label(),
    })
}
