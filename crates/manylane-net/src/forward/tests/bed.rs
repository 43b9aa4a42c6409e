//! A router with three ports, its tables, and packets for it.
//!
//! ```text
//! station 10 -- port 0 -- [ us ] -- port 1 -- station 11
//!                            \
//!                             port 2 -- station 12
//! ```
//!
//! Port n has 10.0.n.1/24, 2001:db8:n::1/64 and fe80::n1; its station is host 2 there, neighbour slot n
//! for IPv4 and slot 4 + n for IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::sync::LazyLock;

use manylane_frame::vocabulary::{Checksum, DropReason, Offload, PortId, QueueId, Segments};
use manylane_frame::{Batch, Depot, Frame, HEADROOM, Pool, Region, RegionConfig};
use manylane_sync::rcu::{Domain, Reader};
use manylane_sync::words::WordsMut;

use super::super::*;
use crate::fib::{
    Ipv4Fib, Ipv4Prefix, Ipv4Sizes, Ipv4Tables, Ipv4Writer, Ipv6Fib, Ipv6Prefix, Ipv6Sizes,
    Ipv6Tables, Ipv6Writer, Limits, NextHopId,
};
use crate::neighbour::{AdjacencyTable, AdjacencyWords, Header, OwnAddresses, Rewrite};
use crate::nexthop::{BUCKETS, NextHopsMut};
use crate::wire::ethernet::{self, Mac, ether_type};
use crate::wire::{checksum::Sum, icmp, icmpv6, ipv4, ipv6, protocol, udp};

pub const SECOND: u64 = 1_000_000_000;

/// Ids of the FIB: what each means, a test may change.
pub const LOCAL: u16 = 1;
pub const BROADCAST: u16 = 2;
pub const BLACKHOLE: u16 = 3;
pub const UNREACHABLE: u16 = 4;
pub const PROHIBIT: u16 = 5;
pub const CONNECTED: u16 = 16;
pub const NEIGHBOUR: u16 = 32;
const SLOTS: usize = 8;

/// One FIB for all tests: its first table alone has 32 MiB.
static FIB: LazyLock<(Ipv4Fib, Ipv6Fib)> = LazyLock::new(fib);

fn fib() -> (Ipv4Fib, Ipv6Fib) {
    let domain = Domain::new(1);
    let tables = Ipv4Tables::zeroed(Ipv4Sizes::for_long_routes(64));
    let mut ipv4 = Ipv4Writer::new(tables, &domain, Limits::default());
    let tables = Ipv6Tables::zeroed(Ipv6Sizes::for_routes(64));
    let mut ipv6 = Ipv6Writer::new(tables, &domain, Limits::default());
    let mut to = |prefix: &str, id: u16| {
        let id = NextHopId::new(id).expect("it is small");
        match prefix.parse::<Ipv4Prefix>() {
            Ok(prefix) => ipv4.insert(prefix, id).map(drop).expect("there is room"),
            Err(_) => {
                let prefix: Ipv6Prefix = prefix.parse().expect("a prefix");
                ipv6.insert(prefix, id).map(drop).expect("there is room");
            }
        }
    };
    for port in 0..3u16 {
        to(&format!("10.0.{port}.0/24"), CONNECTED + port);
        to(&format!("10.0.{port}.0/32"), BROADCAST);
        to(&format!("10.0.{port}.255/32"), BROADCAST);
        to(&format!("10.0.{port}.1/32"), LOCAL);
        to(&format!("10.0.{port}.2/32"), NEIGHBOUR + port);
        to(&format!("2001:db8:{port}::/64"), CONNECTED + port);
        to(&format!("2001:db8:{port}::1/128"), LOCAL);
        to(&format!("2001:db8:{port}::/128"), LOCAL);
        to(&format!("2001:db8:{port}::2/128"), NEIGHBOUR + 4 + port);
    }
    for (prefix, id) in [
        ("192.0.2.0/24", NEIGHBOUR),
        ("198.51.100.0/24", NEIGHBOUR + 1),
        ("198.18.0.0/15", NEIGHBOUR + 2),
        ("203.0.113.0/26", BLACKHOLE),
        ("203.0.113.64/26", UNREACHABLE),
        ("203.0.113.128/26", PROHIBIT),
        ("2001:db8:a::/48", NEIGHBOUR + 4),
        ("2001:db8:b::/48", NEIGHBOUR + 5),
        ("2001:db8:c::/48", NEIGHBOUR + 6),
        ("64:ff9b::/96", NEIGHBOUR + 5),
        ("2001:db8:f0::/48", BLACKHOLE),
        ("2001:db8:f1::/48", UNREACHABLE),
        ("2001:db8:f2::/48", PROHIBIT),
    ] {
        to(prefix, id);
    }
    (ipv4.reader(), ipv6.reader())
}

