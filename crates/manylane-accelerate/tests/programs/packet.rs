//! Packets of each family, byte by byte.
#![allow(dead_code)] // Each test file uses a part of it.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The MAC address of port 1, and of each sender to it.
pub const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// An IPv4 packet; one that is right but for what is said.
#[derive(Clone)]
pub struct V4 {
    pub first: u8,
    pub tos: u8,
    pub fragment: u16,
    pub ttl: u8,
    pub protocol: u8,
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    /// Added to the total length.
    pub longer: i16,
}

pub fn v4(to: &str) -> V4 {
    V4 {
        first: 0x45,
        tos: 0,
        fragment: 0,
        ttl: 64,
        protocol: UDP,
        from: Ipv4Addr::new(192, 0, 2, 1),
        to: address(to),
        options: Vec::new(),
        payload: udp(1000, 2000),
        longer: 0,
    }
}

impl V4 {
    pub fn frame(&self) -> Vec<u8> {
        self.frame_to(OURS)
    }

    pub fn frame_to(&self, to: [u8; 6]) -> Vec<u8> {
        let len = (20 + self.options.len() + self.payload.len()) as i16 + self.longer;
        let mut header = vec![self.first, self.tos];
        header.extend(len.to_be_bytes());
        header.extend([0x12, 0x34]);
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, self.protocol, 0, 0]);
        header.extend(self.from.octets());
        header.extend(self.to.octets());
        header.extend(&self.options);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&to[..], &SENDER, &[0x08, 0x00], &header, &self.payload].concat()
    }
}

/// An IPv6 packet.
#[derive(Clone)]
pub struct V6 {
    pub first: u8,
    pub next_header: u8,
    pub hop_limit: u8,
    pub from: Ipv6Addr,
    pub to: Ipv6Addr,
    pub payload: Vec<u8>,
    /// Added to the payload length.
    pub longer: i16,
}

pub fn v6(to: &str) -> V6 {
    V6 {
        first: 0x60,
        next_header: UDP,
        hop_limit: 64,
        from: address("2001:db8:1::1"),
        to: address(to),
        payload: udp(1000, 2000),
        longer: 0,
    }
}

impl V6 {
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = [&OURS[..], &SENDER, &[0x86, 0xdd, self.first, 0, 0, 0]].concat();
        frame.extend((self.payload.len() as i16 + self.longer).to_be_bytes());
        frame.extend([self.next_header, self.hop_limit]);
        frame.extend(self.from.octets());
        frame.extend(self.to.octets());
        frame.extend(&self.payload);
        frame
    }

    /// Puts an extension header of `len` bytes in front of what is there.
    pub fn behind(mut self, number: u8, len: usize) -> V6 {
        let mut header = vec![0; len];
        header[0] = self.next_header;
        header[1] = match number {
            51 => (len / 4 - 2) as u8,
            44 => 0,
            _ => (len / 8 - 1) as u8,
        };
        self.payload.splice(0..0, header);
        self.next_header = number;
        self
    }
}

pub fn udp(from: u16, to: u16) -> Vec<u8> {
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0, 12, 0, 0, 1, 2, 3, 4]].concat()
}

/// A TCP header of 20 bytes and `options`, and `payload` bytes of payload.
pub fn tcp(options: usize, payload: usize) -> Vec<u8> {
    let mut segment = vec![0; 20 + options + payload];
    segment[..4].copy_from_slice(&[3, 232, 7, 208]);
    segment[12] = ((20 + options) * 4) as u8;
    segment
}

/// An ICMP message of a type.
pub fn message(kind: u8) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[0x45; 28]].concat()
}

pub fn address<A: std::str::FromStr>(text: &str) -> A
where
    A::Err: std::fmt::Debug,
{
    text.parse().expect("the test wrote it")
}

pub fn checksum(header: &[u8]) -> u16 {
    let mut sum: u32 =
        header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}
