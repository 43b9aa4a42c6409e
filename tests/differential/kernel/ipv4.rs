//! Packets of IPv4: headers (RFC 791 §3.1), and everything that RFC 1812 has a rule for.

use std::net::Ipv4Addr;

use super::generate::{self, Body, ICMP, UDP, body, checksum, oddities};
use super::link;
use super::plan::{self, Side, Way};
use super::twin::MARK;
use crate::random::Random;

/// A packet in parts.
struct Packet {
    tos: u8,
    identification: u16,
    fragment: u16,
    ttl: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    options: Vec<u8>,
    body: Body,
}

const DONT_FRAGMENT: u16 = 0x4000;

/// A packet from `side`, and what is odd about it.
pub fn packet(random: &mut Random, side: Side, odd: &mut Vec<&'static str>) -> Vec<u8> {
    let mut packet = Packet {
        tos: if random.percent(70) { 0 } else { random.byte() },
        identification: random.word(),
        fragment: if random.percent(50) { DONT_FRAGMENT } else { 0 },
        ttl: random.pick(&[64, 64, 64, 64, 255, 128, 3, 2]),
        source: source(random, side),
        destination: destination(random),
        options: Vec::new(),
        body: body(random, ICMP, side.mtu() - 60),
    };
    // Linux tells one sender of five routes that lead nowhere, then of one each second; a namespace has no
    // setting for it. Hence the many senders.
    if matches!(plan::way(packet.destination.into()), Way::None | Way::Nowhere(_)) {
        packet.source = behind(random, side);
    }
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..oddities(random) {
        let (name, change) = ODDITIES[random.below(ODDITIES.len())];
        odd.push(name);
        edits.extend(change(&mut packet, random, side));
    }
    let mut bytes = packet.bytes();
    for edit in edits {
        if bytes.len() >= 20 {
            edit(&mut bytes, random);
        }
    }
    bytes
}