/// A fate that outlives its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Transmit(u16),
    Fragment(u16),
    Prepare(u16),
    Deliver,
    Hold(u32),
    Glean(u16),
    Drop(DropReason),
}

/// What became of a frame, and what is in it then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub said: Said,
    pub origin: Origin,
    pub bytes: Vec<u8>,
    pub own: bool,
}

pub struct Bed {
    pub region: Region,
    pub pool: Pool,
    pub forwarder: Forwarder,
    pub next_hops: NextHopsMut,
    pub adjacencies: AdjacencyTable,
    pub reader: Reader,
    /// What a port says of the frames it receives.
    pub checksum: Checksum,
    pub segments: Segments,
    /// Where packets begin in their frames.
    pub head: u16,
}

impl Bed {
    /// All stations are resolved; errors are not limited.
    pub fn new() -> Bed {
        Bed::with_errors(RateLimit::new(0, 1_000_000))
    }

    pub fn with_errors(errors: RateLimit) -> Bed {
        Bed::with(errors, RegionConfig { frames: 256, frame_size: 2048 }, Offload::NONE)
    }

    /// Over other frames, with ports that take more.
    pub fn with_frames(frames: u32, frame_size: u32, offload: Offload) -> Bed {
        Bed::with(RateLimit::new(0, 1_000_000), RegionConfig { frames, frame_size }, offload)
    }

