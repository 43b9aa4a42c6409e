//! Answers of ARP and of neighbour discovery, and VLANs.

use std::net::Ipv6Addr;

use super::super::generate::{ICMPV6, Shot};
use super::super::link::{ARP, ethernet_to, icmpv6, is_solicited_node};
use super::super::plan::Side;
use super::headers::{Part, Transport};
use super::{Verdict, Wanted, ipv6};

/// Whether the frame has a tag that is more than a priority.
pub fn is_in_unknown_vlan(shot: &Shot) -> bool {
    shot.tags.chunks(4).any(|tag| tag[2] & 0x0f != 0 || tag[3] != 0) || shot.tags.len() > 4
}

/// RFC 826: the router answers a request for its address on the link.
pub fn arp_verdict(shot: &Shot) -> Verdict {
    let (to, packet) = (&shot.frame[..6], &shot.frame[14..]);
    let is_ours = packet.starts_with(&[0, 1, 8, 0, 6, 4, 0, 1])
        && packet.get(24..28) == Some(&shot.side.router_v4().octets())
        && (to == [0xff; 6] || to == shot.side.router_mac());
    if is_ours { Verdict::Advertise } else { Verdict::Nothing }
}

pub fn arp_reply(shot: &Shot) -> Vec<Wanted> {
    let (packet, mac) = (&shot.frame[14..], shot.side.router_mac());
    let asker: [u8; 6] = packet[8..14].try_into().expect("six bytes");
    let reply = [&[0, 1, 8, 0, 6, 4, 0, 2], &mac[..], &packet[24..28], &packet[8..18]].concat();
    let bytes = ethernet_to(asker, mac, ARP, &reply);
    vec![Wanted { side: shot.side, bytes, is_own: false, times: Vec::new() }]
}

/// Whether the packet is a valid solicitation (RFC 4861 §7.1.1).
pub fn is_solicitation(packet: &[u8], transport: Transport) -> bool {
    let message = &packet[transport.at..];
    let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 bytes").into();
    let (source, destination): (Ipv6Addr, Ipv6Addr) = (address(8), address(24));
    let is_whole = transport.protocol == ICMPV6
        && transport.part == Part::Whole
        && packet[7] == 255
        && message.len() >= 24
        && message[..2] == [135, 0]
        && message[8] != 0xff
        && !source.is_multicast()
        && ipv6::is_right(packet, transport.at);
    if !is_whole {
        return false;
    }
    let (mut options, mut names_station) = (&message[24..], false);
    while let [kind, units, ..] = *options {
        let Some(behind) = options.get(usize::from(units).max(1) * 8..) else { return false };
        if units == 0 {
            return false;
        }
        names_station |= kind == 1;
        options = behind;
    }
    let may_lack_source = is_solicited_node(destination) && !names_station;
    options.is_empty() && (!source.is_unspecified() || may_lack_source)
}

/// The router answers a solicitation for one of its addresses on the link.
pub fn solicitation_verdict(side: Side, packet: &[u8], at: usize) -> Verdict {
    let ours = [side.router_v6(), side.router_link_local(), side.routers()];
    let is_ours = ours.iter().any(|own| own.octets() == packet[at + 8..at + 24]);
    if is_ours { Verdict::Advertise } else { Verdict::Nothing }
}

/// RFC 4861 §7.2.4, §7.2.7.
pub fn advertisement(shot: &Shot) -> Vec<Wanted> {
    let (side, packet) = (shot.side, &shot.frame[14..]);
    let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 bytes").into();
    let (asker, target): (Ipv6Addr, Ipv6Addr) = (address(8), address(48));
    let is_anycast = target == side.routers();
    let source = match asker.is_unicast_link_local() {
        _ if !is_anycast => target,
        true => side.router_link_local(),
        false => side.router_v6(),
    };
    let (to, mac, solicited) = match asker.is_unspecified() {
        true => (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), [0x33, 0x33, 0, 0, 0, 1], 0),
        false => (asker, shot.frame[6..12].try_into().expect("six bytes"), 0x40),
    };
    let overrides = if is_anycast { 0 } else { 0x20 };
    let mut message = vec![136, 0, 0, 0, 0x80 | solicited | overrides, 0, 0, 0];
    message.extend(target.octets());
    message.extend([2, 1]);
    message.extend(side.router_mac());
    let packet = icmpv6(source, to, 255, message);
    let bytes = ethernet_to(mac, side.router_mac(), super::super::link::IPV6, &packet);
    vec![Wanted { side, bytes, is_own: false, times: Vec::new() }]
}
