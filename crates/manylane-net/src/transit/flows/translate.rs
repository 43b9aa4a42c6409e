//! What a translation does to a frame: the twin of `translate.h`.

use crate::wire::ethernet::HEADER_LEN as LINK_HEADER;
use crate::wire::{ipv4, ipv6, protocol, tcp, udp};

use super::{Key, Tuple};

/// By how much the sums over two tuples differ, addresses and ports apart: what a checksum's sum grows by.
pub(super) fn differences(from: Tuple, to: Tuple) -> [u16; 2] {
    let [old, new] = [from, to].map(|tuple| {
        let Key { addresses, ends } = Key::of(tuple);
        let addresses: Vec<u8> = addresses.into_iter().flat_map(u64::to_ne_bytes).collect();
        [sum_of(&addresses), sum_of(&(ends as u32).to_ne_bytes())]
    });
    [0, 1].map(|part| {
        let (old, new): (u16, u16) = (old[part], new[part]);
        let sum = u32::from(!old) + u32::from(new);
        let sum = (sum & 0xffff) + (sum >> 16);
        // Of the two zeroes of this arithmetic, the one that says that nothing changes.
        if sum == 0xffff { 0 } else { sum as u16 }
    })
}

/// The ones-complement sum of bytes, as a word of memory.
fn sum_of(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.as_chunks().0.iter().map(|pair| u32::from(u16::from_ne_bytes(*pair))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

/// Writes what leaves in place of a packet: `to`. Its header is right and has no options; its checksum is complete, or
/// with `is_partial` the sum of its pseudo-header. `differences` are those from what arrived.
pub(in crate::transit) fn translate(
    frame: &mut [u8],
    to: Tuple,
    [addresses, ports]: [u16; 2],
    is_partial: bool,
) {
    let key = Key::of(to);
    let header = if key.is_ipv6() { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
    let at = LINK_HEADER + header;
    if key.is_ipv6() {
        let bytes = key.addresses.map(u64::to_ne_bytes).concat();
        frame[LINK_HEADER + 8..at].copy_from_slice(&bytes);
    } else {
        add(frame, LINK_HEADER + 10, addresses.into(), false);
        frame[LINK_HEADER + 12..at].copy_from_slice(&key.addresses[0].to_ne_bytes());
    }
    frame[at..at + 4].copy_from_slice(&(key.ends as u32).to_ne_bytes());
    let (place, is_udp) = match to.protocol {
        protocol::TCP => (at + tcp::CHECKSUM_OFFSET, false),
        _ => (at + udp::CHECKSUM_OFFSET, true),
    };
    let has_none = is_udp && frame[place..place + 2] == [0, 0];
    if has_none {
        return;
    }
    let by =
        if is_partial { u32::from(addresses) } else { u32::from(addresses) + u32::from(ports) };
    add(frame, place, by, is_partial);
    // 0 would say that the sender computed none (RFC 768).
    if is_udp && frame[place..place + 2] == [0, 0] {
        frame[place..place + 2].copy_from_slice(&[0xff, 0xff]);
    }
}

/// Lets a checksum's sum grow (RFC 1624); it is inverted, but for a partial one.
fn add(frame: &mut [u8], at: usize, by: u32, is_partial: bool) {
    let checksum = u16::from_ne_bytes([frame[at], frame[at + 1]]);
    let invert = |word: u16| if is_partial { word } else { !word };
    let sum = u32::from(invert(checksum)) + by;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum + (sum >> 16)) as u16;
    frame[at..at + 2].copy_from_slice(&invert(sum).to_ne_bytes());
}
