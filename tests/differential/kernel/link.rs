//! Ethernet's oddities, ARP (RFC 826), neighbour discovery (RFC 4861), and what the router itself asks.

use std::net::{IpAddr, Ipv6Addr};

use super::generate::ICMPV6;
use super::ipv6;
use super::plan::Side;
use crate::random::Random;

pub const IPV4: u16 = 0x0800;
pub const ARP: u16 = 0x0806;
pub const IPV6: u16 = 0x86dd;

/// The frame of a packet from a host of `side` to the router.
pub fn ethernet(side: Side, host: u8, ether_type: u16, packet: &[u8]) -> Vec<u8> {
    ethernet_to(side.router_mac(), side.host_mac(host), ether_type, packet)
}

/// The frame of a packet from one station to another.
pub fn ethernet_to(to: [u8; 6], from: [u8; 6], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    [&to[..], &from, &ether_type.to_be_bytes(), packet].concat()
}

/// Tags that no frame of the link should have; mostly none.
pub fn odd_tags(
    random: &mut Random,
    side: Side,
    len: usize,
    odd: &mut Vec<&'static str>,
) -> &'static [u8] {
    // The tags make no room on the link.
    if side != side.port() || len + 8 > 14 + side.mtu() {
        return &[];
    }
    match random.below(40) {
        0 => {
            odd.push("in a VLAN that there is not");
            random.pick(&[
                &[0x81, 0, 0, 101],
                &[0x88, 0xa8, 0, 100],
                &[0x88, 0xa8, 0, 200],
                &[0x81, 0, 0, 7],
                &[0x81, 0, 0, 100, 0x81, 0, 0, 7],
                &[0x88, 0xa8, 0, 200, 0x81, 0, 0, 8],
                &[0x81, 0, 0, 200, 0x81, 0, 0, 7],
            ])
        }
        1 => {
            odd.push("in no VLAN, with a priority");
            random.pick(&[&[0x81, 0, 0xe0, 0][..], &[0x88, 0xa8, 0x30, 0]])
        }
        _ => &[],
    }
}

/// The frame with tags between addresses and type.
pub fn tagged(frame: &[u8], tags: &[u8]) -> Vec<u8> {
    [&frame[..12], tags, &frame[12..]].concat()
}

type Packet = fn(&mut Random, Side, &mut Vec<&'static str>) -> Vec<u8>;

/// The frame of a packet; one in twenty is odd as a frame.
pub fn frame(
    random: &mut Random,
    side: Side,
    ether_type: u16,
    odd: &mut Vec<&'static str>,
    packet: Packet,
) -> Vec<u8> {
    let mut packet = packet(random, side, odd);
    // Behind a header that is cut, padding would be taken for the rest of it.
    if packet.len() + 46 <= side.mtu() && !odd.contains(&"cut") && random.percent(15) {
        odd.push("padding");
        let more = 1 + random.below(46);
        packet.extend(random.bytes(more));
    }
    // Each host with a link-local address has a MAC address of its own.
    let host = match (packet.get(8), packet.get(23)) {
        (Some(0xfe), Some(&host)) => host,
        _ => random.pick(&[1, 2]),
    };
    let (ours, host) = (side.router_mac(), side.host_mac(host));
    let mut say = |what| odd.push(what);
    match random.below(100) {
        0 => {
            say("to the broadcast MAC");
            ethernet_to([0xff; 6], host, ether_type, &packet)
        }
        1 => {
            say("to a group's MAC");
            let group = random.pick(&[
                [0x01, 0, 0x5e, 0, 0, 1],
                [0x33, 0x33, 0, 0, 0, 1],
                [0x33, 0x33, 0, 0, 0, 2],
                [0x01, 0x80, 0xc2, 0, 0, 0],
            ]);
            ethernet_to(group, host, ether_type, &packet)
        }
        2 => {
            say("to another's MAC");
            ethernet_to([2, 0, 0, 0, 9, 9], host, ether_type, &packet)
        }
        3 => {
            say("of the wrong EtherType");
            let wrong = random.pick(&[IPV4, IPV6, 0x88b5, 0x0026, 0x8847]);
            ethernet_to(ours, host, wrong, &packet)
        }
        _ => ethernet_to(ours, host, ether_type, &packet),
    }
}

/// A question by ARP, or a packet that is none.
pub fn arp(random: &mut Random, side: Side, odd: &mut Vec<&'static str>) -> Vec<u8> {
    let host = random.pick(&[1, 2]);
    let target = random.pick(&[
        side.router_v4(),
        side.router_v4(),
        side.other().router_v4(),
        side.host_v4(2),
        side.host_v4(200),
        "203.0.113.9".parse().expect("an address"),
    ]);
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend(side.host_mac(host));
    packet.extend(side.host_v4(host).octets());
    packet.extend([0; 6]);
    packet.extend(target.octets());
    match random.below(12) {
        0 => {
            odd.push("a wrong field in ARP");
            let at = random.below(6);
            packet[at] ^= 1 << random.below(4);
        }
        1 => {
            odd.push("another operation of ARP");
            packet[7] = random.pick(&[0, 3, 8, 9]);
        }
        2 => {
            odd.push("ARP cut");
            packet.truncate(random.below(28));
        }
        3 => {
            odd.push("an ARP probe");
            packet[14..18].fill(0);
        }
        _ => {}
    }
    if random.percent(50) {
        packet.resize(46, 0);
    }
    let to = random.pick(&[[0xff; 6], [0xff; 6], side.router_mac(), [2, 0, 0, 0, 9, 9]]);
    ethernet_to(to, side.host_mac(host), ARP, &packet)
}

/// A neighbour solicitation, or a packet that is none (RFC 4861 §7.1.1).
pub fn discovery(random: &mut Random, side: Side, odd: &mut Vec<&'static str>) -> Vec<u8> {
    let host = random.pick(&[1, 2]);
    let mut source = random.pick(&[side.host_v6(host), side.host_link_local(host)]);
    let target = random.pick(&[
        side.router_v6(),
        side.router_link_local(),
        side.router_v6(),
        side.routers(),
        side.other().router_v6(),
        side.host_v6(2),
        Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1),
    ]);
    let mut destination = if random.percent(60) { solicited_node(target) } else { target };
    let mut hop_limit = 255;
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    let mut option = [&[1, 1][..], &side.host_mac(host)].concat();
    let mut wrong_sum = false;
    match random.below(16) {
        0 => {
            odd.push("a hop limit that says it was forwarded");
            hop_limit = random.pick(&[254, 64, 1]);
        }
        1 => {
            odd.push("without its option");
            option.clear();
        }
        2 => {
            odd.push("an option of length 0");
            option[1] = 0;
        }
        3 => {
            odd.push("duplicate address detection");
            source = Ipv6Addr::UNSPECIFIED;
            option.clear();
        }
        4 => {
            odd.push("duplicate address detection, wrong");
            source = Ipv6Addr::UNSPECIFIED;
            if random.percent(50) {
                option.clear();
                destination = target;
            }
        }
        5 => {
            odd.push("a code that is not 0");
            message[1] = 1;
        }
        6 => {
            odd.push("a wrong checksum");
            wrong_sum = true;
        }
        7 => {
            odd.push("a target that is a group");
            message[8] = 0xff;
        }
        8 => {
            odd.push("cut");
            message.truncate(8 + random.below(16));
            option.clear();
        }
        9 => {
            odd.push("an unknown option in front");
            option.splice(0..0, [14, 1, 1, 2, 3, 4, 5, 6]);
        }
        _ => {}
    }
    message.extend(option);
    let mut packet = icmpv6(source, destination, hop_limit, message);
    if wrong_sum {
        packet[42] ^= 1;
    }
    let to = match destination.octets() {
        [0xff, .., b, c, d] => [0x33, 0x33, 0xff, b, c, d],
        _ => side.router_mac(),
    };
    ethernet_to(to, side.host_mac(host), IPV6, &packet)
}

