//! Packets for a world: ordinary, odd, malformed.
//!
//! Each is drawn by itself: its oddity and its destination are independent, so that what is
//! wrong in two ways comes too, and shows which check is first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_net::fib::IpPrefix;
use manylane_net::transit::Arrival;
use manylane_net::transit::flows::{Direction, Tuple};
use manylane_net::wire::checksum::Sum;
use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ip, ipv4, ipv6, protocol, tcp, udp};

use super::world::{DEVICES, VLANS, World, vlan_of};
use crate::random::Random;

/// A frame, and how it arrives.
#[derive(Clone, Debug)]
pub struct Packet {
    pub frame: Vec<u8>,
    /// Its interface, tag and segments; the program that tries the packet sets the time.
    pub arrival: Arrival,
    /// A device has added up its bytes.
    pub is_summed: bool,
    /// The queueing priority that it comes with.
    pub priority: u32,
}

/// What may be drawn.
#[derive(Clone, Copy)]
pub struct Choice {
    /// Tags are taken off.
    pub tags: bool,
    /// An interface that is no port.
    pub stranger: u32,
}

/// One packet.
pub fn packet(world: &World, choice: Choice, random: &mut Random) -> Packet {
    // The port whose interface receives the packet, and the one that the packet is for.
    let (port, entry, tag) = match () {
        () if choice.tags && random.percent(70) => tagged(random),
        () => {
            let port = 1 + random.below(usize::from(DEVICES)) as u16;
            (port, port, None)
        }
    };
    let flow = random.percent(60).then(|| flow(world, random)).flatten();
    let port = match flow {
        Some((_, ingress)) if (1..=DEVICES).contains(&ingress) && !choice.tags => ingress,
        _ => port,
    };
    let entry = if tag.is_none() { port } else { entry };
    let ifindex = match random.below(100) {
        0 => choice.stranger,
        _ => world.interfaces[usize::from(port) - 1],
    };
    let is_ipv6 = flow.map_or_else(|| random.percent(50), |(tuple, _)| tuple.is_ipv6());
    let mut packet = if is_ipv6 { ipv6(world, random) } else { ipv4(world, random) };
    if let Some((tuple, _)) = flow {
        follow(&mut packet, tuple, random);
    }
    if random.percent(8) {
        open_checksum(&mut packet, random);
    }
    let ether_type = match random.below(400) {
        0 => ether_type::ARP,
        1 => ether_type::VLAN,
        2 => random.word(),
        3 => ether_type::IPV4,
        4 => ether_type::IPV6,
        _ if packet[0] >> 4 == 6 => ether_type::IPV6,
        _ => ether_type::IPV4,
    };
    damage(&mut packet, random);
    let mut frame = vec![0; ethernet::HEADER_LEN];
    let destination = destination(world.tables.port(entry).mac, random);
    ethernet::emit(&mut frame, destination, Mac([0x0a, 9, 9, 9, 9, 9]), ether_type).expect("room");
    frame.append(&mut packet);
    match random.below(200) {
        // What was cut off somewhere, and what has more behind it.
        0..4 => frame.truncate(14 + random.below(frame.len() - 13)),
        4..7 => {
            let more = 1 + random.below(40);
            frame.extend(random.bytes(more));
        }
        _ if frame.len() < 60 && random.percent(80) => frame.resize(60, 0),
        _ => {}
    }
    let gso_size = if random.percent(9) { gso_size(random) } else { 0 };
    let arrival = Arrival { ifindex, now_ns: 0, tag, gso_size };
    // The kernel does not try summed segments.
    let is_summed = gso_size == 0 && !choice.tags && random.percent(5);
    Packet { frame, arrival, is_summed, priority: random.pick(&[0, 0, 3, 7]) }
}

/// The tuple of a connection's packets, where such need a flow, and the ingress port that suits them.
fn flow(world: &World, random: &mut Random) -> Option<(Tuple, u16)> {
    let (number, new) = random.pick(&world.connections);
    let required = world.required();
    let needs = if new.original.is_ipv6() { required.ipv6 } else { required.ipv4 };
    let direction = random.pick(&Direction::BOTH);
    let tuple = match direction {
        Direction::Original => new.original,
        Direction::Reply => new.reply,
    };
    let ingress = number.map_or(1, |number| u16::from(world.approved(number, direction)[0]));
    needs.then_some((tuple, ingress))
}

