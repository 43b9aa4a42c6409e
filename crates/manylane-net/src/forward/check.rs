//! Pass 1 and 2: can this packet take the fast path, and where does its destination lead?
//!
//! Headers are read in words of 4 and 8 bytes. The tests are those of `slow` and may be stricter, never
//! laxer: a packet that fails one is an exception, and `slow` finds out why.

use manylane_frame::vocabulary::PortId;
use manylane_frame::{BATCH_MAX, Frame, Packet, View};
use manylane_sync::rcu::{Guard, Index};

use super::{NextHopMark, Tables};

/// What pass 1 and 2 found, by the frame's place in the batch. Kept from batch to batch for its memory:
/// places that a batch has not written are left from an earlier one, and are not read, or to no effect.
pub(super) struct Checked {
    /// Bytes of the whole batch.
    pub bytes: u64,
    /// A bit for each place: the packet is an exception.
    exceptions: u64,
    /// A bit for each place: a fast-path packet of IPv6; with neither bit set, of IPv4.
    ipv6: u64,
    /// How many those are: where the next one's destination goes.
    ipv6_len: usize,
    /// Destinations of the IPv4 packets.
    to_ipv4: [u32; BATCH_MAX],
    /// Destinations of the IPv6 packets, one behind the other.
    to_ipv6: [u128; BATCH_MAX],
    /// Raw ids of next hops.
    next_hops: [u16; BATCH_MAX],
    /// Raw indices of the records of the neighbours that next hops are.
    records: [u32; BATCH_MAX],
}

const _: () = assert!(BATCH_MAX == u64::BITS as usize, "a bit for each place");

impl Checked {
    pub fn new() -> Checked {
        Checked {
            bytes: 0,
            exceptions: 0,
            ipv6: 0,
            ipv6_len: 0,
            to_ipv4: [0; BATCH_MAX],
            to_ipv6: [0; BATCH_MAX],
            next_hops: [0; BATCH_MAX],
            records: [0; BATCH_MAX],
        }
    }

    /// The first place from `at` on, below [`BATCH_MAX`], of an exception; without one, a place beyond the batch.
    #[inline(always)]
    pub fn next_exception(&self, at: usize) -> usize {
        at + (self.exceptions >> at).trailing_zeros() as usize
    }

    /// A bit for each place from `at` on, set for a fast-path packet of IPv6.
    #[inline(always)]
    pub fn ipv6(&self, at: usize) -> u64 {
        self.ipv6 >> at
    }

    /// The raw index of the neighbour's record, of the fast-path packet at each place from `at` on.
    #[inline(always)]
    pub fn records(&self, at: usize) -> &[u32] {
        &self.records[at..]
    }

    /// The next hop of the packet at `place`, if that takes the fast path.
    pub fn next_hop<'g>(&self, guard: Guard<'g>, place: usize) -> Option<Index<'g, NextHopMark>> {
        let is_fast = self.exceptions >> place & 1 == 0;
        is_fast.then(|| Index::new(guard, self.next_hops[place].into()))
    }
}

/// A bit for each of the first `len` places.
#[inline(always)]
pub(super) fn all(len: usize) -> u64 {
    u64::MAX.checked_shr(u64::BITS - len as u32).unwrap_or(0)
}

/// Pass 1, over a batch from the device of `ingress`.
#[inline(never)]
pub(super) fn check(
    region: View<'_>,
    tables: &Tables,
    ingress: PortId,
    frames: &[Frame],
    checked: &mut Checked,
) {
    let ours = station(tables.ports[ingress.index()].mac.0);
    let mut bytes = 0;
    (checked.exceptions, checked.ipv6, checked.ipv6_len) = (0, 0, 0);
    // Not a loop, which keeps a second count: registers are short here.
    region.packets(frames).enumerate().for_each(|(place, packet)| {
        debug_assert!(comes_by(tables, packet.meta.ingress, ingress), "a batch is of one device");
        bytes += packet.bytes.len();
        match fast_path(packet, ours) {
            Some(Destination::Ipv4(destination)) => {
                tables.ipv4.prefetch(destination);
                checked.to_ipv4[place] = destination;
            }
            // `lookup_batch` prefetches the memory of these, some of them at a time.
            Some(Destination::Ipv6(destination)) => {
                checked.ipv6 |= 1 << place;
                checked.to_ipv6[checked.ipv6_len] = destination;
                checked.ipv6_len += 1;
            }
            None => {
                checked.exceptions |= 1 << place;
                bytes += packet.meta.packet_len() - packet.bytes.len(); // What lies in other frames.
            }
        }
    });
    checked.bytes = bytes as u64;
}

