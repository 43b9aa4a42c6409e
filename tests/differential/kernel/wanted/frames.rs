//! The frames that manylane has to send: forwarded packets and their pieces, errors, echo replies.

use std::net::{IpAddr, Ipv6Addr};

use super::super::generate::{ICMP, ICMPV6, Shot, checksum};
use super::super::link::{self, ethernet_to};
use super::super::plan::{self, Side};
use super::super::read::{Ip, V4};
use super::{Error, Wanted, headers, ipv4, ipv6, options, sum_header};

/// The packet as a router forwards it.
pub fn passed(shot: &Shot) -> Vec<Wanted> {
    let packet = &shot.frame[14..];
    let Some(ip) = Ip::of(&shot.frame) else { return Vec::new() };
    let Some((side, mac)) = plan::next_hop(ip.destination()) else { return Vec::new() };
    match ip {
        Ip::V4(header) => {
            let mut packet = packet[..ipv4::total_len(packet)].to_vec();
            packet[8] -= 1;
            let times = options::write(&mut packet[20..header.len], side.router_v4());
            let times: Vec<usize> = times.into_iter().map(|at| 14 + 20 + at).collect();
            sum_header(&mut packet, header.len);
            let mut pieces = pieces(&packet, side, mac, false);
            if let Some(first) = pieces.first_mut() {
                first.times = times;
            }
            pieces
        }
        Ip::V6(_) => {
            let mut packet = packet[..ipv6::packet_len(packet)].to_vec();
            packet[7] -= 1;
            vec![framed(&packet, side, mac, false)]
        }
    }
}

/// A packet of either version in a frame to a station.
fn framed(packet: &[u8], side: Side, mac: [u8; 6], is_own: bool) -> Wanted {
    let ether_type = if packet[0] >> 4 == 4 { link::IPV4 } else { link::IPV6 };
    let bytes = ethernet_to(mac, side.router_mac(), ether_type, packet);
    Wanted { side, bytes, is_own, times: Vec::new() }
}

/// A packet of IPv4, cut where the link needs that (RFC 791 §3.2).
fn pieces(packet: &[u8], side: Side, mac: [u8; 6], is_own: bool) -> Vec<Wanted> {
    let Some(header) = V4::of(packet) else { return Vec::new() };
    if packet.len() <= side.mtu() {
        return vec![framed(packet, side, mac, is_own)];
    }
    let step = (side.mtu() - header.len) / 8 * 8;
    let parts: Vec<&[u8]> = packet[header.len..].chunks(step).collect();
    let later = [&packet[..20], &options::copied(&packet[20..header.len])].concat();
    let piece = |(number, part): (usize, &&[u8])| {
        let front = if number == 0 { &packet[..header.len] } else { &later };
        let mut piece = [front, part].concat();
        let more = header.more || number + 1 < parts.len();
        let place = (header.offset + (number * step / 8) as u16) | (u16::from(more) << 13);
        let len = piece.len() as u16;
        piece[0] = 0x40 | (front.len() / 4) as u8;
        piece[2..4].copy_from_slice(&len.to_be_bytes());
        piece[6..8].copy_from_slice(&place.to_be_bytes());
        sum_header(&mut piece, front.len());
        framed(&piece, side, mac, is_own)
    };
    parts.iter().enumerate().map(piece).collect()
}

/// The error about the packet, if its receiver can be reached.
pub fn error(shot: &Shot, what: Error) -> Vec<Wanted> {
    let way = Ip::of(&shot.frame).and_then(|ip| back(shot, ip.source()));
    let error = way.and_then(|(side, mac)| {
        let bytes = error_to(shot, what, side, mac)?;
        Some(Wanted { side, bytes, is_own: true, times: Vec::new() })
    });
    error.into_iter().collect()
}

