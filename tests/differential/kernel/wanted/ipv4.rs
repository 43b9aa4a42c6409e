//! What becomes of a packet of IPv4, in the order of RFC 1812 §5.2.1.

use std::net::Ipv4Addr;

use super::super::generate::{ICMP, Shot, TCP, UDP, checksum};
use super::super::plan::{self, Side, Way};
use super::super::read::V4;
use super::{Error, Verdict, options};
use manylane_io::netlink::RouteKind;

pub fn verdict(shot: &Shot) -> Verdict {
    let packet = &shot.frame[14..];
    let Some(header) = V4::of(packet) else { return Verdict::Nothing };
    let total_len = total_len(packet);
    let is_whole = total_len >= header.len && total_len <= packet.len();
    if !is_whole
        || checksum(&[&packet[..header.len]]) != 0
        || shot.frame[..6] != shot.side.router_mac()
        || matches!(header.source.octets()[0], 0 | 127 | 224..)
        || matches!(header.destination.octets()[0], 0 | 127 | 224..)
        || is_broadcast(header.destination)
    {
        return Verdict::Nothing;
    }
    match options::walk(&packet[20..header.len]) {
        options::Walk::Harmless => {}
        options::Walk::SourceRoute => return Verdict::Nothing,
        options::Walk::Malformed(at) => return Error::due(12, 0, (20 + at as u32) << 24),
    }
    match plan::way(header.destination.into()) {
        Way::Router => local(header, &packet[..total_len]),
        _ if header.ttl <= 1 => Error::due(11, 0, 0),
        Way::None => Error::due(3, 0, 0),
        Way::Nowhere(RouteKind::Unreachable) => Error::due(3, 1, 0),
        Way::Nowhere(RouteKind::Prohibit) => Error::due(3, 13, 0),
        Way::Nowhere(_) => Verdict::Nothing,
        Way::On => on(header, total_len),
    }
}

/// A packet that has a next hop.
fn on(header: V4, total_len: usize) -> Verdict {
    let Some((side, _)) = plan::next_hop(header.destination.into()) else {
        return Verdict::Nothing; // The packet waits for a neighbour that is silent.
    };
    let end = usize::from(header.offset) * 8 + total_len - header.len;
    match total_len <= side.mtu() {
        true => Verdict::Pass,
        false if header.dont_fragment => Error::due(3, 4, side.mtu() as u32),
        false if end > usize::from(u16::MAX) => Verdict::Nothing, // No offset would fit.
        false => Verdict::Pass,
    }
}

/// A packet for the router (RFC 1122 §3.2.2, RFC 1812 §5.2.7.1).
fn local(header: V4, packet: &[u8]) -> Verdict {
    let message = &packet[header.len..];
    if is_no_station(header.source) || header.more || header.offset > 0 {
        return Verdict::Nothing;
    }
    let pseudo = [&packet[12..20], &[0, header.protocol]].concat();
    match header.protocol {
        ICMP => {
            let is_request = message.len() >= 8 && message[..2] == [8, 0];
            match is_request && checksum(&[message]) == 0 {
                true => Verdict::Echo,
                false => Verdict::Nothing,
            }
        }
        UDP | TCP => match is_as_sent(header.protocol, message, &pseudo, true) {
            true => Error::due(3, 3, 0),
            false => Verdict::Nothing,
        },
        _ => Error::due(3, 2, 0),
    }
}

/// Whether lengths and checksum of a datagram or a segment are right, `pseudo` being its pseudo-header but for the
/// length.
pub fn is_as_sent(protocol: u8, message: &[u8], pseudo: &[u8], may_lack_sum: bool) -> bool {
    let word = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    let len = match protocol {
        UDP if message.len() >= 8 && word(4) >= 8 => word(4),
        TCP if message.len() >= 20 => match usize::from(message[12] >> 4) * 4 {
            len if len >= 20 && len <= message.len() => message.len(),
            _ => return false,
        },
        _ => return false,
    };
    if len > message.len() {
        return false;
    }
    if protocol == UDP && word(6) == 0 {
        return may_lack_sum;
    }
    checksum(&[pseudo, &(len as u16).to_be_bytes(), &message[..len]]) == 0
}

/// Whether the packet's sender may be notified of what is wrong (RFC 1812 §4.3.2.7).
pub fn may_be_told(shot: &Shot, header: V4) -> bool {
    let kind = shot.frame[..14 + total_len(&shot.frame[14..])].get(14 + header.len);
    let is_query = matches!(kind, Some(0 | 8 | 9 | 10 | 13..=18 | 42 | 43));
    header.offset == 0 && (header.protocol != ICMP || is_query) && !is_no_station(header.source)
}

pub fn total_len(packet: &[u8]) -> usize {
    u16::from_be_bytes([packet[2], packet[3]]).into()
}

/// Whether no other station speaks from the address.
fn is_no_station(address: Ipv4Addr) -> bool {
    is_broadcast(address) || plan::is_routers(address.into())
}

fn is_broadcast(address: Ipv4Addr) -> bool {
    Side::ALL.into_iter().any(|side| address == side.broadcast())
}
