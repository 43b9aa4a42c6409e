//! The writer's side of every table, and the rules by which it changes.
//!
//! What each next-hop id leads to is said in `manylane_net::nexthop::ids`.
//!
//! A neighbour on a connected network gets a host route to its id as soon as a packet or an ARP or ND question names
//! it, so that a worker finds it by the same lookup as everything else. A neighbour that a static route goes
//! through is pinned.
//!
//! An edit that meets a bound (a table full of what waits for its grace period) stays aside and is
//! tried again after the workers' next turn; nothing blocks, and nothing is lost. A newer edit of the
//! same neighbour takes its place: only the last word counts, and each slot has one at most.

mod edit;
mod error;
mod groups;
mod operator;
mod own;
mod removal;
mod transaction;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use manylane_frame::Mapping;
use manylane_frame::vocabulary::PortId;
use manylane_net::fib::{
    EditError, IpPrefix, Ipv4Prefix, Ipv4Sizes, Ipv4Tables, Ipv4Writer, Ipv6Prefix, Ipv6Sizes,
    Ipv6Tables, Ipv6Writer, Limits, NextHopId,
};
use manylane_net::forward::{PortFacts, Tables};
use manylane_net::neighbour::{
    Action, AdjacencyTable, AdjacencyWords, DuplicateDetection, Entry, Key, OwnAction, OwnTable,
    Report, Table, TableConfig, TableCounts,
};
use manylane_net::nexthop::dst::{Dsts, DstsMut, Facts, Flags};
use manylane_net::nexthop::ids::{
    BLACKHOLE, BROADCAST, CONNECTED, GROUP, LOCAL, NEIGHBOUR, PROHIBIT, UNREACHABLE, connected_id,
    fixed_id, group_id, neighbour_id,
};
use manylane_net::nexthop::{BUCKETS, GroupId, Member, NextHop, NextHopsMut};
use manylane_sync::rcu::Domain;

use crate::config::{self, InterfaceAddress, Route, RouteTarget};
use manylane_worker::Order;

use edit::slot_of;

pub use error::RoutingError;
pub use groups::GroupMember;
pub use manylane_net::nexthop::ids::{GROUPS_MAX, NEIGHBOURS_MAX, PORTS_MAX};
pub use operator::NeighbourRefused;
pub use transaction::is_busy;

const _: () = assert!(GROUPS_MAX == config::GROUPS_MAX, "the configuration bounds the groups");

/// All tables, to write.
pub struct Routing {
    ipv4: Ipv4Writer,
    ipv6: Ipv6Writer,
    next_hops: NextHopsMut,
    adjacencies: AdjacencyTable,
    /// The dsts of neighbours, and of ports for addresses that are not neighbours yet.
    dsts: DstsMut,
    neighbours: Table,
    /// Groups, by their members: routes with the same ones share a group.
    groups: HashMap<Vec<Member>, GroupId>,
    /// How many routes of the configuration lead to a group.
    group_users: HashMap<GroupId, usize>,
    ports: Vec<RoutedPort>,
    /// Host routes that neighbours brought, by slot.
    host_routes: HashMap<u32, IpPrefix>,
    /// Slots whose grace period is over, and whose dst a worker still holds.
    outlived: Vec<u32>,
    /// Edits that met a bound, by slot.
    waiting: BTreeMap<u32, Action>,
    /// By port: whether it was removed.
    removed: Vec<bool>,
    /// Routes of removed ports that are still there.
    going: Vec<Going>,
    given_up: u64,
    actions: Vec<Action>,
    /// Our own addresses, where others may have them.
    own: OwnTable,
    own_actions: Vec<OwnAction>,
    /// What the control thread must still do after edits by other threads.
    owed: Effects,
}

/// A port, as routing sees it.
pub struct RoutedPort {
    /// What workers know of it.
    pub facts: PortFacts,
    /// Our addresses there with their networks.
    pub addresses: Vec<InterfaceAddress>,
}

/// A route that goes with its port.
struct Going {
    prefix: IpPrefix,
    /// What it leads to.
    was: NextHopId,
    /// What another port has it lead to from then on.
    then: Option<NextHopId>,
}

/// Bounds of the tables.
#[derive(Clone, Copy, Debug)]
pub struct RoutingLimits {
    /// Neighbours, resolved or not.
    pub neighbours_max: usize,
    /// IPv4 routes longer than /24, host routes of neighbours included.
    pub long_ipv4_routes: usize,
    /// IPv6 routes, host routes of neighbours included.
    pub ipv6_routes: usize,
}

