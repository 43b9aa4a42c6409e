//! What becomes of a packet of IPv6: RFC 8200 §3, and the scopes of RFC 4291 §2.5 and §2.7.

use std::net::Ipv6Addr;

use super::super::generate::{ICMPV6, Shot, TCP, UDP, checksum};
use super::super::plan::{self, Side, Way};
use super::super::read::V6;
use super::headers::{Objection, Part, length_objection, objection, transport};
use super::{Error, Verdict, ipv4, link};
use manylane_io::netlink::RouteKind;

pub fn verdict(shot: &Shot) -> Verdict {
    let packet = &shot.frame[14..];
    let Some(header) = V6::of(packet) else { return Verdict::Nothing };
    let len = packet_len(packet);
    let to = header.destination;
    let is_group = shot.frame[0] & 1 != 0;
    if len > packet.len() || !is_to_router(shot) {
        return Verdict::Nothing;
    }
    if let Some(wrong) = length_objection(packet)
        && !is_no_destination(to)
    {
        return object(wrong);
    }
    if to.is_multicast() {
        return match groups(shot.side).any(|group| group == to) {
            true => local(shot, header),
            false => Verdict::Nothing,
        };
    }
    if is_group || is_no_destination(to) {
        return Verdict::Nothing;
    }
    if to.is_unicast_link_local() {
        return match to == shot.side.router_link_local() {
            true => local(shot, header),
            false => Verdict::Nothing,
        };
    }
    match plan::way(to.into()) {
        Way::Router => local(shot, header),
        _ if is_no_source(header.source) => Verdict::Nothing,
        _ if header.hop_limit <= 1 => Error::due(3, 0, 0),
        Way::None | Way::Nowhere(RouteKind::Unreachable) => Error::due(1, 0, 0),
        Way::Nowhere(RouteKind::Prohibit) => Error::due(1, 1, 0),
        Way::Nowhere(_) => Verdict::Nothing,
        Way::On if header.source.is_unicast_link_local() => Error::due(1, 2, 0),
        Way::On => match plan::next_hop(to.into()) {
            None => Verdict::Nothing, // The packet waits for a neighbour that is silent.
            Some((side, _)) if len > side.mtu() => Error::due(2, 0, side.mtu() as u32),
            Some(_) => Verdict::Pass,
        },
    }
}

/// The packet's length without padding.
pub fn packet_len(packet: &[u8]) -> usize {
    40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))
}

fn object(wrong: Objection) -> Verdict {
    match wrong {
        Objection::Silent => Verdict::Nothing,
        Objection::Problem { code, pointer, of_groups } => {
            Verdict::Error(Error { kind: 4, code, word: pointer, of_groups })
        }
    }
}

/// A packet for the router (RFC 8200 §4, RFC 4443 §2.3).
fn local(shot: &Shot, header: V6) -> Verdict {
    let packet = &shot.frame[14..14 + packet_len(&shot.frame[14..])];
    if let Some(wrong) = objection(packet) {
        return object(wrong);
    }
    let Some(transport) = transport(packet) else { return Verdict::Nothing };
    if link::is_solicitation(packet, transport) {
        return link::solicitation_verdict(shot.side, packet, transport.at);
    }
    if is_no_source(header.source) || transport.part != Part::Whole {
        return Verdict::Nothing;
    }
    let message = &packet[transport.at..];
    let pseudo = [&packet[8..40], &[0, 0], &[0, transport.protocol]].concat();
    match transport.protocol {
        ICMPV6 => {
            let is_request = message.len() >= 8 && message[..2] == [128, 0];
            let is_request = is_request && is_right(packet, transport.at);
            match is_request && !header.destination.is_multicast() {
                true => Verdict::Echo,
                false => Verdict::Nothing,
            }
        }
        UDP | TCP => match ipv4::is_as_sent(transport.protocol, message, &pseudo, false) {
            true => Error::due(1, 4, 0),
            false => Verdict::Nothing,
        },
        59 => Verdict::Nothing,
        _ => Error::due(4, 1, transport.named_at as u32),
    }
}

/// Whether the checksum of the ICMPv6 message at `at` is right.
pub fn is_right(packet: &[u8], at: usize) -> bool {
    let len = ((packet.len() - at) as u32).to_be_bytes();
    checksum(&[&packet[8..40], &len, &[0, 0, 0, ICMPV6], &packet[at..]]) == 0
}

/// Whether the packet's sender may be notified of what is wrong (RFC 4443 §2.4 e).
pub fn may_be_told(shot: &Shot, header: V6, what: Error) -> bool {
    let packet = &shot.frame[14..];
    let len = match packet[4..7] == [0, 0, 0] {
        true => packet.len(),
        false => packet_len(packet).min(packet.len()),
    };
    let packet = &packet[..len];
    let Some(transport) = transport(packet) else { return false };
    let may_be_error = transport.protocol == ICMPV6
        && (transport.part == Part::Later
            || packet.get(transport.at).is_none_or(|&kind| kind < 128 || kind == 137));
    let is_group = shot.frame[0] & 1 != 0 || header.destination.is_multicast();
    !may_be_error && !is_no_source(header.source) && (!is_group || what.of_groups || what.kind == 2)
}

/// Whether the frame is for the router: for its station, or for a group that it listens to.
fn is_to_router(shot: &Shot) -> bool {
    let mac_of = |group: Ipv6Addr| {
        let [.., a, b, c, d] = group.octets();
        [0x33, 0x33, a, b, c, d]
    };
    let to = &shot.frame[..6];
    to == shot.side.router_mac()
        || to == [0xff; 6]
        || groups(shot.side).any(|group| mac_of(group) == to)
}

/// The groups that a router belongs to on a link (RFC 4291 §2.8).
fn groups(side: Side) -> impl Iterator<Item = Ipv6Addr> {
    let all = [1, 2].map(|last| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, last));
    let ours = [side.router_v6(), side.router_link_local(), side.routers()];
    all.into_iter().chain(ours.map(super::super::link::solicited_node))
}

fn is_no_source(address: Ipv6Addr) -> bool {
    is_nowhere(address) || address.is_multicast()
}

fn is_no_destination(address: Ipv6Addr) -> bool {
    is_nowhere(address) || address.is_multicast() && address.octets()[1] & 0x0f <= 1
}

fn is_nowhere(address: Ipv6Addr) -> bool {
    address.is_unspecified() || address.is_loopback() || address.to_ipv4_mapped().is_some()
}