/// Makes a packet one of a connection, or nearly so.
fn follow(packet: &mut [u8], tuple: Tuple, random: &mut Random) {
    let at = match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet[9] = tuple.protocol;
            packet[12..16].copy_from_slice(&source.octets());
            packet[16..20].copy_from_slice(&destination.octets());
            ipv4::HEADER_LEN
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            if random.percent(95) {
                packet[6] = tuple.protocol;
            }
            packet[8..24].copy_from_slice(&source.octets());
            packet[24..40].copy_from_slice(&destination.octets());
            ipv6::HEADER_LEN
        }
        _ => unreachable!("both are of one family"),
    };
    let len = packet.len() - at;
    if let Some([a, b, c, d, e, f, ..]) = packet.get_mut(at..) {
        [*a, *b] = tuple.source_port.to_be_bytes();
        [*c, *d] = tuple.destination_port.to_be_bytes();
        if tuple.protocol == protocol::UDP && random.percent(95) {
            [*e, *f] = (len as u16).to_be_bytes();
        }
    }
    if tuple.protocol == protocol::TCP && len >= 20 {
        packet[at + 12] = random.pick(&[0x50, 0x50, 0x50, 0x50, 0x80, 0x40, 0xf0]);
        let plain = random.pick(&[0x10, 0x18, 0xd0]);
        let flags = if random.percent(4) { random.byte() } else { plain };
        packet[at + 13] = flags;
    }
    set_checksum(packet);
}

/// A port, a VLAN's port, and the tag that leads from the one to the other; now and then another tag.
fn tagged(random: &mut Random) -> (u16, u16, Option<(u16, u16)>) {
    let vlan = random.below(usize::from(VLANS)) as u16;
    let (port, is_service, number) = vlan_of(vlan);
    let ether_type = match is_service != random.percent(5) {
        true => ether_type::SERVICE_VLAN,
        false => ether_type::VLAN,
    };
    let number = if random.percent(5) { random.word() } else { number | (random.word() & 0xe000) };
    (port, 1 + DEVICES + vlan, Some((ether_type, number)))
}

fn destination(ours: Mac, random: &mut Random) -> Mac {
    let Mac(mut bytes) = ours;
    match random.below(200) {
        0 => return Mac::BROADCAST,
        1 => return Mac([0x33, 0x33, 0, 0, 0, 1]),
        2..4 => bytes[random.below(6)] ^= 1 << random.below(8),
        _ => {}
    }
    Mac(bytes)
}

/// The payload of each segment: from few bytes to more than a packet can have.
fn gso_size(random: &mut Random) -> u16 {
    random.pick(&[
        8, 88, 500, 536, 1208, 1220, 1240, 1340, 1360, 1420, 1440, 1448, 1460, 8960, 65_535,
    ])
}

fn ipv4(world: &World, random: &mut Random) -> Vec<u8> {
    let protocol = transport(random);
    let payload = payload(protocol, random);
    let mut packet = vec![0; ipv4::HEADER_LEN];
    let header = ipv4::Header {
        tos: random.byte(),
        identification: random.word(),
        dont_fragment: random.percent(50),
        ttl: hop_limit(random),
        protocol,
        source: address_v4(world, random, true),
        destination: address_v4(world, random, false),
    };
    let options = if random.percent(3) { 4 * random.below(11) } else { 0 };
    header.emit(&mut packet, options + payload.len()).expect("it is short");
    packet[0] += (options / 4) as u8;
    packet.extend(random.bytes(options));
    packet.extend(payload);
    if random.percent(4) {
        let fragment = random.pick(&[0x2000, 0x0001, 0x2001, 0x1fff, 0x8000]);
        packet[6..8].copy_from_slice(&u16::to_be_bytes(fragment));
    }
    set_checksum(&mut packet);
    packet
}

fn ipv6(world: &World, random: &mut Random) -> Vec<u8> {
    let mut next_header = transport(random);
    let mut payload = payload(next_header, random);
    let extensions = if random.percent(12) { 1 + random.below(8) } else { 0 };
    for _ in 0..extensions {
        let (kind, header) = extension(next_header, random);
        if payload.len() + header.len() > PAYLOAD_MAX {
            break;
        }
        payload.splice(0..0, header);
        next_header = kind;
    }
    let mut packet = vec![0; ipv6::HEADER_LEN];
    let header = ipv6::Header {
        traffic_class: random.byte(),
        flow_label: random.next() as u32,
        next_header,
        hop_limit: hop_limit(random),
        source: address_v6(world, random, true),
        destination: address_v6(world, random, false),
    };
    header.emit(&mut packet, payload.len()).expect("it is short");
    packet.extend(payload);
    packet
}

