//! Pass 1 and 2: is this an ordinary packet to route, and where does its destination lead?

use manylane_frame::vocabulary::PortId;
use manylane_frame::{BATCH_MAX, Frame, View};
use manylane_sync::rcu::Guard;

use super::Tables;

/// What pass 1 says of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    /// An ordinary IPv4 packet: only the next hop decides.
    Ipv4,
    /// An ordinary IPv6 packet: only the next hop decides.
    Ipv6,
    /// Anything else.
    Odd,
}

/// What pass 1 found, by the frame's place in the batch.
pub(super) struct Checked {
    /// Bytes of the whole batch.
    pub bytes: u64,
    pub class: [Class; BATCH_MAX],
    /// Destination, for IPv4.
    ipv4: [u32; BATCH_MAX],
    /// Destinations of the IPv6 packets, one behind the other.
    ipv6: [u128; BATCH_MAX],
    ipv6_len: usize,
}

impl Checked {
    #[inline(always)]
    pub fn new() -> Checked {
        Checked {
            bytes: 0,
            class: [Class::Odd; BATCH_MAX],
            ipv4: [0; BATCH_MAX],
            ipv6: [0; BATCH_MAX],
            ipv6_len: 0,
        }
    }
}

/// Pass 1, over a batch from the device of `entry`.
#[inline(always)]
pub(super) fn check(
    region: View<'_>,
    tables: &Tables,
    entry: PortId,
    frames: &[Frame],
    checked: &mut Checked,
) {
    let mut batch_bytes = 0;
    let ours = station(tables.ports[entry.index()].mac.0);
    let places = checked.class.iter_mut().zip(&mut checked.ipv4);
    for (frame, (class, ipv4)) in frames.iter().zip(places) {
        let bytes = region.bytes(frame);
        debug_assert!(
            comes_by(tables, region.meta(frame).entry, entry),
            "a batch is of one device"
        );
        if frame.is_chained() {
            batch_bytes += region.meta(frame).packet_len() as u64;
            continue; // Odd, whatever is in it.
        }
        batch_bytes += bytes.len() as u64;
        if let Some(destination) = ordinary_ipv4(bytes, ours) {
            tables.ipv4.prefetch(destination);
            *ipv4 = destination;
            *class = Class::Ipv4;
        } else if let Some(destination) = ordinary_ipv6(bytes, ours) {
            tables.ipv6.prefetch(destination);
            checked.ipv6[checked.ipv6_len] = destination;
            checked.ipv6_len += 1;
            *class = Class::Ipv6;
        }
    }
    checked.bytes = batch_bytes;
}

/// Whether what came in by `entry` came by the device of `port`.
fn comes_by(tables: &Tables, entry: PortId, port: PortId) -> bool {
    tables.ports[entry.index()].vlan.map_or(entry, |vlan| vlan.port) == port
}

/// A MAC address as [`is_to`] compares it.
#[inline(always)]
fn station(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])
}

/// Whether a frame that begins so is for this station: one comparison of eight bytes, less two.
#[inline(always)]
fn is_to(head: [u8; 8], station: u64) -> bool {
    let [a, b, c, d, e, f, ..] = head;
    u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]) == station
}

/// Pass 2: the next hop of each ordinary packet; 0 for the others.
#[inline(always)]
pub(super) fn look_up(
    tables: &Tables,
    guard: Guard<'_>,
    len: usize,
    checked: &Checked,
) -> [u16; BATCH_MAX] {
    let mut next_hops = [0; BATCH_MAX];
    for ((next_hop, class), &destination) in
        next_hops.iter_mut().zip(&checked.class[..len]).zip(&checked.ipv4)
    {
        if *class == Class::Ipv4 {
            *next_hop = tables.ipv4.lookup(guard, destination).raw() as u16;
        }
    }
    if checked.ipv6_len > 0 {
        let mut found = [0; BATCH_MAX];
        let asked = &checked.ipv6[..checked.ipv6_len];
        tables.ipv6.lookup_batch(guard, asked, &mut found[..asked.len()]);
        let places = (0..len).filter(|&index| checked.class[index] == Class::Ipv6);
        for (place, next_hop) in places.zip(found) {
            next_hops[place] = next_hop;
        }
    }
    next_hops
}

