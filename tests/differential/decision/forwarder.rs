//! `forward` of `manylane-net` over the routes of a world.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::{Checksum, Offload, PortId, QueueId, SegmentKind, Segments};
use manylane_frame::{Batch, Depot, HEADROOM, Pool, Region, RegionConfig};
use manylane_net::fib::{Ipv4Tables, Ipv4Writer, Ipv6Tables, Ipv6Writer, Limits};
use manylane_net::forward::{Fate, Forwarder, Origin, PortFacts, Tables, Turn, Verdicts};
use manylane_net::icmp::RateLimit;
use manylane_net::neighbour::{
    AdjacencyState, AdjacencyTable, AdjacencyWords, Header, Key, OwnAddresses, Rewrite,
};
use manylane_net::nexthop::{BUCKETS, Member, NextHopsMut};
use manylane_net::wire::ethernet::ether_type;
use manylane_sync::rcu::{Domain, Reader};
use manylane_sync::words::WordsMut;

use super::packets::Packet;
use super::world::{PORTS, World, sizes};

/// A worker's engine for one family: what stands in front of a packet is a neighbour's, ether type included.
pub struct Engine {
    region: Region,
    pool: Pool,
    forwarder: Forwarder,
    reader: Reader,
}

/// What `forward` sent, and by which port.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    pub exit: u16,
    pub frame: Vec<u8>,
}

/// Bytes of a frame that a packet may have here: it lies in one.
pub const PACKET_MAX: usize = FRAME_SIZE as usize - 2 * HEADROOM as usize;
const FRAME_SIZE: u32 = 4096;

impl Engine {
    /// Engines for IPv4 and for IPv6.
    pub fn both(world: &World) -> [Engine; 2] {
        let domain = Domain::new(2);
        let mut ipv4 =
            Ipv4Writer::new(Ipv4Tables::zeroed(sizes().ipv4), &domain, Limits::default());
        let mut ipv6 =
            Ipv6Writer::new(Ipv6Tables::zeroed(sizes().ipv6), &domain, Limits::default());
        ipv4.load(world.tables.routes4()).expect("there is room");
        ipv6.load(world.tables.routes6()).expect("there is room");
        let next_hops = next_hops(world, &domain).reader();
        [
            (ether_type::IPV4, Ipv4Addr::LOCALHOST.into()),
            (ether_type::IPV6, Ipv6Addr::LOCALHOST.into()),
        ]
        .map(|(ether_type, addr)| {
            let tables = Tables {
                ipv4: ipv4.reader(),
                ipv6: ipv6.reader(),
                next_hops: next_hops.clone(),
                adjacencies: adjacencies(world, &domain, ether_type, addr).reader(),
                ports: (0..PORTS).map(|port| facts(world, port)).collect(),
                own: OwnAddresses::default(),
            };
            Engine::new(tables, &domain)
        })
    }

    fn new(tables: Tables, domain: &Domain) -> Engine {
        let config = RegionConfig { frames: 64, frame_size: FRAME_SIZE };
        let region = Region::new(config).expect("some KiB can be mapped");
        let depot = Depot::new(region.clone(), 1).expect("the first taker");
        let forwarder = Forwarder::new(region.clone(), tables, RateLimit::new(0, 1_000_000));
        let reader = domain.register().expect("there is room for two");
        Engine { pool: depot.pool(), region, forwarder, reader }
    }

    /// Forwards a packet that port `entry` received. An error is what became of it instead.
    pub fn forward(&mut self, packet: &Packet, entry: u16) -> Result<Sent, String> {
        let mut frame = self.pool.take().expect("all were given back");
        let len = u16::try_from(packet.frame.len()).expect("it fits a frame");
        self.region.set_ingress(&mut frame, PortId(entry), QueueId(0), Checksum::Valid);
        self.region.meta_mut(&mut frame).segments = segments(packet);
        self.region.set_window(&mut frame, HEADROOM, HEADROOM + len);
        self.region.bytes_mut(&mut frame).copy_from_slice(&packet.frame);
        let mut batch = Batch::new();
        batch.push(frame).expect("it is empty");
        let mut verdicts = Verdicts::new();
        let guard = self.reader.guard();
        self.forwarder.forward(
            &mut Turn { guard, pool: &mut self.pool, now_ns: 1 },
            &mut batch,
            &mut verdicts,
        );
        let verdict = verdicts.list()[0];
        let sent = match (verdict.fate, verdict.origin) {
            (Fate::Transmit(port), Origin::Received) => {
                let frame = &batch.as_mut_slice()[0];
                Ok(Sent { exit: port.0, frame: self.region.bytes(frame).to_vec() })
            }
            _ => Err(format!("{verdict:?}")),
        };
        self.pool.give_back_all(&mut batch);
        sent
    }
}

/// What a port says of a packet that stands for several.
fn segments(packet: &Packet) -> Segments {
    let is_ipv4 = packet.frame[12..14] == ether_type::IPV4.to_be_bytes();
    match packet.arrival.gso_size {
        0 => Segments::NONE,
        size => {
            let kind = if is_ipv4 { SegmentKind::Tcp4 } else { SegmentKind::Tcp6 };
            Segments { kind, ecn: false, size }
        }
    }
}

fn next_hops(world: &World, domain: &Domain) -> NextHopsMut {
    let last = world.ids.iter().map(|id| id.raw()).max().expect("there are ids");
    let words = WordsMut::zeroed(usize::from(last) + 1);
    let buckets = WordsMut::zeroed(world.groups.len() * BUCKETS);
    let mut next_hops = NextHopsMut::with_groups(words, buckets, domain.clone(), world.seed);
    for &group in &world.groups {
        let members: Vec<Member> = world.tables.members(group).map(|(member, _)| member).collect();
        let has_address = |slot| world.tables.adjacency(slot).is_some();
        let made = next_hops.add_group(&members, has_address).expect("as many as there are");
        assert_eq!(made, group, "they are made in the same order");
    }
    for &id in &world.ids {
        next_hops.set(id, world.tables.next_hop(id));
    }
    next_hops
}

fn adjacencies(world: &World, domain: &Domain, ether_type: u16, addr: IpAddr) -> AdjacencyTable {
    let slots = world.slots.iter().max().expect("there are slots") + 1;
    let mut table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(slots as usize));
    for &slot in &world.slots {
        let Some(way) = world.tables.adjacency(slot) else { continue };
        let rewrite = Rewrite {
            key: Key { port: PortId(way.egress_port), addr },
            egress: PortId(way.egress_port),
            state: AdjacencyState::Resolved,
            header: Header::ethernet(way.destination.0, way.source.0, ether_type),
            mtu: way.mtu,
        };
        table.publish(slot, &rewrite).expect("there are records");
    }
    table
}

/// A port that takes whatever one frame holds.
fn facts(world: &World, port: u16) -> PortFacts {
    PortFacts {
        mac: world.tables.port(port).mac,
        mtu: 65_535,
        offload: Offload { frames_max: 1, checksum: true, segments: true },
        ipv4: Vec::new(),
        ipv6: Vec::new(),
        link_local: None,
        anycast: Vec::new(),
        vlan: None,
        vlans: Vec::new(),
    }
}
