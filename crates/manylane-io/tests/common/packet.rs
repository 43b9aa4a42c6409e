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
