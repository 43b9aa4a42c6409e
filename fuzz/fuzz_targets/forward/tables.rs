//! The router's tables: every kind of route and neighbour.

use std::net::{Ipv4Addr, Ipv6Addr};

use manylane_frame::vocabulary::PortId;
use manylane_frame::{Depot, Region, RegionConfig};
use manylane_net::fib::{Ipv4Prefix, Ipv4Sizes, Ipv4Tables, Ipv4Writer};
use manylane_net::fib::{Ipv6Prefix, Ipv6Sizes, Ipv6Tables, Ipv6Writer};
use manylane_net::fib::{Limits, NextHopId};
use manylane_net::forward::{Forwarder, Ipv4Interface, PortFacts, Tables, Vlan};
use manylane_net::icmp::RateLimit;
use manylane_net::neighbour::{
    AdjacencyState, AdjacencyTable, AdjacencyWords, Header, Key, Rewrite,
};
use manylane_net::nexthop::{BUCKETS, GroupId, Member, NextHop, NextHopsMut};
use manylane_net::wire::ethernet::{Mac, Tags, ether_type};
use manylane_sync::rcu::Domain;
use manylane_sync::words::WordsMut;

use super::{CHAINS, FRAMES, MTU, Router};

/// Host `n` of the network that the captures were made in.
fn host_v4(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, n)
}

fn host_v6(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)
}

/// The slot of a neighbour, and with `IPV6` added, that of the same one by IPv6.
pub(super) const RESOLVED: u32 = 0;
pub(super) const UNRESOLVED: u32 = 1;
pub(super) const STALE: u32 = 2;
pub(super) const FAILED: u32 = 3;
pub(super) const NARROW: u32 = 4;
pub(super) const CUSTOMER: u32 = 5;
pub(super) const PROVIDER: u32 = 6;
pub(super) const IPV6: u32 = 8;

/// The tags of the sub-interfaces of port 1: of port 3, and of port 4.
pub(super) fn customer() -> Tags {
    Tags::NONE.and(ether_type::VLAN, 100).expect("there is room for two")
}

pub(super) fn provider() -> Tags {
    let outer = Tags::NONE.and(ether_type::SERVICE_VLAN, 200);
    outer.and_then(|outer| outer.and(ether_type::VLAN, 7)).expect("there is room for two")
}

/// The last byte of the address of a host, and what leads there. Everything else is behind `NARROW`.
fn next_hops(slots: u32) -> [(u8, NextHop<u32>); 13] {
    [
        (1, NextHop::Via(slots + RESOLVED)),
        (2, NextHop::Local),
        (3, NextHop::Via(slots + UNRESOLVED)),
        (4, NextHop::Via(slots + STALE)),
        (5, NextHop::Via(slots + FAILED)),
        (6, NextHop::Blackhole),
        (7, NextHop::Unreachable),
        (8, NextHop::Prohibit),
        (9, NextHop::None),
        (10, NextHop::Group(GroupId((slots / IPV6) as u16))),
        (11, NextHop::Via(slots + CUSTOMER)),
        (12, NextHop::Via(slots + PROVIDER)),
        (255, NextHop::Broadcast),
    ]
}