/// An extension header in front of `next_header`: its kind, and its bytes.
fn extension(next_header: u8, random: &mut Random) -> (u8, Vec<u8>) {
    let kind = random.pick(&[
        protocol::DESTINATION_OPTIONS,
        protocol::DESTINATION_OPTIONS,
        protocol::DESTINATION_OPTIONS,
        protocol::AUTHENTICATION,
        protocol::ROUTING,
        protocol::FRAGMENT,
        protocol::HOP_BY_HOP,
    ]);
    // Now and then as long as headers may be.
    let words = if random.percent(4) { 48 + random.below(10) } else { random.below(3) };
    let (len, count) = match kind {
        protocol::AUTHENTICATION => ((words + 2) * 4, words),
        protocol::FRAGMENT => (8, 0),
        _ => ((words + 1) * 8, words),
    };
    let mut header = vec![0; len];
    (header[0], header[1]) = (next_header, count as u8);
    if random.percent(3) {
        header[1] = random.byte();
    }
    if kind == protocol::FRAGMENT && random.percent(60) {
        header[2..4].copy_from_slice(&random.word().to_be_bytes());
    }
    (kind, header)
}

fn transport(random: &mut Random) -> u8 {
    match random.below(100) {
        0..40 => protocol::TCP,
        40..75 => protocol::UDP,
        75..80 => protocol::ICMP,
        80..86 => protocol::ICMPV6,
        86..89 => random.pick(&[protocol::SCTP, protocol::DCCP, protocol::UDP_LITE]),
        89..91 => protocol::GRE,
        91..93 => protocol::ESP,
        93..94 => protocol::AUTHENTICATION,
        94..95 => protocol::HOP_BY_HOP,
        95..96 => protocol::ROUTING,
        96..97 => protocol::DESTINATION_OPTIONS,
        _ => random.byte(),
    }
}

fn payload(protocol: u8, random: &mut Random) -> Vec<u8> {
    let len = match random.below(1000) {
        0..600 => random.below(64),
        600..900 => 8 + random.below(200),
        // Around the world's MTUs.
        900..980 => random.pick(&[536, 1240, 1360, 1452, 1460, 1480]) + random.below(44),
        _ => random.below(PAYLOAD_MAX),
    };
    // One number for all: which bytes they are matters in the first few only.
    let mut payload = vec![random.byte(); len];
    let words = random.next().to_le_bytes();
    payload.iter_mut().zip(words).for_each(|(place, byte)| *place = byte);
    match (protocol, payload.len()) {
        (protocol::TCP, 20..) if random.percent(90) => {
            payload[12] = (5 + random.below(11) as u8) << 4;
        }
        (protocol::ICMP | protocol::ICMPV6, 1..) => {
            payload[0] = random.pick(&[0, 1, 2, 3, 4, 5, 8, 11, 12, 127, 128, 129, 200]);
        }
        _ => {}
    }
    payload
}

/// The kernel tries no packet that is longer than a page, with the kernel's room around it.
const PAYLOAD_MAX: usize = 3400;

fn hop_limit(random: &mut Random) -> u8 {
    match random.below(100) {
        0..3 => random.below(2) as u8,
        3..8 => 2,
        _ => random.pick(&[64, 63, 255, 128, 3]),
    }
}

fn address_v4(world: &World, random: &mut Random, is_source: bool) -> Ipv4Addr {
    const ODD: [[u8; 4]; 14] = [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [128, 0, 0, 1],
        [126, 255, 255, 255],
        [223, 255, 255, 255],
        [224, 0, 0, 1],
        [239, 255, 255, 255],
        [240, 0, 0, 1],
        [255, 255, 255, 255],
        [169, 254, 1, 1],
        [1, 0, 0, 0],
        [10, 0, 0, 255],
        [192, 0, 2, 0],
    ];
    match random.below(100) {
        0..3 => random.pick(&ODD).into(),
        3..6 => Ipv4Addr::from_bits(random.next() as u32),
        6..25 if is_source => Ipv4Addr::from_bits(0x0a00_0000 | (random.next() as u32 & 0xffff)),
        _ => loop {
            if let IpAddr::V4(address) = within(random.pick(&world.prefixes), random) {
                return address;
            }
        },
    }
}

