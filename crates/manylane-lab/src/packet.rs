//! The headers of the packets that labs, the bench and `bench/counted` make.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use manylane_net::wire::ethernet::{self, Mac, ether_type};
use manylane_net::wire::{ipv4, ipv6, protocol, udp};

/// The Ethernet address of a router's port between workers in memory.
pub const fn router_mac(port: u16) -> Mac {
    Mac([2, 0, 0, 0, 0, 0x11 + port as u8])
}

/// The Ethernet address of the host that sends to such a router.
pub const SENDER: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// An IPv4 header without options, tags of the network or fragments.
pub fn ipv4(protocol: u8, ttl: u8, [source, destination]: [Ipv4Addr; 2]) -> ipv4::Header {
    let (tos, identification, dont_fragment) = (0, 0, false);
    ipv4::Header { tos, identification, dont_fragment, ttl, protocol, source, destination }
}

/// Writes the headers of a UDP packet of one family, from port 1024 to port 9, in a frame of `len` bytes. IPv4 has no
/// UDP checksum, and `frame` may be only the beginning; IPv6 has one, over the whole of `frame`.
pub fn emit_udp(frame: &mut [u8], len: usize, macs: [Mac; 2], [source, destination]: [IpAddr; 2]) {
    let ends = [(source, UDP_SOURCE), (destination, UDP_DESTINATION)].map(SocketAddr::from);
    emit_udp_between(frame, len, macs, ends);
}

/// The port that [`emit_udp`] sends from.
pub const UDP_SOURCE: u16 = 1024;
/// The port that [`emit_udp`] sends to.
pub const UDP_DESTINATION: u16 = 9;

/// As [`emit_udp`], between any two ports.
pub fn emit_udp_between(frame: &mut [u8], len: usize, [to, from]: [Mac; 2], ends: [SocketAddr; 2]) {
    let (head, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
    match ends {
        [SocketAddr::V4(source), SocketAddr::V4(destination)] => {
            ethernet::emit(head, to, from, ether_type::IPV4).expect(FITS);
            let (header, datagram) = packet.split_at_mut(ipv4::HEADER_LEN);
            let udp_len = len - ethernet::HEADER_LEN - ipv4::HEADER_LEN;
            let fields = ipv4(protocol::UDP, 64, [*source.ip(), *destination.ip()]);
            fields.emit(header, udp_len).expect(FITS);
            datagram[..2].copy_from_slice(&source.port().to_be_bytes());
            datagram[2..4].copy_from_slice(&destination.port().to_be_bytes());
            datagram[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        }
        [SocketAddr::V6(source), SocketAddr::V6(destination)] => {
            ethernet::emit(head, to, from, ether_type::IPV6).expect(FITS);
            let (header, datagram) = packet.split_at_mut(ipv6::HEADER_LEN);
            udp::emit_v6(datagram, source, destination).expect(FITS);
            let (next_header, hop_limit) = (protocol::UDP, 64);
            let (traffic_class, flow_label) = (0, 0);
            let (source, destination) = (*source.ip(), *destination.ip());
            #[rustfmt::skip]
            let fields =
                ipv6::Header { traffic_class, flow_label, next_header, hop_limit, source, destination };
            fields.emit(header, datagram.len()).expect(FITS);
        }
        _ => panic!("both ends are of one family: {ends:?}"),
    }
}

const FITS: &str = "the frame is longer than its headers";
