//! Packets: which, and what is odd about them.

use super::plan::Side;
use super::{ipv4, ipv6, link};
use crate::random::Random;

/// A packet to be sent to both routers.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Its place in the run: with the seed, all that it takes to make it again.
    pub number: u64,
    /// The link it is sent by.
    pub side: Side,
    /// The frame, Ethernet header included.
    pub frame: Vec<u8>,
    /// What it carries between addresses and type, besides the tags of its link.
    pub tags: &'static [u8],
    /// What is odd about it, for the reader of a failure.
    pub odd: Vec<&'static str>,
}

/// Packets that are sent one behind the other from one side, so that a router has them in one batch.
pub const BURST: u64 = 16;

/// Packet `number` of a run.
pub fn shot(seed: u64, number: u64) -> Shot {
    let side = Random::of_packet(!seed, number / BURST).pick(&Side::ALL);
    let random = &mut Random::of_packet(seed, number);
    let mut odd = Vec::new();
    let frame = match random.below(100) {
        0..44 => link::frame(random, side, link::IPV4, &mut odd, ipv4::packet),
        44..88 => link::frame(random, side, link::IPV6, &mut odd, ipv6::packet),
        88..94 => link::arp(random, side, &mut odd),
        _ => link::discovery(random, side, &mut odd),
    };
    let tags = link::odd_tags(random, side, frame.len(), &mut odd);
    Shot { number, side, frame, tags, odd }
}

/// How many oddities a packet has: half of all have none.
pub fn oddities(random: &mut Random) -> usize {
    [0, 0, 0, 0, 0, 1, 1, 1, 1, 2][random.below(10)]
}

/// How long a payload is: mostly short, sometimes around what the links carry.
pub fn payload_len(random: &mut Random, room: usize) -> usize {
    let len = match random.below(10) {
        0..7 => random.below(120),
        7 => random.below(1500),
        8 => 1280 + random.below(220),
        _ => 1352 + random.below(30),
    };
    len.min(room)
}

/// The internet checksum over `parts` as if they were one (RFC 1071); all but the last of even length.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for two in part.chunks(2) {
            sum += u64::from(two[0]) << 8 | u64::from(*two.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What a packet carries: the transport's protocol, and its bytes but for the checksum.
#[derive(Clone, Debug)]
pub struct Body {
    pub protocol: u8,
    pub bytes: Vec<u8>,
    /// Where the checksum goes.
    pub sum_at: Option<usize>,
}

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;

/// Any transport, of at most `room` bytes, which are at least 8.
pub fn body(random: &mut Random, icmp: u8, room: usize) -> Body {
    let payload = |random: &mut Random, header| {
        let len = payload_len(random, room - header);
        random.bytes(len)
    };
    match random.below(100) {
        0..45 => {
            let payload = payload(random, 8);
            let mut bytes = random.bytes(4); // Ports.
            bytes.extend((8 + payload.len() as u16).to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(payload);
            Body { protocol: UDP, bytes, sum_at: Some(6) }
        }
        45..65 if room >= 20 => {
            let payload = payload(random, 20);
            let mut bytes = random.bytes(12);
            // No options; no RST, or no answer is due.
            bytes.extend([0x50, random.byte() & 0x3b, 1, 0, 0, 0, 0, 0]);
            bytes.extend(payload);
            Body { protocol: TCP, bytes, sum_at: Some(16) }
        }
        65..85 => {
            let request = if icmp == ICMP { 8 } else { 128 };
            let payload = payload(random, 8);
            let mut bytes = vec![request, 0, 0, 0];
            bytes.extend(random.bytes(4));
            bytes.extend(payload);
            Body { protocol: icmp, bytes, sum_at: Some(2) }
        }
        85..92 => {
            let payload = payload(random, 8);
            let mut bytes = vec![icmp_kind(random, icmp), random.pick(&[0, 0, 0, 1, 4]), 0, 0];
            bytes.extend(random.bytes(4));
            bytes.extend(payload);
            Body { protocol: icmp, bytes, sum_at: Some(2) }
        }
        _ => {
            let protocol = random.pick(&[0, 2, 4, 41, 47, 50, 51, 89, 132, 136, 253, 255]);
            // In front of a packet of IPv6 these announce another extension header.
            let protocol =
                if icmp == ICMPV6 && matches!(protocol, 0 | 51) { 253 } else { protocol };
            Body { protocol, bytes: payload(random, 0), sum_at: None }
        }
    }
}

/// Any kind of message but neighbour discovery, which has its own place, and what makes a router wait.
fn icmp_kind(random: &mut Random, icmp: u8) -> u8 {
    if icmp == ICMP {
        random.pick(&[0, 3, 4, 5, 8, 9, 10, 11, 12, 13, 15, 17, 30, 42, 200])
    } else {
        random.pick(&[0, 1, 2, 3, 4, 100, 127, 128, 129, 138, 139, 200, 255])
    }
}
