//! Completes the transport checksum that a local stack left to its device.
//!
//! A Linux stack that expects its device to compute the checksum leaves only the pseudo-header's sum in the field,
//! *folded and not inverted* (`CHECKSUM_PARTIAL`, `include/linux/skbuff.h`). A veth pair has no such device, and AF_XDP
//! does not say which frames are in that state. The field does.
//!
//! # Why equality is a safe test
//!
//! Let P be the pseudo-header's sum and D the sum of the transport with a zero in the field, both as
//! numbers modulo 0xffff. P folds to 0x0001..=0xffff, for its bytes are not all zero (`checksum`, "The
//! two zeros"), and so every stack that folds it right folds it to the same 16 bits.
//!
//! - **A partial checksum always equals P**, so none is missed.
//! - **A valid checksum C that equals P by accident is not changed by a bit.** Valid means P + C + D = 0;
//!   completing writes C' = -(P + D) = C, the same number. The same number is the same bits except for
//!   the two zeros. If C is not zero, both are the only way to write it. If C is zero it is 0xffff,
//!   because it equals P, and then we leave 0xffff, for UDP (where 0 means "none") and for TCP
//!   alike, since it says what the checksum should say. So a signature or an outer checksum over it
//!   stays valid too.
//! - **A checksum that is *wrong* and equals P by accident becomes right**, and its damage can no longer be seen. The
//!   price is about one damaged packet in 65535, as many as a 16-bit sum misses anyway. Hence only ports that are known
//!   for partial checksums request repair.
//! - UDP's 0, "no checksum", never equals P.
//!
//! The second point needs the *right* P. While a source route or routing header has hops left, or
//! with a home address option, the header's addresses are not the pseudo-header's; then we keep away.
//!
//! # Inside
//!
//! One checksum of a packet can be partial (a device gets one place), and in a tunnel that is the inner one if the
//! inner packet is from a local stack. Linux then writes the *outer* checksum as it will be once the inner one is
//! complete ("local checksum offload", `Documentation/networking/checksum-offloads.rst`). So we complete the inner one
//! first.
//!
//! | around      | recognised by                        | inside                                      |
//! |-------------|--------------------------------------|---------------------------------------------|
//! | IP          | protocol 4 or 41 (RFC 2003, RFC 2473)| IP                                          |
//! | GRE         | protocol 47, version 0 (RFC 2890)    | IP or Ethernet                              |
//! | VXLAN       | UDP to port 4789 (RFC 7348)          | Ethernet                                    |
//! | Geneve      | UDP to port 6081 (RFC 8926)          | IP or Ethernet                              |
//!
//! Not looked at: SCTP, whose checksum is a CRC (Linux leaves it zero); tunnels on other ports;
//! anything encrypted, which was completed before.

use std::ops::Range;

use super::checksum::Sum;
use super::ethernet::{self, ether_type};
use super::ip::View;
use super::{be16, protocol, tcp, udp};

/// What became of a packet's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an inner packet that was not examined is counted"]
pub enum Repair {
    /// Nothing was partial, or nothing that we can read.
    Untouched,
    /// The checksum was partial, and is complete. (Or valid and equal by accident; then it still is.)
    Completed,
    /// A checksum may be partial where we do not look: in a second tunnel, in a tunnel's packet that we cannot read, or
    /// under a pseudo-header that we do not know.
    InnerUnknown,
}

/// Completes the transport checksum of an IP packet that is no fragment, if it is partial.
///
/// Costs, when nothing is to be done, the header and the sum of the pseudo-header.
#[inline]
pub fn repair(packet: &mut [u8]) -> Repair {
    repair_parted(packet, &[])
}

/// As [`repair`], for a packet whose front is in `packet` and whose other bytes are in `rest`, part by
/// part. Headers and checksums are looked for in the front only.
pub fn repair_parted(packet: &mut [u8], rest: &[&[u8]]) -> Repair {
    let len = packet.len() + rest.iter().map(|part| part.len()).sum::<usize>();
    level(packet, rest, len, Depth::Outer)
}

#[derive(Clone, Copy, PartialEq)]
enum Depth {
    Outer,
    Inner,
}