/// Whether a packet received by `ingress` arrived by the device of `port`.
fn comes_by(tables: &Tables, ingress: PortId, port: PortId) -> bool {
    tables.ports[ingress.index()].vlan.map_or(ingress, |vlan| vlan.port) == port
}

/// Pass 2: the next hop of each fast-path packet, and the record of its neighbour, which pass 3 is to read.
#[inline(never)]
pub(super) fn look_up(tables: &Tables, guard: Guard<'_>, len: usize, checked: &mut Checked) {
    let Checked { exceptions, ipv6, ipv6_len, to_ipv4, to_ipv6, next_hops, records, .. } = checked;
    let ipv6_len = *ipv6_len;
    let (next_hops, records) = (&mut next_hops[..len], &mut records[..len]);
    if *exceptions | *ipv6 != all(len) {
        // Also of the places with a destination of some earlier batch: a test would cost more.
        let places = next_hops.iter_mut().zip(&mut *records);
        for ((next_hop, record), &destination) in places.zip(&*to_ipv4) {
            *next_hop = tables.ipv4.lookup(guard, destination).raw() as u16;
            *record = prefetch_adjacency(tables, guard, *next_hop);
        }
    }
    let to_ipv6 = &to_ipv6[..ipv6_len];
    if ipv6_len == len {
        tables.ipv6.lookup_batch(guard, to_ipv6, next_hops);
        for (next_hop, record) in next_hops.iter().zip(records) {
            *record = prefetch_adjacency(tables, guard, *next_hop);
        }
    } else if ipv6_len > 0 {
        let mut found = [0; BATCH_MAX];
        tables.ipv6.lookup_batch(guard, to_ipv6, &mut found[..ipv6_len]);
        let mut places = *ipv6;
        for next_hop in &found[..ipv6_len] {
            let place = places.trailing_zeros() as usize;
            next_hops[place] = *next_hop;
            records[place] = prefetch_adjacency(tables, guard, *next_hop);
            places &= places - 1; // The lowest bit is done.
        }
    }
}

/// The raw index of the record of the neighbour that a next hop is. Two words on the path, for a line that is
/// prefetched one pass before it is read: with many neighbours it is in no near cache.
#[inline(always)]
fn prefetch_adjacency(tables: &Tables, guard: Guard<'_>, next_hop: u16) -> u32 {
    let next_hop: Index<'_, NextHopMark> = Index::new(guard, next_hop.into());
    tables.adjacencies.prefetch(guard, tables.next_hops.via(guard, next_hop)).raw()
}

/// A MAC address as [`is_to`] compares it.
#[inline(always)]
fn station(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([0, 0, a, b, c, d, e, f])
}

/// Whether a frame that begins so is for this station: one comparison of eight bytes, less two.
#[inline(always)]
fn is_to(start: u64, station: u64) -> bool {
    start << 16 == station
}

/// Where a packet on the fast path goes.
enum Destination {
    Ipv4(u32),
    Ipv6(u128),
}

/// The destination, if it is in one Ethernet frame to `ours` with a packet that no rule but the route can stop. A packet
/// for ourselves passes too: that is its route's answer.
#[inline(always)]
fn fast_path(packet: Packet<'_>, ours: u64) -> Option<Destination> {
    let head: &[u8; 34] = packet.bytes.first_chunk()?;
    if packet.is_chained | !is_to(word8(head, 0), ours) {
        return None;
    }
    // The EtherType, and the first byte of the packet.
    let kind = word4(head, 11) >> 8;
    if kind == u32::from_le_bytes([0x08, 0x00, 0x45, 0]) {
        fast_path_ipv4(head, packet.bytes.len()).map(Destination::Ipv4)
    } else if kind & 0x00f0_ffff == u32::from_le_bytes([0x86, 0xdd, 0x60, 0]) {
        fast_path_ipv6(packet.bytes).map(Destination::Ipv6)
    } else {
        None
    }
}