impl Router {
    pub fn new() -> Router {
        let domain = Domain::new(1);
        let limits = Limits { routes_max: 64, waiting_max: 64 };
        let ipv4_tables = Ipv4Tables::zeroed(Ipv4Sizes::for_long_routes(64));
        let mut ipv4 = Ipv4Writer::new(ipv4_tables, &domain, limits);
        let ipv6_tables = Ipv6Tables::zeroed(Ipv6Sizes::for_routes(64));
        let mut ipv6 = Ipv6Writer::new(ipv6_tables, &domain, limits);
        let buckets = WordsMut::zeroed(2 * BUCKETS);
        let mut next_hops_mut =
            NextHopsMut::with_groups(WordsMut::zeroed(64), buckets, domain.clone(), 7);
        for (number, slots) in [(0, 0), (1, IPV6)] {
            let weights = [(RESOLVED, 1), (UNRESOLVED, 4), (CUSTOMER, 2), (PROVIDER, 1)];
            let members = weights.map(|(slot, weight)| Member { slot: slots + slot, weight });
            let group = next_hops_mut.add_group(&members, |slot| slot != slots + UNRESOLVED);
            assert_eq!(group, Ok(GroupId(number)), "they are numbered in turn");
        }
        let mut ids = (1..).map_while(NextHopId::new);
        let mut lead = |next_hop| {
            let id = ids.next().expect("there are few");
            next_hops_mut.set(id, next_hop);
            id
        };

        let fits = "the tables are larger";
        for (n, next_hop) in next_hops(0) {
            ipv4.insert(Ipv4Prefix::host(host_v4(n)), lead(next_hop)).expect(fits);
        }
        for (n, next_hop) in next_hops(IPV6) {
            ipv6.insert(Ipv6Prefix::host(host_v6(n.into())), lead(next_hop)).expect(fits);
        }
        let network = Ipv4Prefix::containing(host_v4(0), 24).expect("24 is a length");
        ipv4.insert(network, lead(NextHop::Connected(PortId(0)))).expect(fits);
        let network = Ipv6Prefix::containing(host_v6(0), 64).expect("64 is a length");
        ipv6.insert(network, lead(NextHop::Connected(PortId(0)))).expect(fits);
        let everything = Ipv4Prefix::containing(Ipv4Addr::UNSPECIFIED, 0).expect("0 is a length");
        ipv4.insert(everything, lead(NextHop::Via(NARROW))).expect(fits);
        let everything = Ipv6Prefix::containing(Ipv6Addr::UNSPECIFIED, 0).expect("0 is a length");
        ipv6.insert(everything, lead(NextHop::Via(IPV6 + NARROW))).expect(fits);

        let tables = Tables {
            ipv4: ipv4.reader(),
            ipv6: ipv6.reader(),
            next_hops: next_hops_mut.reader(),
            adjacencies: neighbours(&domain).reader(),
            ports: ports().into(),
            own: Default::default(),
        };
        let region = Region::new(RegionConfig { frames: FRAMES, frame_size: 2048 });
        let region = region.expect("half a megabyte is to be had");
        let depot = Depot::new(region.clone(), 1).expect("the region is new");
        let engine = || {
            let errors = RateLimit::new(u32::MAX, u32::MAX);
            Forwarder::new(region.clone(), tables.clone(), errors)
        };
        Router {
            reader: domain.register().expect("the first fits"),
            pool: depot.pool(),
            fast: engine(),
            full: engine(),
            region,
            depot,
            now_ns: 0,
        }
    }
}

/// Three ports, and two sub-interfaces of the one in the middle.
pub(super) fn ports() -> [PortFacts; 5] {
    let sub_interface = |host, tags, mtu| {
        let vlan = Some(Vlan { port: PortId(1), tags });
        PortFacts { vlan, ..port(0xa, host, mtu) }
    };
    let mut vlans = vec![(customer(), PortId(3)), (provider(), PortId(4))];
    vlans.sort_unstable();
    [
        port(0xb, 2, MTU),
        PortFacts { vlans, ..port(0xa, 100, MTU) },
        port(0xc, 200, 1280),
        sub_interface(101, customer(), 1400),
        sub_interface(102, provider(), MTU - 8),
    ]
}

fn port(mac: u8, host: u8, mtu: u32) -> PortFacts {
    PortFacts {
        mac: Mac([2, 0, 0, 0, 0, mac]),
        mtu,
        offload: CHAINS,
        ipv4: vec![Ipv4Interface { addr: host_v4(host), len: 24 }],
        ipv6: vec![host_v6(host.into())],
        link_local: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host.into())),
        vlan: None,
        vlans: Vec::new(),
        anycast: Vec::new(),
    }
}

fn neighbours(domain: &Domain) -> AdjacencyTable {
    let mut table = AdjacencyTable::new(domain.clone(), AdjacencyWords::boxed(16));
    for (slots, ether_type) in [(0, ether_type::IPV4), (IPV6, ether_type::IPV6)] {
        for (slot, state, port, mtu) in [
            (RESOLVED, AdjacencyState::Resolved, 0, MTU),
            (UNRESOLVED, AdjacencyState::Unresolved, 0, MTU),
            (STALE, AdjacencyState::ResolvedReport, 1, MTU),
            (FAILED, AdjacencyState::Failed, 0, MTU),
            (NARROW, AdjacencyState::Resolved, 2, 1280),
            (CUSTOMER, AdjacencyState::Resolved, 3, 1400),
            (PROVIDER, AdjacencyState::ResolvedReport, 4, MTU - 8),
        ] {
            let addr = match slots {
                IPV6 => host_v6(slot as u16 + 1).into(),
                _ => host_v4(slot as u8 + 1).into(),
            };
            let key = Key { port: PortId(port), addr };
            let PortFacts { mac: Mac(station), vlan, .. } = ports()[usize::from(port)];
            let (tags, egress) = vlan.map_or((Tags::NONE, key.port), |vlan| (vlan.tags, vlan.port));
            let header = match state.is_resolved() {
                true => Header::tagged([2, 0, 0, 0, 1, slot as u8], station, tags, ether_type),
                false => Header::default(),
            };
            let rewrite = Rewrite { key, egress, state, header, mtu };
            table.publish(slots + slot, &rewrite).expect("there are records for all");
        }
    }
    table
}
