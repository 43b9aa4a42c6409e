//! All tables, in memory of their own, with what never changes and the connected networks in them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::Duration;

use manylane_frame::Mapping;
use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{
    Ipv4Sizes, Ipv4Tables, Ipv4Writer, Ipv6Sizes, Ipv6Tables, Ipv6Writer, Limits,
};
use manylane_net::neighbour::{
    AdjacencyTable, AdjacencyWords, DuplicateDetection, OwnTable, Table, TableConfig,
};
use manylane_net::nexthop::dst::{DstsMut, Facts, Flags};
use manylane_net::nexthop::ids::{
    BLACKHOLE, BROADCAST, LOCAL, NEIGHBOUR, PROHIBIT, UNREACHABLE, connected_id, fixed_id,
    group_id, neighbour_id,
};
use manylane_net::nexthop::{BUCKETS, GroupId, NextHop, NextHopsMut};
use manylane_sync::rcu::Domain;

use super::{
    Effects, GROUPS_MAX, NEIGHBOURS_MAX, PORTS_MAX, RoutedPort, Routing, RoutingError,
    RoutingLimits,
};

impl Routing {
    /// Tables with the connected networks of `ports` in them.
    pub fn new(
        domain: &Domain,
        ports: Vec<RoutedPort>,
        limits: RoutingLimits,
    ) -> Result<Routing, RoutingError> {
        assert!(ports.len() <= PORTS_MAX, "the configuration bounds the ports");
        let neighbours = Table::new(TableConfig {
            entries_max: limits.neighbours_max,
            unproven_max: limits.neighbours_max / 2,
            timing: limits.timing,
            seed: limits.seed,
            ..TableConfig::default()
        });
        let slots = neighbours.slots_max();
        assert!(slots <= NEIGHBOURS_MAX, "the configuration bounds the neighbours");
        let memory = RoutingError::Memory;
        let adjacencies = AdjacencyWords {
            current: Mapping::words(slots).map_err(memory)?,
            records: Mapping::words(AdjacencyWords::records_len(slots)).map_err(memory)?,
        };
        let next_hops = Mapping::words(usize::from(NEIGHBOUR) + slots).map_err(memory)?;
        let buckets = Mapping::words(GROUPS_MAX * BUCKETS).map_err(memory)?;
        let next_hops = NextHopsMut::with_groups(next_hops, buckets, domain.clone(), 0);
        let ids = usize::from(NEIGHBOUR) + slots;
        // One for each port and slot: a slot gets another neighbour when no worker holds its dst.
        let dsts = ports.len() + slots;
        let mut routing = Routing {
            ipv4: Ipv4Writer::new(
                ipv4_tables(Ipv4Sizes::for_long_routes(limits.long_ipv4_routes)).map_err(memory)?,
                domain,
                Limits::default(),
            ),
            ipv6: Ipv6Writer::new(
                ipv6_tables(Ipv6Sizes::for_routes(limits.ipv6_routes)).map_err(memory)?,
                domain,
                Limits::default(),
            ),
            dsts: DstsMut::new(domain.clone(), ids, dsts, next_hops.generation()),
            next_hops,
            adjacencies: AdjacencyTable::new(domain.clone(), adjacencies),
            neighbours,
            groups: HashMap::new(),
            group_users: HashMap::new(),
            removed: vec![false; ports.len()],
            going: Vec::new(),
            down: vec![false; ports.len()],
            idle: BTreeMap::new(),
            is_idle_outdated: false,
            ports,
            host_routes: HashMap::new(),
            outlived: Vec::new(),
            waiting: BTreeMap::new(),
            given_up: 0,
            actions: Vec::new(),
            own: OwnTable::new([], DuplicateDetection::Off, 0, Duration::ZERO),
            own_actions: Vec::new(),
            owed: Effects::default(),
        };
        routing.set_fixed_next_hops();
        routing.add_connected()?;
        Ok(routing)
    }

    fn set_fixed_next_hops(&mut self) {
        let fixed = [
            (LOCAL, NextHop::Local),
            (BROADCAST, NextHop::Broadcast),
            (BLACKHOLE, NextHop::Blackhole),
            (UNREACHABLE, NextHop::Unreachable),
            (PROHIBIT, NextHop::Prohibit),
        ];
        for (id, next_hop) in fixed {
            self.next_hops.set(fixed_id(id), next_hop);
        }
        for port in (0..self.ports.len() as u16).map(PortId) {
            self.next_hops.set(connected_id(port), NextHop::Connected(port));
            let facts = Facts {
                next_hop: connected_id(port),
                neighbour: None,
                port,
                mtu: self.ports[port.index()].facts.mtu,
                flags: Flags::default(),
            };
            self.dsts.publish(&facts).expect("there is a record for each port");
        }
        for group in (0..GROUPS_MAX as u16).map(GroupId) {
            self.next_hops.set(group_id(group), NextHop::Group(group));
        }
        for slot in 0..self.neighbours.slots_max() as u32 {
            self.next_hops.set(neighbour_id(slot), NextHop::Via(slot));
        }
    }
}

/// Memory for the IPv4 FIB.
pub fn ipv4_tables(sizes: Ipv4Sizes) -> io::Result<Ipv4Tables> {
    Ok(Ipv4Tables {
        direct: Mapping::words(sizes.direct)?,
        blocks: Mapping::words(sizes.blocks)?,
        groups: Mapping::words(sizes.groups)?,
        ranges: Mapping::words(sizes.ranges)?,
    })
}

/// Memory for the IPv6 FIB.
pub fn ipv6_tables(sizes: Ipv6Sizes) -> io::Result<Ipv6Tables> {
    Ok(Ipv6Tables {
        direct: Mapping::words(sizes.direct)?,
        index: Mapping::words(sizes.index)?,
        leaves: Mapping::words(sizes.leaves)?,
    })
}