fn address_v6(world: &World, random: &mut Random, is_source: bool) -> Ipv6Addr {
    const ODD: [&str; 16] = [
        "::",
        "::1",
        "::2",
        "::ffff:10.0.0.1",
        "::fffe:10.0.0.1",
        "::1:ffff:10.0.0.1",
        "fe80::1",
        "febf:ffff::1",
        "fec0::1",
        "fe7f::1",
        "ff00::1",
        "ff01::1",
        "ff02::1",
        "ff0e::1",
        "64:ff9b::1",
        "0:0:0:1::1",
    ];
    match random.below(100) {
        0..4 => random.pick(&ODD).parse().expect("an address"),
        4..6 => Ipv6Addr::from_bits(u128::from(random.next()) << 64 | u128::from(random.next())),
        6..25 if is_source => {
            Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(random.next() & 0xffff))
        }
        _ => loop {
            if let IpAddr::V6(address) = within(random.pick(&world.prefixes), random) {
                return address;
            }
        },
    }
}

/// An address of a prefix, or just outside: its ends are where a search goes wrong.
fn within(prefix: IpPrefix, random: &mut Random) -> IpAddr {
    let draw = random.below(10);
    match prefix.addr() {
        IpAddr::V4(first) => {
            let span = u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            let bits = match draw {
                0 => first.to_bits(),
                1 => first.to_bits() | span,
                2 => first.to_bits().wrapping_sub(1),
                3 => (first.to_bits() | span).wrapping_add(1),
                _ => first.to_bits() | (random.next() as u32 & span),
            };
            Ipv4Addr::from_bits(bits).into()
        }
        IpAddr::V6(first) => {
            let span = u128::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            let host = u128::from(random.next()) << 64 | u128::from(random.next());
            let bits = match draw {
                0 => first.to_bits(),
                1 => first.to_bits() | span,
                2 => first.to_bits().wrapping_sub(1),
                3 => (first.to_bits() | span).wrapping_add(1),
                _ => first.to_bits() | (host & span),
            };
            Ipv6Addr::from_bits(bits).into()
        }
    }
}

/// Leaves a TCP or UDP checksum to be filled in by the device, or nearly so: the sum of the pseudo-header.
fn open_checksum(packet: &mut [u8], random: &mut Random) {
    let Some(view) = ip::View::checked(packet) else { return };
    let (protocol, at) = match view {
        ip::View::V4(view) => (view.protocol(), view.header_len()),
        ip::View::V6(view) => (view.next_header(), ipv6::HEADER_LEN),
    };
    let len = packet.len() - at;
    let place = match protocol {
        protocol::TCP => at + tcp::CHECKSUM_OFFSET,
        protocol::UDP => at + udp::CHECKSUM_OFFSET,
        _ => return,
    };
    let sum = match view {
        ip::View::V4(view) => {
            Sum::pseudo_v4(view.source(), view.destination(), protocol, len as u16)
        }
        ip::View::V6(view) => {
            Sum::pseudo_v6(view.source(), view.destination(), protocol, len as u32)
        }
    };
    let checksum = match random.below(10) {
        0 => sum.fold() ^ 1 << random.below(16),
        1 => sum.finish(),
        2 => random.pick(&[0, 0xffff]),
        _ => sum.fold(),
    };
    let Some(field) = packet.get_mut(place..place + 2) else { return };
    field.copy_from_slice(&checksum.to_be_bytes());
    if protocol == protocol::UDP {
        packet[at + 4..at + 6].copy_from_slice(&(len as u16).to_be_bytes());
    }
}

/// Now and then a bit of the header, with or without its checksum.
fn damage(packet: &mut [u8], random: &mut Random) {
    if random.percent(4) {
        let at = random.below(packet.len().min(48));
        packet[at] ^= 1 << random.below(8);
        if random.percent(70) {
            set_checksum(packet);
        }
    }
}

/// Computes the checksum of an IPv4 header, if it is one.
fn set_checksum(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 0xf) * 4;
    if packet[0] >> 4 != 4 || !(20..=packet.len()).contains(&len) {
        return;
    }
    packet[10..12].fill(0);
    let checksum = Sum::of(&packet[..len]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}