impl Default for RoutingLimits {
    fn default() -> Self {
        RoutingLimits { neighbours_max: 8192, long_ipv4_routes: 65_536, ipv6_routes: 65_536 }
    }
}

/// What the control thread must do after an edit: for the workers and for the operator.
#[derive(Debug, Default)]
pub struct Effects {
    /// Questions to send.
    pub orders: Vec<Order>,
    /// Whether something was published that a sleeping worker may wait for.
    pub published: bool,
    /// Addresses of ours that turned out to be another station's: for the operator.
    pub duplicates: Vec<(Key, [u8; 6])>,
}

impl Effects {
    fn is_empty(&self) -> bool {
        self.orders.is_empty() && !self.published && self.duplicates.is_empty()
    }
}

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

    /// The workers' sides of all tables.
    pub fn tables(&self) -> Tables {
        Tables {
            ipv4: self.ipv4.reader(),
            ipv6: self.ipv6.reader(),
            next_hops: self.next_hops.reader(),
            adjacencies: self.adjacencies.reader(),
            ports: self.ports.iter().map(|port| port.facts.clone()).collect(),
            own: self.own.reader(),
        }
    }

    /// What workers keep of a route while they wait for its neighbour.
    pub fn dsts(&self) -> Dsts {
        self.dsts.reader()
    }

    /// Adds a static route, or has the prefix lead elsewhere. What waits in a worker goes the new way, before
    /// anything newer.
    pub fn add_route(
        &mut self,
        route: &Route,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<(), RoutingError> {
        let id = match route.target {
            RouteTarget::Group(ref hops) => self.group(hops, now, effects)?,
            RouteTarget::Via { next_hop, port } => {
                let slot = self.pin(Key { port, addr: next_hop }, now, effects)?;
                neighbour_id(slot)
            }
            RouteTarget::OnLink { port } => connected_id(port),
            RouteTarget::Blackhole => fixed_id(BLACKHOLE),
            RouteTarget::Unreachable => fixed_id(UNREACHABLE),
            RouteTarget::Prohibit => fixed_id(PROHIBIT),
        };
        let prefix = prefix_of(route);
        self.change(prefix, id, effects)?;
        if let NextHop::Group(group) = self.meaning(id) {
            *self.group_users.entry(group).or_default() += 1;
        }
        Ok(())
    }

    /// Enters a neighbour that routes lead through, and looks for it; it keeps its slot.
    pub fn pin(
        &mut self,
        key: Key,
        now: Duration,
        effects: &mut Effects,
    ) -> Result<u32, RoutingError> {
        self.check_own(key)?;
        let mut actions = std::mem::take(&mut self.actions);
        let slot = self.neighbours.pin(key, now, &mut actions).map_err(RoutingError::Neighbour);
        self.apply(actions, effects);
        slot
    }

    /// Takes in what a worker reported.
    pub fn handle(&mut self, report: Report, now: Duration, effects: &mut Effects) {
        if let Report::Claimed { key, mac, claim } = report {
            return self.claimed(key, mac, claim, now, effects);
        }
        if !self.concerns_us(report) {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.neighbours.handle(report, now, &mut actions);
        self.apply(actions, effects);
    }

    /// Lets time pass: timers, edits that wait, memory whose grace period is over.
    pub fn tick(&mut self, now: Duration, effects: &mut Effects) {
        self.pay(effects);
        self.ipv4.reclaim();
        self.ipv6.reclaim();
        self.free_slots();
        self.remove_routes(effects);
        // Each stays aside until it is done: the edit of a neighbour's new slot looks whether its old one waits.
        let waiting: Vec<Action> = self.waiting.values().copied().collect();
        for action in waiting {
            if self.edit(action, effects)
                && let Some(slot) = slot_of(action)
            {
                self.waiting.remove(&slot);
            }
        }
        self.tick_own(now, effects); // First: a neighbour that waits for an address of ours as the source of its question can send it now.
        let mut actions = std::mem::take(&mut self.actions);
        self.neighbours.tick(now, &mut actions);
        self.apply(actions, effects);
    }

    /// From now on, at most `places` orders may be given, those included that [`Routing::owes`] says. What finds no
    /// place is not sent, and does not count as sent. Half for each table.
    pub fn give_places(&mut self, places: usize) {
        let places = places.saturating_sub(self.owed.orders.len());
        self.own.give_places(places / 2);
        self.neighbours.give_places(places - places / 2);
    }

    /// Lets neighbours have the slots that no worker can know of any more.
    fn free_slots(&mut self) {
        let Routing { adjacencies, outlived, dsts, neighbours, .. } = self;
        outlived.extend(std::iter::from_fn(|| adjacencies.next_quiet_slot()));
        outlived.retain(|&slot| {
            let is_held = dsts.is_held(neighbour_id(slot));
            if !is_held {
                neighbours.free(slot);
            }
            is_held
        });
    }

    /// When to call [`Routing::tick`] next, if nothing is reported before.
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let waits = !self.going.is_empty()
            || !self.waiting.is_empty()
            || self.neighbours.needs_places()
            || self.own.needs_places();
        let retry = waits.then(|| now + RETRY);
        [self.neighbours.deadline(), self.own.deadline(), retry].into_iter().flatten().min()
    }

    /// The IPv4 routes' writer, to load a full table.
    pub fn ipv4_mut(&mut self) -> &mut Ipv4Writer {
        &mut self.ipv4
    }

    /// The IPv6 routes' writer, to load a full table.
    pub fn ipv6_mut(&mut self) -> &mut Ipv6Writer {
        &mut self.ipv6
    }

    /// All neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = &Entry> {
        self.neighbours.entries().map(|(_, entry)| entry)
    }

    /// All routes, with what they lead to: IPv4 before IPv6, by prefix.
    pub fn routes(&self) -> impl Iterator<Item = (IpPrefix, NextHop<Key>)> {
        let ipv4 = self.ipv4.routes().map(|(prefix, id)| (IpPrefix::V4(prefix), id));
        let ipv6 = self.ipv6.routes().map(|(prefix, id)| (IpPrefix::V6(prefix), id));
        ipv4.chain(ipv6).map(|(prefix, id)| (prefix, self.meaning(id)))
    }

    /// The prefix that leads packets to `addr`, and the number of its next hop.
    pub fn longest(&self, addr: IpAddr) -> Option<(IpPrefix, NextHopId)> {
        match addr {
            IpAddr::V4(addr) => {
                self.ipv4.lookup(addr).map(|(prefix, id)| (IpPrefix::V4(prefix), id))
            }
            IpAddr::V6(addr) => {
                self.ipv6.lookup(addr).map(|(prefix, id)| (IpPrefix::V6(prefix), id))
            }
        }
    }

    /// What is known of a port.
    pub fn facts(&self, port: PortId) -> &PortFacts {
        &self.ports[port.index()].facts
    }

    /// What reached the neighbour table's bounds.
    pub fn neighbour_counts(&self) -> TableCounts {
        self.neighbours.counts()
    }

    /// Neighbours that the FIB had no place for: workers do not find them.
    pub fn given_up(&self) -> u64 {
        self.given_up
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

    /// Connected networks, our own addresses, and what else a network's addresses mean.
    fn add_connected(&mut self) -> Result<(), RoutingError> {
        for port in (0..self.ports.len() as u16).map(PortId) {
            for (prefix, id) in self.connected(port) {
                self.insert(prefix, id)?;
            }
        }
        Ok(())
    }

    /// What a port's addresses mean, a later one's word before an earlier one's.
    fn connected(&self, port: PortId) -> Vec<(IpPrefix, NextHopId)> {
        let mut routes = Vec::new();
        let addresses = self.ports[port.index()].addresses.iter();
        for own in addresses.filter(|own| !is_link_local(own.address)) {
            let network = own.prefix();
            let prefix = IpPrefix::new(network.network(), network.length())
                .expect("a network has no host bits");
            if prefix.len() < host_bits(own.address) {
                routes.push((prefix, connected_id(port)));
                routes.extend(broadcasts(prefix));
                let anycast = network.anycast();
                routes.extend(anycast.map(|anycast| (host(anycast.into()), fixed_id(LOCAL))));
            }
            routes.push((host(own.address), fixed_id(LOCAL)));
        }
        routes
    }

    /// Has a prefix lead elsewhere; packets that a worker holds may be for that prefix.
    fn change(
        &mut self,
        prefix: IpPrefix,
        id: NextHopId,
        effects: &mut Effects,
    ) -> Result<(), RoutingError> {
        self.next_hops.step();
        let inserted = self.insert(prefix, id);
        self.next_hops.step();
        effects.published = true;
        inserted
    }

    fn insert(&mut self, prefix: IpPrefix, id: NextHopId) -> Result<(), RoutingError> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.insert(prefix, id),
            IpPrefix::V6(prefix) => self.ipv6.insert(prefix, id),
        }
        .map(drop)
        .map_err(|source| RoutingError::Fib { prefix, source })
    }

    fn remove(&mut self, prefix: IpPrefix) -> Result<(), EditError> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.remove(prefix),
            IpPrefix::V6(prefix) => self.ipv6.remove(prefix),
        }
        .map(drop)
    }

    fn route(&self, prefix: IpPrefix) -> Option<NextHopId> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.route(prefix),
            IpPrefix::V6(prefix) => self.ipv6.route(prefix),
        }
    }

    /// Whether a report is about a neighbour we may have: on a connected network of its port, or
    /// link-local. Any station on a link may claim any address; the claim must not bring a route.
    fn concerns_us(&self, report: Report) -> bool {
        let key = match report {
            Report::Missing { key } | Report::Answer { key, .. } => key,
            Report::Used { .. } => return true,
            Report::Claimed { .. } => return false, // The claim is about us.
        };
        if self.neighbours.find(key).is_some() {
            return true;
        }
        self.is_neighbours(key)
    }

    /// Whether a neighbour may have this address on this port's link.
    fn is_neighbours(&self, key: Key) -> bool {
        let Some(port) = self.ports.get(key.port.index()) else { return false };
        if self.is_removed(key.port) {
            return false;
        }
        let is_connected = is_link_local(key.addr)
            || port.addresses.iter().any(|own| own.prefix().contains(key.addr));
        is_connected || self.is_on_link(key)
    }

    /// Whether a static route says that the address is on the port's link.
    fn is_on_link(&self, key: Key) -> bool {
        let id = match key.addr {
            IpAddr::V4(addr) => self.ipv4.lookup(addr).map(|(_, id)| id),
            IpAddr::V6(addr) => self.ipv6.lookup(addr).map(|(_, id)| id),
        };
        id == Some(connected_id(key.port))
    }

    fn meaning(&self, id: NextHopId) -> NextHop<Key> {
        match id.raw() {
            LOCAL => NextHop::Local,
            BROADCAST => NextHop::Broadcast,
            BLACKHOLE => NextHop::Blackhole,
            UNREACHABLE => NextHop::Unreachable,
            PROHIBIT => NextHop::Prohibit,
            raw if raw >= NEIGHBOUR => match self.neighbours.entry(u32::from(raw - NEIGHBOUR)) {
                Some(entry) => NextHop::Via(entry.key),
                None => NextHop::None,
            },
            raw if raw >= GROUP => NextHop::Group(GroupId(raw - GROUP)),
            raw if raw >= CONNECTED => NextHop::Connected(PortId(raw - CONNECTED)),
            _ => NextHop::None,
        }
    }
}