    fn with(errors: RateLimit, region: RegionConfig, offload: Offload) -> Bed {
        let region = Region::new(region).expect("some MiB can be mapped");
        let depot = Depot::new(region.clone(), 1).expect("the first taker");
        let domain = Domain::new(1);
        let (ipv4, ipv6) = FIB.clone();
        let (words, buckets) = (WordsMut::zeroed(64), WordsMut::zeroed(2 * BUCKETS));
        let next_hops = NextHopsMut::with_groups(words, buckets, domain.clone(), 1);
        let adjacencies = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(SLOTS));
        let tables = Tables {
            ipv4,
            ipv6,
            next_hops: next_hops.reader(),
            adjacencies: adjacencies.reader(),
            ports: (0..3).map(|port| PortFacts { offload, ..facts(port) }).collect(),
            own: OwnAddresses::default(),
        };
        let forwarder = Forwarder::new(region.clone(), tables, errors);
        let mut bed = Bed {
            pool: depot.pool(),
            region,
            forwarder,
            next_hops,
            adjacencies,
            reader: domain.register().expect("the first fits"),
            checksum: Checksum::Valid,
            segments: Segments::NONE,
            head: HEADROOM,
        };
        bed.set(LOCAL, NextHop::Local);
        bed.set(BROADCAST, NextHop::Broadcast);
        bed.set(BLACKHOLE, NextHop::Blackhole);
        bed.set(UNREACHABLE, NextHop::Unreachable);
        bed.set(PROHIBIT, NextHop::Prohibit);
        for port in 0..3 {
            bed.set(CONNECTED + port, NextHop::Connected(PortId(port)));
            for slot in [u32::from(port), 4 + u32::from(port)] {
                bed.set(NEIGHBOUR + slot as u16, NextHop::Via(slot));
                bed.publish(slot, AdjacencyState::Resolved, 1500);
            }
        }
        bed
    }

    pub fn set(&mut self, id: u16, next_hop: NextHop<u32>) {
        self.next_hops.set(NextHopId::new(id).expect("it is small"), next_hop);
    }

    /// Says what is known of the station at `slot`.
    pub fn publish(&mut self, slot: u32, state: AdjacencyState, mtu: u32) {
        self.publish_key(slot, key(slot), state, mtu);
    }

    pub fn publish_key(&mut self, slot: u32, key: Key, state: AdjacencyState, mtu: u32) {
        let (port, ether_type) = (key.port.0 as u8, ether_type_of(key.addr));
        let header = Header::ethernet(station(port).0, ours(port).0, ether_type);
        let rewrite = Rewrite { key, egress: key.port, state, header, mtu };
        self.adjacencies.publish(slot, &rewrite).expect("there are records");
    }

    /// The end of a turn.
    pub fn quiescent(&mut self) {
        self.reader.quiescent();
    }

    pub fn receive(&mut self, port: u8, bytes: &[u8]) -> Frame {
        self.receive_parts(port, &[bytes])
    }

    /// A packet in as many frames as parts are given.
    pub fn receive_parts(&mut self, port: u8, parts: &[&[u8]]) -> Frame {
        let mut packet: Option<Frame> = None;
        for part in parts {
            let mut frame = self.pool.take().expect("there are frames");
            self.region.set_ingress(&mut frame, PortId(port.into()), QueueId(0), self.checksum);
            self.region.meta_mut(&mut frame).segments = self.segments;
            self.region.set_window(&mut frame, self.head, self.head + part.len() as u16);
            self.region.bytes_mut(&mut frame).copy_from_slice(part);
            match &mut packet {
                Some(first) => self.region.view().append(first, frame).expect("it is not so long"),
                None => packet = Some(frame),
            }
        }
        packet.expect("there is a part")
    }

    /// The bytes of a packet, wherever they lie.
    pub fn bytes(&self, frame: &Frame) -> Vec<u8> {
        whole(&self.region, frame)
    }

    /// How many frames are free.
    pub fn free(&mut self) -> usize {
        let frames = Vec::from_iter(std::iter::from_fn(|| self.pool.take()));
        let count = frames.len();
        frames.into_iter().for_each(|frame| self.pool.give_back(frame));
        count
    }

    /// The outcome for one frame received by `port` at second 10.
    pub fn judge(&mut self, port: u8, bytes: &[u8]) -> Outcome {
        self.judge_at(10 * SECOND, port, bytes)
    }

    pub fn judge_at(&mut self, now_ns: u64, port: u8, bytes: &[u8]) -> Outcome {
        self.judge_batch(now_ns, &[(port, bytes.to_vec())]).remove(0)
    }

    /// The outcomes for a whole batch; a frame may be received by any port.
    pub fn judge_batch(&mut self, now_ns: u64, frames: &[(u8, Vec<u8>)]) -> Vec<Outcome> {
        let mut batch = Batch::new();
        for (port, bytes) in frames {
            let frame = self.receive(*port, bytes);
            batch.push(frame).expect("at most a batch");
        }
        let guard = self.reader.guard();
        let explain = |frame: &Frame| self.forwarder.explain(guard, frame);
        let explained: Vec<Explanation> = batch.iter().map(explain).collect();
        let mut verdicts = Verdicts::new();
        self.forwarder.forward(
            &mut Turn { guard, pool: &mut self.pool, now_ns },
            &mut batch,
            &mut verdicts,
        );
        let verdicts = verdicts.list();
        assert_eq!(verdicts.len(), batch.len());
        for (explained, verdict) in explained.iter().zip(&verdicts) {
            assert!(explained.agrees_with(verdict), "{explained:?}: {verdict:?}");
        }
        let of = |(frame, verdict)| outcome(&self.region, frame, verdict);
        let outcomes = batch.iter().zip(&verdicts).map(of).collect();
        self.pool.give_back_all(&mut batch);
        outcomes
    }

    /// By the rules written out in full, whatever the frame.
    pub fn judge_slowly(&mut self, port: u8, bytes: &[u8]) -> Outcome {
        let mut frame = self.receive(port, bytes);
        let guard = self.reader.guard();
        let explained = self.forwarder.explain(guard, &frame);
        let verdict = self
            .forwarder
            .judge(&mut Turn { guard, pool: &mut self.pool, now_ns: 10 * SECOND }, &mut frame);
        assert!(explained.agrees_with(&verdict), "{explained:?}: {verdict:?}");
        let outcome = outcome(&self.region, &frame, &verdict);
        self.pool.give_back(frame);
        outcome
    }

    /// What the engine has reported since the last time.
    pub fn events(&mut self) -> Vec<Report> {
        let mut all: Vec<Report> = self.forwarder.urgent_events().collect();
        all.extend(self.forwarder.events());
        all
    }
}