/// An IPv4 packet's destination, if it has version 4, no options, lengths that fit, the right header checksum and TTL left,
/// and both addresses are unicast (RFC 1812 §5.2.2, §5.3.1, §5.3.7).
#[inline(always)]
fn fast_path_ipv4(head: &[u8; 34], len: usize) -> Option<u32> {
    let (first, second, to) = (word8(head, 14), word8(head, 22), word4(head, 30));
    // From 20 bytes to all bytes behind the Ethernet header.
    let total_len = ((first >> 16) as u16).swap_bytes();
    let fits = total_len.wrapping_sub(20) <= (len - 34) as u16;
    let lives = second as u8 > 1;
    let unicast = UNICAST[usize::from((second >> 32) as u8)] & UNICAST[usize::from(to as u8)];
    let intact = is_multiple_of_0xffff(plus(plus(first, second), to.into()));
    (fits & lives & unicast & intact).then_some(to.swap_bytes())
}

/// By the first octet, whether an IPv4 address can be one station's: not 0/8, 127/8, nor 224/3.
static UNICAST: [bool; 256] = {
    let mut unicast = [false; 256];
    let mut octet = 1;
    while octet < 224 {
        unicast[octet] = octet != 127;
        octet += 1;
    }
    unicast
};

/// The sum with its carry brought around.
#[inline(always)]
fn plus(sum: u64, word: u64) -> u64 {
    let (sum, carry) = sum.overflowing_add(word);
    sum + u64::from(carry)
}

/// Whether an IPv4 header with this sum of its words has the right checksum: their ones-complement sum is
/// 0xffff (RFC 1071). That sum is one modulo 0xffff, and so is one of longer words, in either byte order
/// (§2); none is 0, since the words are not.
#[inline(always)]
fn is_multiple_of_0xffff(sum: u64) -> bool {
    // Multiples become the numbers up to the largest quotient when multiplied by the inverse modulo 2^64.
    const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
    const _: () = assert!(INVERSE.wrapping_mul(0xffff) == 1);
    sum.wrapping_mul(INVERSE) <= u64::MAX / 0xffff
}

/// An IPv6 packet's destination, if its length fits, its hop limit is left, and both addresses are global unicast or unique
/// local (RFC 8200 §3, RFC 4291 §2.5). A hop-by-hop header is not examined (RFC 8200 §4.8).
#[inline(always)]
fn fast_path_ipv6(bytes: &[u8]) -> Option<u128> {
    let head: &[u8; 54] = bytes.first_chunk()?;
    let payload_len = usize::from(u16::from_be_bytes([head[18], head[19]]));
    let fits = payload_len.wrapping_sub(1) < bytes.len() - 54; // Without payload, it may be a jumbogram.
    let lives = head[21] > 1;
    let (upper, lower) = (word8(head, 38).swap_bytes(), word8(head, 46).swap_bytes());
    let routable = is_routable(head[22]) & is_routable((upper >> 56) as u8);
    (fits & lives & routable).then_some(u128::from(upper) << 64 | u128::from(lower))
}

/// Whether an IPv6 address with this first octet surely leaves its link: not `::/8` (unspecified,
/// loopback, mapped), `fe00::/8` (link-local, and neighbours of that) or `ff00::/8`.
#[inline(always)]
fn is_routable(octet: u8) -> bool {
    octet.wrapping_sub(1) < 0xfd
}

/// Four bytes of a header, the first the lowest.
#[inline(always)]
fn word4<const N: usize>(head: &[u8; N], at: usize) -> u32 {
    head[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Eight bytes of a header, the first the lowest.
#[inline(always)]
fn word8<const N: usize>(head: &[u8; N], at: usize) -> u64 {
    head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
