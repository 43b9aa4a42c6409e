//! A program with tables that a test fills by hand.
#![allow(dead_code)] // Each test file uses a part of it.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use manylane_accelerate::programs::{IngressProgram, Sizes, Tables, Tried, TryOptions};

use super::common;
use super::packet::OURS;

pub const INGRESS: u32 = 1;
pub const EGRESS: u32 = 2;
pub const FORWARDING: u32 = 4 | 8;
pub const RP_STRICT: u32 = 16;
pub const RP_LOOSE: u32 = 32;
pub const REDIRECTS: u32 = 64 | 128;

pub const VIA: u64 = 1;
pub const CONNECTED: u64 = 2;
pub const GROUP: u64 = 8;

/// Where the tables have the end of the lease.
pub const LEASE_TICKS: usize = 4;

pub const NEXT: i32 = -1;
pub const REDIRECT: i32 = 7;

/// What a record says of the addresses: the neighbour's, and ours.
pub const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 7, 0];
pub const EGRESS_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

pub struct Rig {
    pub fast: IngressProgram,
    pub tables: Tables,
    /// Lines of `chunks4` in use.
    chunks: usize,
}

impl Rig {
    /// Port 1 is `lo`, the ingress of tried packets; port 2 is the egress, interface 77, of slot 1. To it lead
    /// 198.51.100.0/24 and 2001:db8:2::/48 (all of 2001:d00::/24), by next hop 1.
    pub fn new() -> Option<Rig> {
        let sizes = Sizes {
            groups4: 1024,
            ranges4: 4096,
            index6: 8192,
            leaves6: 1024,
            flows: [64, 256, 128],
        };
        let loaded = match other_object() {
            Some(object) => IngressProgram::load_object(&object, &sizes),
            None => IngressProgram::load(&sizes),
        };
        let (fast, tables) = match loaded {
            Ok(loaded) => loaded,
            // Not to be mistaken for a machine, or a user, that cannot load any.
            Err(error) if error.is_by_verifier() => panic!("{error}"),
            Err(error) => {
                common::skip(error);
                return None;
            }
        };
        let mut rig = Rig { fast, tables, chunks: 0 };
        rig.tables.control.store(LEASE_TICKS, u64::MAX);
        rig.tables.port_of.store(1, 1);
        rig.port(1, INGRESS | EGRESS | FORWARDING);
        rig.port(2, EGRESS);
        rig.record(1, 77, 2, 1500);
        rig.tables.record_of.store(1, 1);
        rig.hop(1, VIA, 1);
        rig.route4("198.51.100.0", 1);
        rig.tables.direct6.store(bucket("2001:db8::"), 1);
        // Where sources are: by the ingress.
        rig.record(3, 1, 1, 1500);
        rig.tables.record_of.store(3, 3);
        rig.hop(3, VIA, 3);
        rig.route4("192.0.2.0", 3);
        Some(rig)
    }

    pub fn port(&mut self, port: usize, flags: u32) {
        self.port_with(port, OURS, flags);
    }

    pub fn port_with(&mut self, port: usize, mac: [u8; 6], flags: u32) {
        let [a, b, c, d, e, f] = mac;
        self.tables.ports.store(port * 16 + 2, u32::from_le_bytes([a, b, c, d]));
        self.tables.ports.store(port * 16 + 3, u32::from_le_bytes([e, f, 0, 0]));
        self.tables.ports.store(port * 16, flags);
    }

    /// A record whose number is in the neighbour's address.
    pub fn record(&mut self, record: usize, interface: u32, port: u32, mtu: u32) {
        let mut destination = NEIGHBOUR;
        destination[4..].copy_from_slice(&(record as u16).to_be_bytes());
        self.record_to(record, (interface, port), mtu, [destination, EGRESS_MAC]);
    }

    pub fn record_to(
        &mut self,
        record: usize,
        egress: (u32, u32),
        mtu: u32,
        to_from: [[u8; 6]; 2],
    ) {
        let addresses = to_from.concat();
        let (words, _) = addresses.as_chunks::<4>();
        let words = words.iter().map(|word| u32::from_le_bytes(*word));
        let words = [egress.0, egress.1, mtu, 0].into_iter().chain(words).chain([5]);
        for (place, word) in words.enumerate() {
            self.tables.records.store(record * 16 + place, word);
        }
        self.tables.records.store(record * 16 + 15, 5);
    }

    pub fn hop(&mut self, id: usize, kind: u64, number: u64) {
        self.tables.next_hops.store(id, kind | number << 32);
    }

    pub fn route4(&mut self, network: &str, id: u16) {
        let network: Ipv4Addr = super::packet::address(network);
        let slot = network.to_bits() as usize >> 8;
        let (block, slot) = (slot / 256, slot % 256);
        if self.tables.direct4.load(block) == 0 {
            // A chunk in which each /24 has its own word.
            let first = self.chunks * 8;
            (0..4).for_each(|part| self.tables.chunks4.store(first + part, u64::MAX));
            self.tables.chunks4.store(first + 4, 192 << 48 | 128 << 32 | 64 << 16);
            self.tables.direct4.store(block, 1 << 31 | self.chunks as u32);
            self.chunks += 9;
        }
        let first = (self.tables.direct4.load(block) & !(1 << 31)) as usize * 8;
        let (at, shift) = (first + (20 + slot) / 4, (20 + slot) % 4 * 16);
        let others = self.tables.chunks4.load(at) & !(0xffff << shift);
        self.tables.chunks4.store(at, others | u64::from(id) << shift);
    }

    /// An address that the program has to look up when it is a source.
    pub fn may_be_ours(&mut self, address: &str) {
        let address: Ipv4Addr = super::packet::address(address);
        let bit = u32::from_le_bytes(address.octets()).wrapping_mul(0x9e37_79b1) >> 16;
        let (word, bit) = (bit as usize / 64, bit % 64);
        self.tables.own4.store(word, self.tables.own4.load(word) | 1 << bit);
    }

    pub fn try_frame(&self, frame: &[u8]) -> Tried {
        self.try_with(frame, &TryOptions::default())
    }

    /// As segments of `gso_size` bytes.
    pub fn try_segments(&self, frame: &[u8], gso_size: u32) -> Tried {
        self.try_with(frame, &TryOptions { gso_size, ..TryOptions::default() })
    }

    pub fn try_with(&self, frame: &[u8], options: &TryOptions) -> Tried {
        let tried = self.fast.try_verdict(frame, options).expect("the kernel tries it");
        match tried.verdict {
            0 => assert_eq!(tried.action, REDIRECT),
            verdict => {
                assert_eq!((tried.action, tried.egress), (NEXT, None), "verdict {verdict}");
                assert_eq!(tried.frame, frame, "verdict {verdict} leaves it unchanged");
                assert_eq!(tried.priority, options.priority, "verdict {verdict}");
            }
        }
        tried
    }

    pub fn verdict(&self, frame: &[u8]) -> u8 {
        self.try_frame(frame).verdict
    }
}

/// Where `direct6` has the bucket of an address.
pub fn bucket(address: &str) -> usize {
    let address: std::net::Ipv6Addr = super::packet::address(address);
    (address.to_bits() >> 112) as usize
}

/// The object that `MANYLANE_BPF_OBJECT` names: `ci.sh bpf` has another compiler's tried this way.
fn other_object() -> Option<Vec<u8>> {
    let path = PathBuf::from(std::env::var_os("MANYLANE_BPF_OBJECT")?);
    let ours = path.ends_with("ingress.bpf.o");
    ours.then(|| std::fs::read(&path).expect("MANYLANE_BPF_OBJECT can be read"))
}