/// The destination, if `bytes` is an Ethernet frame to `ours` with an IPv4 packet that no rule but the
/// route can stop: version 4, no options, lengths that fit, header checksum right, TTL left, and both
/// addresses unicast (RFC 1812 §5.2.2, §5.3.1, §5.3.7). A packet for ourselves passes too: that is its
/// route's answer.
#[inline(always)]
fn ordinary_ipv4(bytes: &[u8], ours: u64) -> Option<u32> {
    let head: &[u8; 34] = bytes.first_chunk()?;
    let to_us = is_to(*head.first_chunk()?, ours);
    let is_ipv4 = head[12..15] == [0x08, 0x00, 0x45];
    let total_len = usize::from(u16::from_be_bytes([head[16], head[17]]));
    let fits = (20..=bytes.len() - 14).contains(&total_len);
    let lives = head[22] > 1;
    let unicast = is_unicast(head[26]) & is_unicast(head[30]);
    let sum = header_sum(head) == 0xffff;
    let ordinary = to_us & is_ipv4 & fits & lives & unicast & sum;
    ordinary.then(|| u32::from_be(word(head, 30)))
}

/// Whether an IPv4 address with this first octet can be one station's: not 0/8, 127/8, nor 224/3.
#[inline(always)]
fn is_unicast(octet: u8) -> bool {
    (octet.wrapping_sub(1) < 223) & (octet != 127)
}

/// The ones-complement sum over the 20 bytes of the IPv4 header; 0xffff when its checksum is right
/// (RFC 1071).
#[inline(always)]
fn header_sum(head: &[u8; 34]) -> u16 {
    // The sum of 32-bit words folds to that of 16-bit words, and byte order does not matter for
    // 0xffff (RFC 1071 §2).
    let mut sum = 0;
    for at in [14, 18, 22, 26, 30] {
        sum += u64::from(word(head, at));
    }
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The destination, if `bytes` is an Ethernet frame to `ours` with an IPv6 packet that no rule but the
/// route can stop: version 6, length that fits, hop limit left, both addresses global unicast or
/// unique local (RFC 8200 §3, RFC 4291 §2.5). A hop-by-hop header is not examined (RFC 8200 §4.8).
#[inline(always)]
fn ordinary_ipv6(bytes: &[u8], ours: u64) -> Option<u128> {
    let head: &[u8; 54] = bytes.first_chunk()?;
    let to_us = is_to(*head.first_chunk()?, ours);
    let is_ipv6 = head[12..14] == [0x86, 0xdd] && head[14] >> 4 == 6;
    let payload_len = usize::from(u16::from_be_bytes([head[18], head[19]]));
    let fits = payload_len + 40 <= bytes.len() - 14;
    let lives = head[21] > 1;
    let source = u16::from_be_bytes([head[22], head[23]]);
    let address = head[38..54].try_into().ok().map(u128::from_be_bytes)?;
    let routable = is_routable(source) & is_routable((address >> 112) as u16);
    (to_us & is_ipv6 & fits & lives & routable).then_some(address)
}

/// Whether an IPv6 address with these first 16 bits leaves its link: not `::/8` (unspecified, loopback,
/// mapped), `fe80::/10` or `ff00::/8`.
#[inline(always)]
fn is_routable(first: u16) -> bool {
    (first >> 8 != 0) & (first >> 6 != 0xfe80 >> 6) & (first < 0xff00)
}

/// Four bytes as they lie in memory.
#[inline(always)]
fn word(head: &[u8; 34], at: usize) -> u32 {
    u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}
