//! Ethernet frames with a UDP datagram, byte by byte: this crate knows no protocol.

use std::net::{IpAddr, SocketAddr};

/// A frame that a kernel accepts, checksums and all.
pub fn udp(from: ([u8; 6], SocketAddr), to: ([u8; 6], SocketAddr), payload: &[u8]) -> Vec<u8> {
    let mut udp = Vec::new();
    udp.extend(from.1.port().to_be_bytes());
    udp.extend(to.1.port().to_be_bytes());
    udp.extend((8 + payload.len() as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);

    let mut frame = Vec::new();
    frame.extend(to.0);
    frame.extend(from.0);
    let (IpAddr::V4(source), IpAddr::V4(target)) = (from.1.ip(), to.1.ip()) else {
        return udp6(frame, from.1.ip(), to.1.ip(), udp);
    };
    frame.extend([0x08, 0x00]);
    let mut ip = vec![0x45, 0];
    ip.extend((20 + udp.len() as u16).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(source.octets());
    ip.extend(target.octets());
    let sum = checksum(&ip, 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend(udp); // IPv4 lets UDP go without a checksum.
    frame
}

fn udp6(mut frame: Vec<u8>, source: IpAddr, target: IpAddr, mut udp: Vec<u8>) -> Vec<u8> {
    let (IpAddr::V6(source), IpAddr::V6(target)) = (source, target) else {
        panic!("one family, please");
    };
    let addresses = [source.octets(), target.octets()].concat();
    let pseudo = 17 + udp.len() as u32;
    let sum = checksum(&[addresses.as_slice(), &udp].concat(), pseudo);
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend((udp.len() as u16).to_be_bytes());
    frame.extend([17, 64]);
    frame.extend(addresses);
    frame.extend(udp);
    frame
}

/// A TCP segment with CWR as a host leaves it to its device: with the sum of the pseudo-header only.
pub fn tcp(from_to: ([u8; 6], [u8; 6]), v6: bool, payload: usize) -> Vec<u8> {
    let mut tcp =
        vec![0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x90, 0xff, 0xff, 0, 0, 0, 0];
    tcp.extend((0..payload).map(|place| (place % 251) as u8));
    let mut frame = [from_to.1, from_to.0].concat();
    let addresses = if v6 { [0xfd; 32].as_slice() } else { &[10, 0, 0, 2, 10, 0, 0, 1] };
    let sum = !checksum(addresses, 6 + tcp.len() as u32);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((tcp.len() as u16).to_be_bytes());
        frame.extend([6, 64]);
        frame.extend(addresses);
    } else {
        let mut ip = vec![0x45, 0];
        ip.extend((20 + tcp.len() as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        ip.extend(addresses);
        let sum = checksum(&ip, 0);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend([0x08, 0x00]);
        frame.extend(ip);
    }
    frame.extend(tcp);
    frame
}

fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}