/// The error about the packet, by a link to a station.
pub fn error_to(shot: &Shot, what: Error, side: Side, mac: [u8; 6]) -> Option<Vec<u8>> {
    let packet = &shot.frame[14..];
    let mut message = vec![what.kind, what.code, 0, 0];
    message.extend(what.word.to_be_bytes());
    let error = match Ip::of(&shot.frame)? {
        Ip::V4(header) => {
            message.extend(&packet[..ipv4::total_len(packet).min(packet.len()).min(576 - 28)]);
            let to = header.destination;
            let source = if plan::is_routers(to.into()) { to } else { side.router_v4() };
            // Internetwork control (RFC 1812 §4.3.2.5), not capable of ECN.
            let mut error = vec![0x45, 0xc0 | packet[1] & 0x1c];
            error.extend((20 + message.len() as u16).to_be_bytes());
            error.extend([0, 0, 0, 0, 64, ICMP, 0, 0]);
            error.extend(source.octets());
            error.extend(header.source.octets());
            error.extend(message);
            resum_packet(&mut error);
            error
        }
        Ip::V6(header) => {
            let lacks_length = packet[4..7] == [0, 0, 0];
            let len = if lacks_length { packet.len() } else { ipv6::packet_len(packet) };
            message.extend(&packet[..len.min(packet.len()).min(1280 - 48)]);
            let to = header.destination;
            let is_ours = match to.is_unicast_link_local() {
                true => to == shot.side.router_link_local(),
                false => plan::is_routers(to.into()),
            };
            let source = match header.source.is_unicast_link_local() {
                _ if is_ours => to,
                true => shot.side.router_link_local(),
                false => side.router_v6(),
            };
            link::icmpv6(source, header.source, 64, message)
        }
    };
    Some(framed(&error, side, mac, true).bytes)
}

/// The reply to an echo request, if its receiver can be reached.
pub fn echo_reply(shot: &Shot) -> Vec<Wanted> {
    let packet = &shot.frame[14..];
    let Some(ip) = Ip::of(&shot.frame) else { return Vec::new() };
    let Some((side, mac)) = back(shot, ip.source()) else { return Vec::new() };
    match ip {
        Ip::V4(header) => {
            let mut reply = packet[..ipv4::total_len(packet)].to_vec();
            reply[6..8].fill(0);
            reply[8] = 64;
            reply[12..16].copy_from_slice(&header.destination.octets());
            reply[16..20].copy_from_slice(&header.source.octets());
            reply[header.len] = 0;
            resum_packet(&mut reply);
            pieces(&reply, side, mac, true)
        }
        Ip::V6(header) => {
            let packet = &packet[..ipv6::packet_len(packet)];
            let Some(transport) = headers::transport(packet) else { return Vec::new() };
            let mut message = packet[transport.at..].to_vec();
            message[0] = 129;
            message[2..4].fill(0);
            let own = |source: Ipv6Addr| match source.is_unicast_link_local() {
                true => side.router_link_local(),
                false => side.router_v6(),
            };
            let to = header.destination;
            let source = if plan::is_anycast(to.into()) { own(header.source) } else { to };
            let mut reply = link::icmpv6(source, header.source, 64, message);
            reply[..4].copy_from_slice(&packet[..4]);
            match reply.len() <= side.mtu() {
                true => vec![framed(&reply, side, mac, true)],
                false => Vec::new(),
            }
        }
    }
}

/// The link and the station by which manylane reaches the sender of a packet.
fn back(shot: &Shot, sender: IpAddr) -> Option<(Side, [u8; 6])> {
    let station: [u8; 6] = shot.frame[6..12].try_into().ok()?;
    match sender {
        IpAddr::V6(sender) if sender.is_unicast_link_local() => Some((shot.side, station)),
        _ => plan::next_hop(sender),
    }
}

/// Makes the checksums of the header and of ICMP right in a packet that is no fragment.
fn resum_packet(packet: &mut [u8]) {
    if let Some(header) = V4::of(packet) {
        sum_header(packet, header.len);
        let is_message = header.protocol == ICMP && header.offset == 0 && !header.more;
        if is_message && packet.len() >= header.len + 8 {
            packet[header.len + 2..header.len + 4].fill(0);
            let sum = checksum(&[&packet[header.len..]]);
            packet[header.len + 2..header.len + 4].copy_from_slice(&sum.to_be_bytes());
        }
    } else if packet[6] == ICMPV6 && packet.len() >= 48 {
        packet[42..44].fill(0);
        let sum = super::super::ipv6::sum(packet, 40, ICMPV6);
        packet[42..44].copy_from_slice(&sum.to_be_bytes());
    }
}

/// As `resum_packet`, in a frame, lengths included.
pub fn resum(frame: &mut [u8]) {
    let packet = &mut frame[14..];
    let len = packet.len() as u16;
    match packet[0] >> 4 {
        4 => packet[2..4].copy_from_slice(&len.to_be_bytes()),
        _ => packet[4..6].copy_from_slice(&(len - 40).to_be_bytes()),
    }
    resum_packet(packet);
}
