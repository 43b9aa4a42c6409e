//! What a packet is, in tcpdump's words, on one line.
//!
//! `etherparse` finds the headers; here they are only written. Of a packet that was cut by `-s` the line has all
//! that was captured, and then the header that is cut: `[|tcp]`. Lengths are what headers say, so that they are
//! those of the packet on the wire. Where a header contradicts itself, the line says so in brackets, too.

mod icmp;
mod ip;
mod tcp;
#[cfg(test)]
mod tests;

use std::fmt::{self, Write};
use std::net::Ipv4Addr;

use etherparse::err::Layer;
use etherparse::err::packet::SliceError;
use etherparse::{
    ArpOperation, ArpPacketSlice, EtherType, LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket,
    LinkSlice,
};

use super::lines::Style;

/// Writes what the frame `bytes` is, which had `len` bytes on the wire.
pub(super) fn frame(text: &mut String, bytes: &[u8], len: u32, style: Style) {
    // A string takes everything.
    let _ = write_frame(text, bytes, len, style);
}

/// The captured bytes in front of the network header.
pub(super) fn link_len(bytes: &[u8]) -> usize {
    let Ok(packet) = LaxSlicedPacket::from_ethernet(bytes) else { return 0 };
    let tags: usize = packet.link_exts.iter().map(LaxLinkExtSlice::header_len).sum();
    (ETHERNET + tags).min(bytes.len())
}

/// Writes bytes as tcpdump does, 16 in a line.
pub(super) fn hex(text: &mut String, bytes: &[u8], ascii: bool) {
    for (number, row) in bytes.chunks(16).enumerate() {
        let _ = write!(text, "\t0x{:04x}: ", number * 16);
        for (place, byte) in row.iter().enumerate() {
            let _ = write!(text, "{}{byte:02x}", if place % 2 == 0 { " " } else { "" });
        }
        if ascii {
            let width = 40 - (row.len() * 2 + row.len().div_ceil(2));
            let _ = write!(text, "{:width$}  ", "");
            let shown = |&byte: &u8| if byte.is_ascii_graphic() { char::from(byte) } else { '.' };
            text.extend(row.iter().map(shown));
        }
        text.push('\n');
    }
}

fn write_frame(text: &mut String, bytes: &[u8], len: u32, style: Style) -> fmt::Result {
    let Ok(packet) = LaxSlicedPacket::from_ethernet(bytes) else {
        return write!(text, "[|ether], length {len}");
    };
    let mut ether_type = EtherType(0);
    if let Some(LinkSlice::Ethernet2(ethernet)) = &packet.link {
        ether_type = ethernet.ether_type();
        if style.link {
            let (source, destination) = (Mac(&ethernet.source()), Mac(&ethernet.destination()));
            write!(text, "{source} > {destination}, ")?;
            write!(text, "ethertype {}, length {len}: ", TypeName(ether_type))?;
        }
    }
    let mut header_len = ETHERNET;
    for tag in &packet.link_exts {
        header_len += tag.header_len();
        match tag {
            LaxLinkExtSlice::Vlan(vlan) => {
                ether_type = vlan.ether_type();
                write!(text, "vlan {}, ", vlan.vlan_identifier().value())?;
                if style.link {
                    write!(text, "p {}, ", vlan.priority_code_point().value())?;
                    write!(text, "ethertype {}, ", TypeName(ether_type))?;
                }
            }
            LaxLinkExtSlice::Macsec(_) => text.push_str("MACsec, "),
        }
    }
    let left = (len as usize).saturating_sub(header_len);
    match &packet.net {
        Some(LaxNetSlice::Ipv4(ipv4)) => ip::ipv4(text, ipv4, style),
        Some(LaxNetSlice::Ipv6(ipv6)) => ip::ipv6(text, ipv6, stop_in_extensions(&packet), style),
        Some(LaxNetSlice::Arp(packet)) => arp(text, packet, left),
        None => match &packet.stop_err {
            Some((SliceError::Len(_), layer)) => {
                write!(text, "[|{}], length {left}", short(*layer, ether_type))
            }
            // Version and header length of IP are its first byte.
            Some((_, layer)) => {
                write!(text, "[bad {}", short(*layer, ether_type))?;
                if let Some(first) = packet.ether_payload().and_then(|ip| ip.payload.first()) {
                    write!(text, " 0x{first:02x}")?;
                }
                write!(text, "], length {left}")
            }
            None if ether_type.0 < 0x600 => write!(text, "802.3, length {left}"),
            None => write!(text, "ethertype {}, length {left}", TypeName(ether_type)),
        },
    }
}