/// A change to the bytes, when the packet is otherwise complete.
type Edit = fn(&mut Vec<u8>, &mut Random);
type Oddity = (&'static str, fn(&mut Packet, &mut Random, Side) -> Option<Edit>);

const ODDITIES: &[Oddity] = &[
    ("TTL at its end", |packet, random, _| {
        packet.ttl = random.pick(&[0, 1, 1]);
        None
    }),
    ("odd source", |packet, random, _| {
        packet.source = odd_source(random);
        None
    }),
    ("odd destination", |packet, random, _| {
        packet.destination = odd_destination(random);
        None
    }),
    ("a fragment", |packet, random, _| {
        let more = random.pick(&[0x2000, 0x2000, 0]);
        packet.fragment = packet.fragment & DONT_FRAGMENT | more | random.pick(&[0, 1, 185, 8189]);
        None
    }),
    ("large, and to be cut", |packet, random, side| {
        let len = side.mtu() - 60 - random.below(100);
        let large = random.bytes(len);
        packet.body = Body { protocol: 253, bytes: large, sum_at: None };
        packet.fragment = random.pick(&[0, 0, 0x2000, 0x2001, 1, 8100, 8189]);
        if random.percent(50) {
            packet.options = options(random);
        }
        None
    }),
    ("the reserved flag", |packet, _, _| {
        packet.fragment |= 0x8000;
        None
    }),
    ("options", |packet, random, _| {
        packet.options = options(random);
        None
    }),
    ("a broadcast with options", |packet, random, _| {
        packet.destination = random.pick(&Side::ALL).broadcast();
        packet.options = options(random);
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
    ("an odd code of ICMP", |packet, random, _| {
        if packet.body.protocol == ICMP && packet.body.bytes.len() >= 8 {
            packet.body.bytes[1] = random.pick(&[1, 4, 255]);
        }
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
    ("wrong header checksum", |_, _, _| Some(|bytes, random| bytes[10 + random.below(2)] ^= 0x10)),
    ("another version", |_, _, _| {
        Some(|bytes, random| {
            bytes[0] = bytes[0] & 0x0f | random.pick(&[0, 5, 6, 15]) << 4;
            sum_header(bytes);
        })
    }),
    ("wrong header length", |_, _, _| {
        Some(|bytes, random| {
            bytes[0] = bytes[0] & 0xf0 | random.pick(&[0, 1, 4, 6, 10, 15]);
            sum_header(bytes);
        })
    }),
    ("wrong total length", |_, _, _| {
        Some(|bytes, random| {
            let len = bytes.len();
            let wrong = random.pick(&[0, 19, 20, len - 1, len + 1, len + 8, 65_535]);
            bytes[2..4].copy_from_slice(&(wrong as u16).to_be_bytes());
            sum_header(bytes);
        })
    }),
    ("cut", |_, _, _| Some(|bytes, random| bytes.truncate(random.below(bytes.len().min(40))))),
];

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let total_len = (header_len + self.body.bytes.len()) as u16;
        let mut bytes = vec![0x40 | (header_len / 4) as u8, self.tos];
        bytes.extend(total_len.to_be_bytes());
        bytes.extend(self.identification.to_be_bytes());
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([self.ttl, self.body.protocol, 0, 0]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.extend(&self.options);
        bytes.extend(&self.body.bytes);
        sum_header(&mut bytes);
        if let Some(at) = self.body.sum_at.map(|at| header_len + at) {
            let protocol = self.body.protocol;
            let payload = &bytes[header_len..];
            let pseudo = [&bytes[12..20], &[0, protocol], &(payload.len() as u16).to_be_bytes()];
            let pseudo = if protocol == ICMP { Vec::new() } else { pseudo.concat() };
            let sum = match checksum(&[&pseudo, payload]) {
                0 if protocol == UDP => 0xffff, // RFC 768: 0 is for none.
                sum => sum,
            };
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }
}

/// Makes the header's checksum right, as far as the bytes hold one.
fn sum_header(bytes: &mut [u8]) {
    let header_len = (usize::from(bytes[0] & 0x0f) * 4).clamp(20, bytes.len());
    bytes[10..12].fill(0);
    let sum = checksum(&[&bytes[..header_len]]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// A host on the link, or behind one of them.
fn source(random: &mut Random, side: Side) -> Ipv4Addr {
    match random.below(4) {
        0..2 => side.host_v4(random.pick(&[1, 2])),
        2 => behind(random, side),
        // Neither router checks that the source is where a route to it would lead.
        _ => random.pick(&[
            side.other().host_v4(1),
            side.other().host_v4(2),
            Ipv4Addr::new(203, 0, 113, 7),
        ]),
    }
}

/// An address behind a host on the link.
fn behind(random: &mut Random, side: Side) -> Ipv4Addr {
    let site = [4, 3, 18, 19][side as usize];
    Ipv4Addr::new(10, site, random.byte(), random.byte() & 0x7f)
}

/// Where routes lead, of every kind.
fn destination(random: &mut Random) -> Ipv4Addr {
    let any = random.byte();
    match random.below(20) {
        0..3 => random.pick(&Side::ALL).host_v4(random.pick(&[1, 2])),
        3..7 => Ipv4Addr::new(10, 3, any, random.byte()),
        7..9 => Ipv4Addr::new(10, 3, 7, any),
        9 => Ipv4Addr::new(10, 3, 7, random.pick(&[127, 128, 199, 200, 201])),
        10..12 => Ipv4Addr::new(10, 4, random.pick(&[any, 7]), random.byte()),
        12 => Ipv4Addr::new(10, random.pick(&[18, 19]), any, random.byte()),
        13 => Ipv4Addr::new(172, random.pick(&[16, 19, 20, 23, 24, 31]), any, 1),
        14 => Ipv4Addr::new(172, 20, random.pick(&[4, 5, 6]), any),
        15 => Ipv4Addr::new(203, 0, 113, any),
        _ => random.pick(&Side::ALL).router_v4(),
    }
}

fn odd_source(random: &mut Random) -> Ipv4Addr {
    let any = random.byte();
    random.pick(&[
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(0, any, 2, 3),
        Ipv4Addr::new(127, 0, 0, any),
        Ipv4Addr::new(224, 0, 0, any),
        Ipv4Addr::new(239, any, 2, 3),
        Ipv4Addr::new(240, 0, 0, any),
        Ipv4Addr::BROADCAST,
        Side::Lan.broadcast(),
        Side::Customer.broadcast(),
        Ipv4Addr::new(169, 254, 1, any),
        Side::Lan.router_v4(),
        Side::Wan.router_v4(),
    ])
}

fn odd_destination(random: &mut Random) -> Ipv4Addr {
    let any = random.byte();
    random.pick(&[
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(0, any, 2, 3),
        Ipv4Addr::new(127, 0, 0, any),
        Ipv4Addr::new(224, 0, 0, 1 + any % 6),
        Ipv4Addr::new(239, any, 2, 3),
        Ipv4Addr::new(240, 0, 0, any),
        Ipv4Addr::BROADCAST,
        Side::Lan.broadcast(),
        Side::Customer.broadcast(),
        Ipv4Addr::new(169, 254, 1, any),
    ])
}

/// Options (RFC 791 §3.1), a multiple of four bytes: harmless, of the kinds that a router acts on, and
/// such as are none.
fn options(random: &mut Random) -> Vec<u8> {
    let mut options = Vec::new();
    for _ in 0..1 + random.below(3) {
        let one: &[u8] = random.pick(&[
            &[1],
            &[1, 1, 1],
            &[0],
            &[7, 7, 4, 0, 0, 0, 0],
            &[7, 7, 8, 1, 2, 3, 4],
            &[68, 8, 5, 0, 0, 0, 0, 0],
            &[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            &[68, 8, 9, 0x10, 1, 2, 3, 4],
            &[68, 8, 9, 0xf0, 1, 2, 3, 4],
            &[68, 12, 5, 3, 10, 2, 0, 254, 0, 0, 0, 0],
            &[68, 12, 5, 3, 10, 3, 0, 254, 0, 0, 0, 0],
            &[148, 4, 0, 0],
            &[130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[222, 6, 1, 2, 3, 4],
            &[30, 4, 9, 9],
            &[131, 7, 4, 10, 2, 0, 1],
            &[137, 7, 4, 10, 2, 0, 1],
            &[131, 7, 8, 10, 2, 0, 1],
            &[7, 7, 3, 0, 0, 0, 0],
            &[7, 2],
            &[68, 3, 5],
            &[200, 0],
            &[200, 1],
            &[200, 60],
        ]);
        options.extend(one);
    }
    options.truncate(40);
    let end = random.pick(&[0, 1]);
    options.resize(options.len().next_multiple_of(4), end);
    options
}

/// A mark: an ordinary datagram to a neighbour, from a sender that no redirect can reach.
pub fn mark(side: Side, to: Ipv4Addr, number: u32) -> Vec<u8> {
    let from = Ipv4Addr::new(203, 0, 113, 9);
    datagram(side, 1, (from, to), &[&number.to_be_bytes(), MARK].concat())
}

/// An ordinary datagram from a host of `side`.
pub fn datagram(
    side: Side,
    host: u8,
    (source, destination): (Ipv4Addr, Ipv4Addr),
    data: &[u8],
) -> Vec<u8> {
    let mut bytes = [9, 9, 9, 9, 0, 0, 0, 0].to_vec();
    bytes.extend(data);
    let len = bytes.len() as u16;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    let packet = Packet {
        tos: 0,
        identification: 0,
        fragment: DONT_FRAGMENT,
        ttl: 64,
        source,
        destination,
        options: Vec::new(),
        body: generate::Body { protocol: UDP, bytes, sum_at: Some(6) },
    };
    link::ethernet(side, host, link::IPV4, &packet.bytes())
}
