//! A packet's headers in a line, as `manylane trace` shows what was received.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::ethernet::{self, HEADER_LEN, Tags, VLAN_TAG_LEN, ether_type};
use super::{ip, protocol};

/// The line of a packet that begins so.
pub fn line(bytes: &[u8]) -> String {
    let Some(link) = ethernet::View::checked(bytes) else { return "no Ethernet header".into() };
    let tags = [2, 1].into_iter().find_map(|count| Tags::of(bytes, count)).unwrap_or(Tags::NONE);
    let behind = HEADER_LEN + tags.as_bytes().len();
    let ether_type = match tags.any() {
        true => {
            bytes.get(behind - 2..behind).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]))
        }
        false => link.ether_type(),
    };
    let packet = bytes.get(behind..).unwrap_or_default();
    let what = match (ether_type, ip::View::quoted(packet)) {
        (ether_type::IPV4, Some(ip::View::V4(view))) => {
            let header = usize::from(packet[0] & 0x0f) * 4;
            let is_first = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
            let upper = packet.get(header..).filter(|_| is_first).unwrap_or_default();
            let ends = [view.source(), view.destination()].map(|end: Ipv4Addr| end.to_string());
            let part = if is_first { "" } else { ", a later fragment" };
            format!("{}, TTL {}{part}", flow(ends, packet[9], upper), view.ttl())
        }
        (ether_type::IPV6, Some(ip::View::V6(view))) => {
            let upper = packet.get(40..).unwrap_or_default();
            let ends = [view.source(), view.destination()];
            let ends = match has_ports(packet[6]) {
                true => ends.map(|end: Ipv6Addr| format!("[{end}]")),
                false => ends.map(|end| end.to_string()),
            };
            format!("{}, hop limit {}", flow(ends, packet[6], upper), view.hop_limit())
        }
        (ether_type::ARP, _) => "ARP".into(),
        (ether_type::IPV4 | ether_type::IPV6, _) => "a bad IP header".into(),
        (other, _) => format!("ether type {other:#06x}"),
    };
    let tagged = if tags.any() { format!(", {tags}") } else { String::new() };
    format!("{} > {}{tagged}, {what}", link.source(), link.destination())
}

/// The flow in such a line: both ends and the protocol. None if it is no IP packet.
pub fn flow_in(line: &str) -> Option<&str> {
    // The first part are the link's ends.
    line.split(", ").skip(1).find(|part| part.contains(" > "))
}

fn has_ports(upper: u8) -> bool {
    matches!(upper, protocol::TCP | protocol::UDP)
}

fn flow([from, to]: [String; 2], upper: u8, bytes: &[u8]) -> String {
    let name = match upper {
        protocol::TCP => "TCP".into(),
        protocol::UDP => "UDP".into(),
        protocol::ICMP => "ICMP".into(),
        protocol::ICMPV6 => "ICMPv6".into(),
        other => format!("protocol {other}"),
    };
    match bytes.first_chunk::<4>().filter(|_| has_ports(upper)) {
        Some(&[a, b, c, d]) => {
            let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            format!("{from}:{source} > {to}:{destination} {name}")
        }
        None => format!("{from} > {to} {name}"),
    }
}

const _: () = assert!(VLAN_TAG_LEN == 4 && HEADER_LEN == 14, "as `Header` has room for");
