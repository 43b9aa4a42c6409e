//! Whether a frame is a packet for a router: link header, IP header, addresses, TTL.

use super::{Port, Transit, check};
use crate::transit::Verdict;
use crate::transit::layout::flags;
use crate::wire::ethernet::{self, HEADER_LEN as LINK_HEADER, ether_type};
use crate::wire::ip::View;
use crate::wire::{ipv4, ipv6, protocol};

impl Transit {
    /// The packet in a frame that is for us on the link, with a header that is right.
    pub(super) fn addressed_to_us<'a>(
        &self,
        ingress: Port,
        frame: &'a [u8],
    ) -> Result<View<'a>, Verdict> {
        let link = ethernet::View::checked(frame).ok_or(Verdict::Malformed)?;
        let destination = link.destination();
        if destination != self.mac(ingress) {
            // RFC 1812 §5.3.4: what came to all stations is not forwarded.
            let is_group = destination.is_group();
            return Err(if is_group { Verdict::LinkGroup } else { Verdict::NotForUs });
        }
        let packet = match link.ether_type() {
            ether_type::IPV4 => ipv4::View::checked(link.payload()).map(View::V4),
            ether_type::IPV6 => ipv6::View::checked(link.payload()).map(View::V6),
            _ => return Err(Verdict::NotIp),
        };
        let packet = packet.ok_or(Verdict::Malformed)?;
        // The kernel cuts off what is behind a packet. Ethernet's padding may stay, which is there again on
        // the next link; anything longer would be more than the packet's own length says.
        let is_padding = frame.len() <= ETHERNET_LEN_MIN;
        let is_cut = frame.len() == LINK_HEADER + packet.packet_len();
        check(is_padding || is_cut, Verdict::Malformed)?;
        match packet {
            View::V4(packet) => {
                check(packet.has_valid_checksum(), Verdict::BadChecksum)?;
                check(packet.header_len() == ipv4::HEADER_LEN, Verdict::Options)?;
            }
            View::V6(packet) => {
                let is_for_routers =
                    matches!(packet.next_header(), protocol::HOP_BY_HOP | protocol::ROUTING);
                check(!is_for_routers, Verdict::Options)?;
            }
        }
        Ok(packet)
    }

    /// Whether a packet may be forwarded at all, wherever to.
    pub(super) fn may_be_forwarded(&self, ingress: Port, packet: &View<'_>) -> Result<(), Verdict> {
        match packet {
            View::V4(packet) => may_forward_ipv4(ingress, *packet),
            View::V6(packet) => may_forward_ipv6(ingress, *packet),
        }
    }
}

/// RFC 1812 §5.3.1, §5.3.7.
fn may_forward_ipv4(ingress: Port, packet: ipv4::View<'_>) -> Result<(), Verdict> {
    let (source, destination) = (packet.source(), packet.destination());
    check(ingress.has(flags::FORWARDING_V4), Verdict::NotForwarding)?;
    check(!ipv4::is_martian_source(source), Verdict::Martian)?;
    check(!ipv4::is_martian_destination(destination), Verdict::Martian)?;
    check(!destination.is_broadcast(), Verdict::Martian)?;
    check(!destination.is_multicast(), Verdict::Group)?;
    check(packet.ttl() > 1, Verdict::Ttl)
}

/// RFC 8200 §3, RFC 4291 §2.5.
fn may_forward_ipv6(ingress: Port, packet: ipv6::View<'_>) -> Result<(), Verdict> {
    let (source, destination) = (packet.source(), packet.destination());
    check(ingress.has(flags::FORWARDING_V6), Verdict::NotForwarding)?;
    check(!ipv6::is_martian_source(source), Verdict::Martian)?;
    check(!source.is_unicast_link_local(), Verdict::Martian)?;
    if destination.is_multicast() {
        return Err(Verdict::Group);
    }
    check(!ipv6::is_martian_destination(destination), Verdict::Martian)?;
    check(!destination.is_unicast_link_local(), Verdict::Martian)?;
    check(packet.hop_limit() > 1, Verdict::Ttl)
}

/// The shortest Ethernet frame, without its checksum (IEEE 802.3 §3.2.8): senders pad to it.
const ETHERNET_LEN_MIN: usize = 60;