/// A packet with a message whose checksum is still to be made.
pub fn icmpv6(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, message: Vec<u8>) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((message.len() as u16).to_be_bytes());
    packet.extend([ICMPV6, hop_limit]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(message);
    let sum = ipv6::sum(&packet, 40, ICMPV6);
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// RFC 4291 §2.7.1.
pub fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., b, c, d] = target.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(b), u16::from_be_bytes([c, d]))
}

/// Whether the address is a group of RFC 4291 §2.7.1.
pub fn is_solicited_node(address: Ipv6Addr) -> bool {
    address == solicited_node(address)
}

/// What a router says of its own accord.
pub enum Question {
    /// The router queries a neighbour, which answers with this frame.
    Neighbour(Vec<u8>),
    /// The router announces an address of its own.
    Announcement,
    /// The router queries a neighbour that does not exist, or reports its groups.
    Other,
}

/// What a frame from the router asks, if it is no consequence of a packet that was sent to it.
pub fn question(side: Side, frame: &[u8]) -> Option<Question> {
    let packet = frame.get(14..)?;
    if frame[6..12] != side.router_mac() {
        return None;
    }
    let asked = match u16::from_be_bytes([frame[12], frame[13]]) {
        ARP if packet.get(6..8)? == [0, 1] => {
            IpAddr::from(<[u8; 4]>::try_from(packet.get(24..28)?).ok()?)
        }
        // Multicast listener discovery has a hop-by-hop header in front (RFC 3810 §5).
        IPV6 if packet.get(6) == Some(&0) && packet.get(24..26)? == [0xff, 0x02] => {
            return (packet.get(48) == Some(&143)).then_some(Question::Other);
        }
        // A packet with a lower hop limit was only forwarded.
        IPV6 if packet.get(6..8)? == [ICMPV6, 255] && packet.get(40) == Some(&135) => {
            IpAddr::from(<[u8; 16]>::try_from(packet.get(48..64)?).ok()?)
        }
        _ => return None,
    };
    let is_arp = packet.get(..2)? == [0, 1];
    if is_arp && packet.get(14..18)? == packet.get(24..28)? {
        return Some(Question::Announcement);
    }
    let Some((_, mac)) = side.neighbours().find(|&(address, _)| address == asked) else {
        return Some(Question::Other);
    };
    let router = side.router_mac();
    let answer = match asked {
        IpAddr::V4(asked) => {
            let asker = &packet[14..18];
            let answer = [0, 1, 8, 0, 6, 4, 0, 2];
            let packet = [&answer[..], &mac, &asked.octets(), &router, asker].concat();
            ethernet_to(router, mac, ARP, &packet)
        }
        IpAddr::V6(asked) => {
            let asker = Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?);
            // Solicited, override (RFC 4861 §4.4).
            let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
            message.extend(asked.octets());
            message.extend([2, 1]);
            message.extend(mac);
            ethernet_to(router, mac, IPV6, &icmpv6(asked, asker, 255, message))
        }
    };
    Some(Question::Neighbour(answer))
}