pub fn outcome(region: &Region, frame: &Frame, verdict: &Verdict<'_>) -> Outcome {
    let said = match verdict.fate {
        Fate::Transmit(port) => Said::Transmit(port.0),
        Fate::Fragment(port) => Said::Fragment(port.0),
        Fate::Prepare(port) => Said::Prepare(port.0),
        Fate::Deliver => Said::Deliver,
        Fate::Hold(slot) => Said::Hold(slot.raw()),
        Fate::Glean(port) => Said::Glean(port.0),
        Fate::Drop(reason) => Said::Drop(reason),
    };
    let (bytes, own) = (whole(region, frame), region.meta(frame).own);
    Outcome { said, origin: verdict.origin, bytes, own }
}

fn whole(region: &Region, frame: &Frame) -> Vec<u8> {
    region.view().parts(frame).flatten().copied().collect()
}

fn facts(port: u8) -> PortFacts {
    PortFacts {
        mac: ours(port),
        mtu: 1500,
        offload: Offload::NONE,
        ipv4: vec![Ipv4Interface { addr: Ipv4Addr::new(10, 0, port, 1), len: 24 }],
        ipv6: vec![Ipv6Addr::new(0x2001, 0xdb8, port.into(), 0, 0, 0, 0, 1)],
        link_local: Some(link_local(port)),
        vlan: None,
        vlans: Vec::new(),
        anycast: vec![Ipv6Addr::new(0x2001, 0xdb8, port.into(), 0, 0, 0, 0, 0)],
    }
}

/// Our MAC address on a port.
pub fn ours(port: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, port])
}

/// The MAC address of the station on a port.
pub fn station(port: u8) -> Mac {
    Mac([2, 0, 0, 0, 1, port])
}

/// Our link-local address on a port.
pub fn link_local(port: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x11 + u16::from(port))
}

/// The neighbour at a slot.
pub fn key(slot: u32) -> Key {
    let port = (slot % 4) as u16;
    let addr = if slot < 4 {
        IpAddr::V4(Ipv4Addr::new(10, 0, port as u8, 2))
    } else {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, port, 0, 0, 0, 0, 2))
    };
    Key { port: PortId(port), addr }
}

fn ether_type_of(addr: IpAddr) -> u16 {
    if addr.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 }
}

/// A frame with IPv4 in it, from the station of port 0 to us: what a test changes is a field.
#[derive(Clone, Debug)]
pub struct V4 {
    pub to: Mac,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub ttl: u8,
    pub protocol: u8,
    pub options: Vec<u8>,
    /// Flags and fragment offset.
    pub fragment: u16,
    pub payload: Vec<u8>,
}

