//! Packets of IPv6: headers and extension headers (RFC 8200 §3 and §4), scopes (RFC 4291 §2.5, §2.7).

use std::net::Ipv6Addr;

use super::generate::{self, Body, ICMPV6, UDP, body, checksum, oddities};
use super::link;
use super::plan::Side;
use super::twin::MARK;
use crate::random::Random;

/// A packet in parts.
struct Packet {
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    /// Extension headers: the number of each, and its bytes from the second.
    extensions: Vec<(u8, Vec<u8>)>,
    body: Body,
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;

/// A packet from `side`, and what is odd about it.
pub fn packet(random: &mut Random, side: Side, odd: &mut Vec<&'static str>) -> Vec<u8> {
    let mut packet = Packet {
        traffic_class: if random.percent(70) { 0 } else { random.byte() },
        flow_label: if random.percent(50) { 0 } else { random.next() as u32 & 0x000f_ffff },
        hop_limit: random.pick(&[64, 64, 64, 64, 255, 128, 3, 2]),
        source: source(random, side),
        destination: destination(random, side),
        extensions: Vec::new(),
        body: body(random, ICMPV6, side.mtu() - 140),
    };
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..oddities(random) {
        let (name, change) = ODDITIES[random.below(ODDITIES.len())];
        odd.push(name);
        edits.extend(change(&mut packet, random, side));
    }
    let mut bytes = packet.bytes();
    for edit in edits {
        if bytes.len() >= 40 {
            edit(&mut bytes, random);
        }
    }
    bytes
}

/// A change to the bytes, when the packet is otherwise complete.
type Edit = fn(&mut Vec<u8>, &mut Random);
type Oddity = (&'static str, fn(&mut Packet, &mut Random, Side) -> Option<Edit>);

const ODDITIES: &[Oddity] = &[
    ("hop limit at its end", |packet, random, _| {
        packet.hop_limit = random.pick(&[0, 1, 1]);
        None
    }),
    ("odd source", |packet, random, side| {
        packet.source = odd_source(random, side);
        None
    }),
    ("odd destination", |packet, random, side| {
        packet.destination = odd_destination(random, side);
        None
    }),
    ("a fragment", |packet, random, _| {
        let place = random.pick(&[0_u16, 1, 8, 9, 1448]);
        let mut rest = vec![0];
        rest.extend(place.to_be_bytes());
        rest.extend(random.bytes(4));
        packet.extensions.push((FRAGMENT, rest));
        None
    }),
    ("extension headers", |packet, random, _| {
        for _ in 0..1 + random.below(3) {
            packet.extensions.push(extension(random));
        }
        None
    }),
    ("options and no payload length, as a jumbogram has", |packet, random, _| {
        let options: &[[u8; 7]] =
            &[[0, 1, 4, 0, 0, 0, 0], [0, 0xc2, 4, 0, 0, 0, 48], [0, 0xc2, 4, 0, 1, 0, 0]];
        packet.extensions.insert(0, (HOP_BY_HOP, random.pick(options).to_vec()));
        Some(|bytes, _| bytes[4..6].fill(0))
    }),
    ("an odd code of ICMP", |packet, random, _| {
        if packet.body.protocol == ICMPV6 && packet.body.bytes.len() >= 8 {
            packet.body.bytes[1] = random.pick(&[1, 4, 255]);
        }
        None
    }),
    ("wrong transport checksum", |packet, random, _| {
        let at = packet.body.sum_at.take()?;
        let wrong = (1 + random.below(0xfffe)) as u16;
        packet.body.bytes[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
        None
    }),
    ("no transport checksum", |packet, _, _| {
        packet.body.sum_at = None;
        None
    }),
    ("no next header", |packet, _, _| {
        packet.body.protocol = NO_NEXT_HEADER;
        packet.body.sum_at = None;
        None
    }),
    ("no payload", |packet, _, _| {
        packet.body.bytes.clear();
        packet.body.sum_at = None;
        None
    }),
    ("a cut transport header", |packet, random, _| {
        packet.body.bytes.truncate(random.below(8));
        packet.body.sum_at = None;
        None
    }),
    ("another version", |_, _, _| {
        Some(|bytes, random| bytes[0] = bytes[0] & 0x0f | random.pick(&[0, 4, 5, 15]) << 4)
    }),
    ("wrong payload length", |_, _, _| {
        Some(|bytes, random| {
            let len = bytes.len() - 40;
            let wrong = random.pick(&[0, len.saturating_sub(1), len / 2, len + 1, 65_535]);
            bytes[4..6].copy_from_slice(&(wrong as u16).to_be_bytes());
        })
    }),
    ("cut", |_, _, _| Some(|bytes, random| bytes.truncate(random.below(bytes.len().min(60))))),
];

/// An extension header, right and wrong.
fn extension(random: &mut Random) -> (u8, Vec<u8>) {
    let options: &[&[u8]] = &[
        &[0, 1, 4, 0, 0, 0, 0],
        &[0, 5, 2, 0, 0, 1, 0],
        &[0, 0x1e, 4, 1, 2, 3, 4],
        &[0, 0x5e, 4, 1, 2, 3, 4],
        &[0, 0x9e, 4, 1, 2, 3, 4],
        &[0, 0xde, 4, 1, 2, 3, 4],
        &[0, 1, 9, 0, 0, 0, 0],
        &[1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[200, 1, 4, 0, 0, 0, 0],
    ];
    match random.below(8) {
        0..3 => (HOP_BY_HOP, random.pick(options).to_vec()),
        3..6 => (DESTINATION_OPTIONS, random.pick(options).to_vec()),
        6 => {
            let kind = random.pick(&[0, 2, 4, 200]);
            let left = random.pick(&[0, 1]);
            let mut rest = vec![2, kind, left, 0, 0, 0, 0];
            rest.extend(Side::Wan.host_v6(2).octets());
            (ROUTING, rest)
        }
        // An authentication header, in words of four bytes.
        _ => (51, vec![2, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 1, 2, 3, 4]),
    }
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let mut chain = Vec::new();
        for (at, (_, rest)) in self.extensions.iter().enumerate() {
            let next =
                self.extensions.get(at + 1).map_or(self.body.protocol, |&(number, _)| number);
            chain.push(next);
            chain.extend(rest);
        }
        let first = self.extensions.first().map_or(self.body.protocol, |&(number, _)| number);
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        let mut bytes = word.to_be_bytes().to_vec();
        bytes.extend(((chain.len() + self.body.bytes.len()) as u16).to_be_bytes());
        bytes.extend([first, self.hop_limit]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.extend(&chain);
        let body_at = bytes.len();
        bytes.extend(&self.body.bytes);
        if let Some(at) = self.body.sum_at.map(|at| body_at + at) {
            let sum = sum(&bytes, body_at, self.body.protocol);
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }
}

/// The checksum of the transport at `at`, which has a zero in its place (RFC 8200 §8.1).
pub fn sum(packet: &[u8], at: usize, protocol: u8) -> u16 {
    let len = ((packet.len() - at) as u32).to_be_bytes();
    match checksum(&[&packet[8..40], &len, &[0, 0, 0, protocol], &packet[at..]]) {
        0 if protocol == UDP => 0xffff,
        sum => sum,
    }
}

/// A host on the link, or behind one of them.
fn source(random: &mut Random, side: Side) -> Ipv6Addr {
    match random.below(24) {
        0..12 => side.host_v6(random.pick(&[1, 2])),
        12..18 => behind(random, [4, 3, 0x18, 0x19][side as usize], random_subnet),
        18 => side.host_link_local(random.pick(&[1, 2])),
        // Neither router checks that the source is where a route to it would lead.
        _ => random.pick(&[
            side.other().host_v6(1),
            side.other().host_v6(2),
            Ipv6Addr::new(0x2001, 0xdb8, 99, 0, 0, 0, 0, 7),
        ]),
    }
}

fn random_subnet(random: &mut Random) -> u16 {
    random.pick(&[1, 7])
}

/// An address in 2001:db8:`site`::/48.
fn behind(random: &mut Random, site: u16, subnet: fn(&mut Random) -> u16) -> Ipv6Addr {
    let subnet = subnet(random);
    Ipv6Addr::new(0x2001, 0xdb8, site, subnet, random.pick(&[0, 0x4000]), 0, 0, random.word() | 1)
}

/// Where routes lead, of every kind.
fn destination(random: &mut Random, side: Side) -> Ipv6Addr {
    match random.below(20) {
        0..3 => random.pick(&Side::ALL).host_v6(random.pick(&[1, 2])),
        3..7 => behind(random, 3, Random::word),
        7 => Ipv6Addr::new(0x2001, 0xdb8, 3, 7, 0x7fff, 0, 0, random.word()),
        8 => Ipv6Addr::new(0x2001, 0xdb8, 3, 7, 0x8000, 0, 0, random.word()),
        9 => Ipv6Addr::new(0x2001, 0xdb8, 3, 7, 0xc000, 0, 0, random.pick(&[0, 1, 2])),
        10..12 => behind(random, 4, random_subnet),
        12 => {
            let site = random.pick(&[0x18, 0x19]);
            behind(random, site, random_subnet)
        }
        13 => behind(random, 5, Random::word),
        14 => behind(random, 6, |random| random.pick(&[4, 5, 6])),
        15 => Ipv6Addr::new(0x2001, 0xdb8, 99, 0, 0, 0, 0, random.word()),
        16 => Ipv6Addr::new(0xfd00, random.word(), 0, 0, 0, 0, 0, 1),
        17 => random.pick(&[side.router_link_local(), side.routers(), side.other().routers()]),
        _ => random.pick(&Side::ALL).router_v6(),
    }
}

fn odd_source(random: &mut Random, side: Side) -> Ipv6Addr {
    random.pick(&[
        Ipv6Addr::UNSPECIFIED,
        Ipv6Addr::LOCALHOST,
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 7),
        side.host_link_local(1),
        side.host_link_local(2),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a01, 0x0001),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0x0a01, 0x0001),
        Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 1),
        Side::Lan.router_v6(),
        Side::Wan.router_v6(),
    ])
}

fn odd_destination(random: &mut Random, side: Side) -> Ipv6Addr {
    random.pick(&[
        Ipv6Addr::UNSPECIFIED,
        Ipv6Addr::LOCALHOST,
        Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 5),
        Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 7),
        side.router_link_local(),
        side.host_link_local(1),
        side.host_link_local(2),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a02, 0x0001),
        Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 1),
    ])
}

/// A mark: an ordinary datagram to a neighbour, from a sender that no redirect can reach.
pub fn mark(side: Side, to: Ipv6Addr, number: u32) -> Vec<u8> {
    let from = Ipv6Addr::new(0x2001, 0xdb8, 99, 0, 0, 0, 0, 9);
    datagram(side, 1, (from, to), &[&number.to_be_bytes(), MARK].concat())
}

/// An ordinary datagram from a host of `side`.
pub fn datagram(
    side: Side,
    host: u8,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    data: &[u8],
) -> Vec<u8> {
    let mut bytes = [9, 9, 9, 9, 0, 0, 0, 0].to_vec();
    bytes.extend(data);
    let len = bytes.len() as u16;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    let packet = Packet {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        source,
        destination,
        extensions: Vec::new(),
        body: generate::Body { protocol: UDP, bytes, sum_at: Some(6) },
    };
    link::ethernet(side, host, link::IPV6, &packet.bytes())
}
