//! Checksums that are still to be filled in: the twin of `partial.h`, which the program in the driver has.
//!
//! A sender that leaves a TCP or UDP checksum to its device writes the folded sum of the pseudo-header in its place, not
//! inverted (`CHECKSUM_PARTIAL`). That the checksum is open stands beside the bytes, where a program in the driver does
//! not see it: so such a frame is found by its sum, and left to the program at ingress.
//!
//! A complete checksum equals that sum by chance once in 65,535 packets. Such a packet is left to the ingress too, and
//! is forwarded there as it is.

use crate::wire::ip::{self, Fragment};
use crate::wire::{ethernet, ipv6, protocol, tcp, udp};

/// Whether the TCP or UDP checksum in a frame is still to be filled in. Only for frames that are forwarded: their
/// headers are right. IPv4 fragments and IPv6 packets with extension headers have no such checksum.
pub fn has_partial_checksum(frame: &[u8]) -> bool {
    let link = ethernet::View::checked(frame);
    link.and_then(|link| is_partial(link.payload())).unwrap_or(false)
}

/// `None` where the checksum cannot be read. Where the packet ends in front of its checksum, padding is read, as by the
/// program.
fn is_partial(bytes: &[u8]) -> Option<bool> {
    let packet = ip::View::checked(bytes)?;
    let (protocol, at) = match packet {
        ip::View::V4(view) if view.fragment() != Fragment::None => return None,
        ip::View::V4(view) => (view.protocol(), view.header_len()),
        ip::View::V6(view) => (view.next_header(), ipv6::HEADER_LEN),
    };
    let word = |offset: usize| bytes.get(at + offset..)?.first_chunk().copied();
    let word = |offset| word(offset).map(u16::from_be_bytes);
    let (len, checksum) = match protocol {
        // UDP's pseudo-header has UDP's own length (RFC 768).
        protocol::UDP => (word(UDP_LEN)?.into(), word(udp::CHECKSUM_OFFSET)?),
        protocol::TCP => (packet.packet_len() - at, word(tcp::CHECKSUM_OFFSET)?),
        _ => return None,
    };
    // A folded sum is never 0, which says of UDP that it has no checksum.
    Some(checksum == packet.pseudo_header(protocol, len)?.fold())
}

/// Where the length stands in a UDP header.
const UDP_LEN: usize = 4;

#[cfg(all(test, not(manylane_loom)))]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::wire::checksum::Sum;
    use crate::wire::ethernet::{Mac, ether_type};
    use crate::wire::ipv4;

    const FROM: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
    const TO: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
    const FROM6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
    const TO6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);

    /// A frame of either family and protocol, with `checksum` made of the pseudo-header's sum.
    fn frame(is_ipv6: bool, protocol: u8, checksum: impl Fn(Sum, &[u8]) -> u16) -> Vec<u8> {
        let (mut transport, at) = match protocol {
            protocol::TCP => (vec![7; 60], tcp::CHECKSUM_OFFSET),
            _ => (vec![7; 60], udp::CHECKSUM_OFFSET),
        };
        if protocol == protocol::UDP {
            transport[UDP_LEN..UDP_LEN + 2].copy_from_slice(&60u16.to_be_bytes());
        }
        transport[at..at + 2].fill(0);
        let sum = match is_ipv6 {
            true => Sum::pseudo_v6(FROM6, TO6, protocol, 60),
            false => Sum::pseudo_v4(FROM, TO, protocol, 60),
        };
        let checksum = checksum(sum, &transport);
        transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        let mut packet = vec![0; if is_ipv6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN }];
        if is_ipv6 {
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                next_header: protocol,
                hop_limit: 64,
                source: FROM6,
                destination: TO6,
            };
            header.emit(&mut packet, transport.len()).expect("it fits");
        } else {
            let header = ipv4::Header {
                tos: 0,
                identification: 0,
                dont_fragment: true,
                ttl: 64,
                protocol,
                source: FROM,
                destination: TO,
            };
            header.emit(&mut packet, transport.len()).expect("it fits");
        }
        let mut frame = vec![0; ethernet::HEADER_LEN];
        let ether_type = if is_ipv6 { ether_type::IPV6 } else { ether_type::IPV4 };
        let [to, from] = [2, 3].map(|last| Mac([2, 0, 0, 0, 0, last]));
        ethernet::emit(&mut frame, to, from, ether_type).expect("room");
        frame.extend(packet);
        frame.extend(transport);
        frame
    }

    #[test]
    fn a_checksum_that_is_the_sum_of_the_pseudo_header_is_still_to_be_filled_in() {
        for (is_ipv6, protocol) in
            [false, true].into_iter().flat_map(|six| [(six, protocol::TCP), (six, protocol::UDP)])
        {
            let partial = frame(is_ipv6, protocol, |sum, _| sum.fold());
            assert!(has_partial_checksum(&partial), "{is_ipv6} {protocol}");
            let complete = frame(is_ipv6, protocol, |sum, bytes| sum.plus(bytes).finish());
            assert!(!has_partial_checksum(&complete), "{is_ipv6} {protocol}");
            let none = frame(is_ipv6, protocol, |_, _| 0);
            assert!(!has_partial_checksum(&none), "{is_ipv6} {protocol}");
            // Behind Ethernet's padding, and cut off in front of the checksum.
            let padded = [&partial[..], &[0; 6]].concat();
            assert!(has_partial_checksum(&padded), "{is_ipv6} {protocol}");
            (0..partial.len() - 50).for_each(|len| assert!(!has_partial_checksum(&partial[..len])));
        }
    }

    #[test]
    fn other_protocols_and_fragments_have_no_such_checksum() {
        for is_ipv6 in [false, true] {
            let other = frame(is_ipv6, protocol::DCCP, |sum, _| sum.fold());
            assert!(!has_partial_checksum(&other), "{is_ipv6}");
        }
        let mut fragment = frame(false, protocol::UDP, |sum, _| sum.fold());
        fragment[20] = 0x20; // More fragments.
        assert!(!has_partial_checksum(&fragment));
    }
}