/// How soon to try an edit or an order again: after the workers' next turn, sleepers being offline.
pub(super) const RETRY: Duration = Duration::from_millis(1);

/// The first and last address of an IPv4 network are broadcasts (RFC 1812 §4.2.3.1, §5.3.5.2), but not in a /31
/// (RFC 3021).
fn broadcasts(prefix: IpPrefix) -> impl Iterator<Item = (IpPrefix, NextHopId)> {
    let ends = match prefix {
        IpPrefix::V4(prefix) if prefix.len() < 31 => Some([prefix.addr(), prefix.last()]),
        _ => None,
    };
    ends.into_iter().flatten().map(|end| (host(end.into()), fixed_id(BROADCAST)))
}

fn prefix_of(route: &Route) -> IpPrefix {
    IpPrefix::new(route.prefix.network(), route.prefix.length())
        .expect("the configuration refuses host bits")
}

fn host(address: IpAddr) -> IpPrefix {
    match address {
        IpAddr::V4(address) => IpPrefix::V4(Ipv4Prefix::host(address)),
        IpAddr::V6(address) => IpPrefix::V6(Ipv6Prefix::host(address)),
    }
}

fn host_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether an address means something on its link only. 169.254/16 is routed like any other: RFC 3927
/// §2.7 forbids forwarding it, and an operator configures it for no other purpose.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn ipv4_tables(sizes: Ipv4Sizes) -> io::Result<Ipv4Tables> {
    Ok(Ipv4Tables {
        direct: Mapping::words(sizes.direct)?,
        blocks: Mapping::words(sizes.blocks)?,
        groups: Mapping::words(sizes.groups)?,
        ranges: Mapping::words(sizes.ranges)?,
    })
}

fn ipv6_tables(sizes: Ipv6Sizes) -> io::Result<Ipv6Tables> {
    Ok(Ipv6Tables {
        direct: Mapping::words(sizes.direct)?,
        index: Mapping::words(sizes.index)?,
        leaves: Mapping::words(sizes.leaves)?,
    })
}

#[cfg(test)]
mod tests;