impl V4 {
    /// UDP with `len` bytes of data, from behind the station of port 0.
    pub fn udp(destination: &str, len: usize) -> V4 {
        let (source, destination) = ([192, 0, 2, 7].into(), destination.parse().expect("IPv4"));
        let mut payload: Vec<u8> = (0..8 + len).map(|at| at as u8).collect();
        let (from, to) = (SocketAddrV4::new(source, 1000), SocketAddrV4::new(destination, 2000));
        udp::emit_v4(&mut payload, from, to).expect("it fits");
        V4 {
            to: ours(0),
            source,
            destination,
            ttl: 64,
            protocol: protocol::UDP,
            options: Vec::new(),
            fragment: 0,
            payload,
        }
    }

    pub fn icmp(destination: &str, kind: u8, code: u8, word: u32, data: &[u8]) -> V4 {
        let mut payload = [&[0; 8], data].concat();
        icmp::emit(&mut payload, kind, code, word).expect("it fits");
        V4 { protocol: protocol::ICMP, payload, ..V4::udp(destination, 0) }
    }

    pub fn ping(destination: &str) -> V4 {
        V4::icmp(destination, icmp::kind::ECHO_REQUEST, 0, 0x0102_0003, b"who is there")
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut packet = vec![0; 20];
        let header = ipv4::Header {
            tos: 0,
            identification: 0x1234,
            dont_fragment: false,
            ttl: self.ttl,
            protocol: self.protocol,
            source: self.source,
            destination: self.destination,
        };
        header.emit(&mut packet, self.payload.len() + self.options.len()).expect("it fits");
        packet[0] = 0x45 + (self.options.len() / 4) as u8;
        packet[6..8].copy_from_slice(&self.fragment.to_be_bytes());
        packet.extend_from_slice(&self.options);
        resum(&mut packet);
        packet.extend_from_slice(&self.payload);
        in_ethernet(self.to, station(0), ether_type::IPV4, &packet)
    }
}

/// A frame with IPv6 in it, from the station of port 0 to us: what a test changes is a field.
#[derive(Clone, Debug)]
pub struct V6 {
    pub to: Mac,
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub hop_limit: u8,
    pub next_header: u8,
    pub payload: Vec<u8>,
}

impl V6 {
    /// UDP with `len` bytes of data, from behind the station of port 0.
    pub fn udp(destination: &str, len: usize) -> V6 {
        let source = "2001:db8:a::7".parse().expect("IPv6");
        let destination = destination.parse().expect("IPv6");
        let mut payload: Vec<u8> = (0..8 + len).map(|at| at as u8).collect();
        let from = SocketAddrV6::new(source, 1000, 0, 0);
        let to = SocketAddrV6::new(destination, 2000, 0, 0);
        udp::emit_v6(&mut payload, from, to).expect("it fits");
        let next_header = protocol::UDP;
        V6 { to: ours(0), source, destination, hop_limit: 64, next_header, payload }
    }

    pub fn icmp(source: &str, destination: &str, kind: u8, code: u8, data: &[u8]) -> V6 {
        let (source, destination) =
            (source.parse().expect("IPv6"), destination.parse().expect("IPv6"));
        let mut payload = [&[0; 8], data].concat();
        icmpv6::emit(&mut payload, kind, code, 0x0102_0003, source, destination).expect("it fits");
        let next_header = protocol::ICMPV6;
        V6 { to: ours(0), source, destination, hop_limit: 64, next_header, payload }
    }

    pub fn ping(source: &str, destination: &str) -> V6 {
        V6::icmp(source, destination, icmpv6::kind::ECHO_REQUEST, 0, b"who is there")
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut packet = vec![0; 40];
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            source: self.source,
            destination: self.destination,
        };
        header.emit(&mut packet, self.payload.len()).expect("it fits");
        packet.extend_from_slice(&self.payload);
        in_ethernet(self.to, station(0), ether_type::IPV6, &packet)
    }
}

pub fn in_ethernet(to: Mac, from: Mac, ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [&[0; 14], packet].concat();
    ethernet::emit(&mut frame, to, from, ether_type).expect("there is room");
    frame
}

/// Writes the IPv4 header checksum anew.
pub fn resum(packet: &mut [u8]) {
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    packet[10..12].fill(0);
    let checksum = Sum::of(&packet[..header_len]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}