/// Whether parsing ended in an extension header, and not behind them.
fn stop_in_extensions(packet: &LaxSlicedPacket<'_>) -> bool {
    packet.stop_err.as_ref().is_some_and(|(_, layer)| {
        matches!(
            layer,
            Layer::IpAuthHeader
                | Layer::Ipv6ExtHeader
                | Layer::Ipv6HopByHopHeader
                | Layer::Ipv6DestOptionsHeader
                | Layer::Ipv6RouteHeader
                | Layer::Ipv6FragHeader
        )
    })
}

/// RFC 826.
fn arp(text: &mut String, packet: &ArpPacketSlice<'_>, len: usize) -> fmt::Result {
    let address = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).map(Ipv4Addr::from);
    let (Ok(sender), Ok(target)) =
        (address(packet.sender_protocol_addr()), address(packet.target_protocol_addr()))
    else {
        let ArpOperation(operation) = packet.operation();
        return write!(text, "ARP, operation {operation}, not of IPv4, length {len}");
    };
    let mac = |bytes| Mac(bytes);
    match packet.operation() {
        ArpOperation::REQUEST => {
            write!(text, "ARP, Request who-has {target}")?;
            let told = packet.target_hw_addr();
            if told.iter().any(|&byte| byte != 0) {
                write!(text, " ({})", mac(told))?;
            }
            write!(text, " tell {sender}, length {len}")
        }
        ArpOperation::REPLY => {
            let is_at = mac(packet.sender_hw_addr());
            write!(text, "ARP, Reply {sender} is-at {is_at}, length {len}")
        }
        ArpOperation(operation) => {
            write!(text, "ARP, operation {operation}, {sender} > {target}, length {len}")
        }
    }
}

/// The name of a header that is cut, as tcpdump has it.
fn short(layer: Layer, ether_type: EtherType) -> &'static str {
    match layer {
        Layer::VlanHeader => "vlan",
        Layer::MacsecHeader | Layer::MacsecPacket => "macsec",
        Layer::Arp => "arp",
        _ if ether_type == EtherType::IPV6 => "ip6",
        _ if ether_type == EtherType::IPV4 => "ip",
        _ => "ether",
    }
}

/// An address of the link layer, of any length.
struct Mac<'a>(&'a [u8]);

impl fmt::Display for Mac<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if place == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

/// `IPv4 (0x0800)`
struct TypeName(EtherType);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            EtherType::IPV4 => "IPv4",
            EtherType::IPV6 => "IPv6",
            EtherType::ARP => "ARP",
            EtherType::VLAN_TAGGED_FRAME => "802.1Q",
            EtherType::PROVIDER_BRIDGING => "802.1Q-QinQ",
            EtherType::VLAN_DOUBLE_TAGGED_FRAME => "802.1Q-9100",
            EtherType::MACSEC => "802.1AE MACsec",
            EtherType(0x8847) => "MPLS unicast",
            EtherType(0x8863) => "PPPoE D",
            EtherType(0x8864) => "PPPoE S",
            EtherType(0x88cc) => "LLDP",
            EtherType(_) => "Unknown",
        };
        write!(f, "{name} (0x{:04x})", self.0.0)
    }
}

const ETHERNET: usize = 14;