/// One IP packet: the front of it, the parts behind that, and how many bytes of all are its own.
fn level(packet: &mut [u8], rest: &[&[u8]], len: usize, depth: Depth) -> Repair {
    // A malformed outer packet is the forwarder's to drop; in a tunnel it means we misread it.
    let unreadable = if depth == Depth::Outer { Repair::Untouched } else { Repair::InnerUnknown };
    let Some(view) = View::front(packet, len) else { return unreadable };
    let Some(transport) = view.transport() else { return unreadable };
    // A router that fragments completes first: a partial sum is for one device and one packet.
    if !transport.fragment.is_whole() {
        return Repair::Untouched;
    }
    let whole = transport.offset..view.packet_len();
    let Some(bytes) = view.packet().get(transport.offset..) else { return unreadable };

    match transport.protocol {
        protocol::TCP | protocol::UDP if !transport.final_addresses => Repair::InnerUnknown,
        protocol::TCP => {
            let Some(pseudo) = view.pseudo_header(protocol::TCP, whole.len()) else {
                return unreadable;
            };
            // No need for a checked segment: the field is all that has to be there.
            complete(packet, rest, whole, tcp::CHECKSUM_OFFSET, pseudo)
        }
        protocol::UDP => {
            let Some(header) = bytes.first_chunk::<{ udp::HEADER_LEN }>() else {
                return unreadable;
            };
            let len = usize::from(be16(header[4], header[5]));
            if !(udp::HEADER_LEN..=whole.len()).contains(&len) {
                return unreadable;
            }
            let Some(pseudo) = view.pseudo_header(protocol::UDP, len) else { return unreadable };
            let find = tunnel(be16(header[2], header[3]));
            let whole = transport.offset..transport.offset + len;
            let inside = match find {
                Some(find) => inside(packet, rest, whole.clone(), find, depth),
                None => Repair::Untouched,
            };
            match complete(packet, rest, whole, udp::CHECKSUM_OFFSET, pseudo) {
                // Of two, one was partial: if the outer one, nothing is left to know.
                Repair::Completed => Repair::Completed,
                _ => inside,
            }
        }
        protocol::IPV4 | protocol::IPV6 => {
            inside(packet, rest, whole, |_| Some(Inner::Ip(0)), depth)
        }
        protocol::GRE => inside(packet, rest, whole, inside_gre, depth),
        _ => Repair::Untouched,
    }
}

/// Completes the checksum `at` this offset of the transport, if it is the pseudo-header's sum.
fn complete(
    packet: &mut [u8],
    rest: &[&[u8]],
    whole: Range<usize>,
    at: usize,
    pseudo: Sum,
) -> Repair {
    let here = whole.start..whole.end.min(packet.len());
    let Some(transport) = packet.get_mut(here) else { return Repair::Untouched };
    let field = match transport.get(at..at + 2) {
        Some(&[high, low]) => be16(high, low),
        _ => return Repair::Untouched,
    };
    if field != pseudo.fold() {
        return Repair::Untouched;
    }
    // The field holds the pseudo-header's sum, so the sum over the bytes has it already. A device does so, and
    // therefore the stack left it there.
    let (mut sum, mut summed) = (Sum::of(transport), transport.len());
    for part in rest {
        let part = &part[..part.len().min(whole.len() - summed)];
        sum = sum.plus_at(summed, part);
        summed += part.len();
    }
    // Zero has two spellings. UDP may not send 0; and 0xffff in its place means zero too.
    let is_udp = at == udp::CHECKSUM_OFFSET;
    let sum = sum.finish();
    let sum = if is_udp || field == 0xffff { udp::or_all_ones(sum) } else { sum };
    if let Some(field) = transport.get_mut(at..at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    Repair::Completed
}

/// What a tunnel header leads to, and how long the header is.
#[derive(Clone, Copy)]
enum Inner {
    Ip(usize),
    Ethernet(usize),
}

/// Reads a tunnel's header.
type Find = fn(&[u8]) -> Option<Inner>;

/// Repairs what a tunnel carries.
fn inside(
    packet: &mut [u8],
    rest: &[&[u8]],
    tunnel: Range<usize>,
    find: Find,
    depth: Depth,
) -> Repair {
    let here = tunnel.start..tunnel.end.min(packet.len());
    let Some(bytes) = packet.get_mut(here) else { return Repair::InnerUnknown };
    let start = match find(bytes) {
        _ if depth == Depth::Inner => return Repair::InnerUnknown,
        Some(Inner::Ip(start)) => start,
        Some(Inner::Ethernet(start)) => match ip_in_ethernet(bytes.get(start..)) {
            Some((ether_type::IPV4 | ether_type::IPV6, len)) => start + len,
            Some(_) => return Repair::Untouched, // ARP and the like have no such checksum.
            None => return Repair::InnerUnknown,
        },
        None => return Repair::InnerUnknown,
    };
    match bytes.get_mut(start..) {
        Some(inner) => level(inner, rest, tunnel.len() - start, Depth::Inner),
        None => Repair::InnerUnknown,
    }
}

/// The ether type behind at most two VLAN tags, and the length of the header with them.
fn ip_in_ethernet(frame: Option<&[u8]>) -> Option<(u16, usize)> {
    const TAGS_MAX: usize = 2;

    let frame = frame?;
    let mut ether_type = ethernet::View::checked(frame)?.ether_type();
    let mut len = ethernet::HEADER_LEN;
    for _ in 0..TAGS_MAX {
        if !ethernet::is_vlan(ether_type) {
            break;
        }
        let tag: &[u8; ethernet::VLAN_TAG_LEN] = frame.get(len..)?.first_chunk()?;
        ether_type = be16(tag[2], tag[3]);
        len += ethernet::VLAN_TAG_LEN;
    }
    (!ethernet::is_vlan(ether_type)).then_some((ether_type, len))
}

/// The tunnel that UDP to this port is.
fn tunnel(port: u16) -> Option<Find> {
    const VXLAN: u16 = 4789;
    const GENEVE: u16 = 6081;

    match port {
        VXLAN => Some(inside_vxlan),
        GENEVE => Some(inside_geneve),
        _ => None,
    }
}

/// RFC 2784 §2.1 with the key and the sequence number of RFC 2890 §2.
fn inside_gre(bytes: &[u8]) -> Option<Inner> {
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;

    let header: &[u8; 4] = bytes.first_chunk()?;
    let flags = be16(header[0], header[1]);
    // Any other bit is a version or a route (RFC 1701) we do not speak.
    if flags & !(CHECKSUM | KEY | SEQUENCE) != 0 {
        return None;
    }
    let optional = [CHECKSUM, KEY, SEQUENCE].iter().filter(|&&flag| flags & flag != 0).count();
    inner(be16(header[2], header[3]), 4 + 4 * optional)
}

/// RFC 7348 §5. The I flag must be set; reserved bits are ignored.
fn inside_vxlan(datagram: &[u8]) -> Option<Inner> {
    const HAS_NETWORK: u8 = 0x08;

    let header: &[u8; 8] = datagram.get(udp::HEADER_LEN..)?.first_chunk()?;
    (header[0] & HAS_NETWORK != 0).then_some(Inner::Ethernet(udp::HEADER_LEN + 8))
}

/// RFC 8926 §3.4. Version 0; the options' length counts words of four bytes.
fn inside_geneve(datagram: &[u8]) -> Option<Inner> {
    let header: &[u8; 8] = datagram.get(udp::HEADER_LEN..)?.first_chunk()?;
    if header[0] >> 6 != 0 {
        return None;
    }
    let options_len = usize::from(header[0] & 0x3f) * 4;
    inner(be16(header[2], header[3]), udp::HEADER_LEN + 8 + options_len)
}

fn inner(ether_type: u16, start: usize) -> Option<Inner> {
    match ether_type {
        ether_type::IPV4 | ether_type::IPV6 => Some(Inner::Ip(start)),
        ether_type::ETHERNET => Some(Inner::Ethernet(start)),
        _ => None,
    }
}

#[cfg(all(test, not(manylane_loom)))]
mod tests;
